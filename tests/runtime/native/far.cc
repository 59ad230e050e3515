// Orchestration functions that run on another host, in a library that its daemon allows.
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "strata/inner.h"

// The sum of tensor 0 and of scalar 0.
static void far_sum(strata::Call& call) {
  int64_t sum = call.scalar<int64_t>(0);
  for (const int64_t v : call.tensor<const int64_t>(0).span()) sum += v;
  call.set_result(sum);
}
STRATA_EXPORT(far_sum);

static void far_nothing(strata::Call&) {}
STRATA_EXPORT(far_nothing);

static void far_pid(strata::Call& call) {
  call.set_result(static_cast<int64_t>(::getpid()));
}
STRATA_EXPORT(far_pid);

// By a SUB child of the remote Worker: the pid of the process that ran it, in words of an error.
static void far_below(strata::Call& call) {
  strata::InnerOrchestrator orch = call.orchestrator();
  const strata::InnerHandle part = orch.inner_handle("libnative_far.so", "far_throw");
  orch.submit_sub(part, strata::TaskArgs());
}
STRATA_EXPORT(far_below);

static void far_throw(strata::Call&) {
  throw std::runtime_error("thrown far away");
}
STRATA_EXPORT(far_throw);

static void far_abort(strata::Call&) {
  std::abort();
}
STRATA_EXPORT(far_abort);

static void far_echo(strata::Call& call) {
  const auto text = call.inline_bytes();
  call.set_result(text);
}
STRATA_EXPORT(far_echo);

static void far_print(strata::Call&) {
  std::printf("a line from far away\n");
  std::fflush(stdout);
}
STRATA_EXPORT(far_print);

static void far_complain(strata::Call&) {
  std::fprintf(stderr, "words before the end\n");
  throw std::runtime_error("thrown after words");
}
STRATA_EXPORT(far_complain);

// Until it is cancelled, or scalar 0 milliseconds have passed.
static void far_stay(strata::Call& call) {
  for (int64_t ms = 0; ms < call.scalar<int64_t>(0) && !call.cancelled(); ++ms) {
    ::poll(nullptr, 0, 1);
  }
  call.set_result(int64_t{call.cancelled() ? 1 : 0});
}
STRATA_EXPORT(far_stay);

// Hears nothing, for scalar 0 milliseconds.
static void far_deaf(strata::Call& call) {
  for (int64_t ms = 0; ms < call.scalar<int64_t>(0); ++ms) ::poll(nullptr, 0, 1);
}
STRATA_EXPORT(far_deaf);
