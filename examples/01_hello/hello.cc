// The smallest Strata program: one helper process, one task, one result.
#include <strata/strata.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>

struct Answer {
  int64_t value;
  int pid;
};

// Runs in the helper process. A result of at most 64 KiB travels back by value.
static void square(strata::Call& call) {
  const auto x = call.scalar<int64_t>(0);
  call.set_result(Answer{x * x, getpid()});
}

int main() {
  // Strata throws nothing: each call gives a Result. value() ends the program where it failed.
  strata::WorkerSpec spec;
  spec.sub_workers = 1;
  auto worker = strata::Worker::create(spec).value();
  const auto callable = worker->register_callable(strata::local_function<square>("square")).value();
  worker->init().value();  // starts the helper

  strata::TaskRef task;
  auto run = worker
                 ->submit([&](strata::Orchestrator& orch) {
                   strata::TaskArgs args;
                   args.add_scalar(int64_t{7});
                   task = orch.submit_sub(callable, args).value();
                 })
                 .value();
  run.wait().value();

  const auto answer = run.result_as<Answer>(task).value();
  std::printf("7 squared is %" PRId64 ", says process %d to process %d\n", answer.value, answer.pid,
              getpid());
  worker->close().value();
}
