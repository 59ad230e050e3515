#include "runtime/child_main.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "base/bytes.h"
#include "mailbox/child_loop.h"
#include "mailbox/plain_memory.h"
#include "os/clock.h"
#include "os/event_fd.h"
#include "os/futex.h"
#include "os/shared_region.h"
#include "runtime/executor.h"
#include "runtime/pause.h"
#include "runtime/task_trace.h"
#include "runtime/timeline.h"

namespace strata::runtime {
namespace {

using Side = mailbox::ChildSide<mailbox::PlainMemory>;

class Host {
 public:
  // `trace` may be null.
  Host(Side& side, Executor& executor, os::EventFd parent, TaskTrace* trace)
      : side_(side), executor_(executor), parent_(std::move(parent)), trace_(trace) {}

  uint32_t control(uint32_t command, std::span<const std::byte> request, std::string* text) {
    const uint64_t since = trace_ != nullptr ? trace_->now() : 0;
    const uint32_t code = executor_.control(command, request, text);
    if (trace_ != nullptr) trace_->control(since, command, request, code);
    return code;
  }
  void run(const mailbox::TaskView& task, mailbox::TaskOutcome* outcome) {
    const Asked asked{&side_, &task};
    const mailbox::TaskPost post{task.task, task.callable, task.flags, task.block_dim,
                                 task.deadline_ms};
    if (trace_ != nullptr) [[unlikely]]
      trace_->begin(task.ticket, task.callable);
    executor_.run(post, task.args, {&Host::cancelled, &asked}, outcome);
    if (trace_ != nullptr) [[unlikely]]
      trace_->end(outcome->outcome != mailbox::Outcome::kOk);
  }
  void signal_parent() { parent_.signal(); }
  // Without a timeout: the fork server's end is this process's, and it ends with the parent.
  void sleep(const uint32_t* word) {
    os::futex_wait(reinterpret_cast<const std::atomic<uint32_t>*>(word), 1);
  }
  int64_t now_ns() { return os::monotonic_now().ns; }
  void pause() { cpu_pause(); }

 private:
  struct Asked {
    const Side* side;
    const mailbox::TaskView* task;
  };
  static bool cancelled(const void* context) {
    const auto* const asked = static_cast<const Asked*>(context);
    return asked->side->cancelled(*asked->task);
  }

  Side& side_;
  Executor& executor_;
  os::EventFd parent_;
  TaskTrace* trace_;
};

Result<int> serve(os::ChildStart& start) {
  STRATA_ASSIGN(const ChildSpec spec, decode_child_spec(start.spec));
  const size_t fds = ChildSpec::kFds + (spec.timeline_bytes > 0 ? 1 : 0);
  if (start.fds.size() != fds) {
    return Error(Code::kCorrupt, Scope::kProcess,
                 fmt::format("{} descriptors came, not {}", start.fds.size(), fds));
  }
  STRATA_ASSIGN(os::SharedRegion region,
                os::SharedRegion::adopt(std::move(start.fds[0]), mailbox::kRegionBytes));
  STRATA_ASSIGN(os::SharedRegion hub,
                os::SharedRegion::adopt(std::move(start.fds[1]), mailbox::kHubBytes));
  STRATA_ASSIGN(os::SharedRegion heap,
                os::SharedRegion::adopt(std::move(start.fds[2]), spec.heap_bytes));
  STRATA_ASSIGN(Side side, Side::attach({}, region.bytes(), hub.bytes()));
  Executor executor(heap.bytes(), spec.path);
  std::unique_ptr<Timeline> timeline;
  std::unique_ptr<TaskTrace> trace;
  if (spec.timeline_bytes > 0) {
    STRATA_ASSIGN(timeline,
                  Timeline::adopt(std::move(start.fds[ChildSpec::kFds]), spec.timeline_bytes));
    auto recorder = timeline->recorder(trace::Role::kSub, spec.path);
    if (recorder) trace = std::make_unique<TaskTrace>(std::move(recorder));
  }
  Host host(side, executor, os::EventFd::adopt(std::move(start.fds[3])), trace.get());
  mailbox::ChildLoop loop(side, host, spec.spin);
  return loop.run();
}

}  // namespace

std::vector<std::byte> encode(const ChildSpec& spec) {
  base::ByteWriter out;
  out.put_string(spec.path);
  out.put(spec.heap_bytes);
  out.put(spec.spin.free_spin_ns);
  out.put(spec.spin.permit_spin_ns);
  out.put(spec.spin.polls_without_pause);
  out.put(spec.timeline_bytes);
  return std::move(out).take();
}

Result<ChildSpec> decode_child_spec(std::span<const std::byte> bytes) {
  base::ByteReader in(bytes);
  ChildSpec spec;
  spec.path = in.get_string(4096);
  spec.heap_bytes = in.get<uint64_t>();
  spec.spin.free_spin_ns = in.get<int64_t>();
  spec.spin.permit_spin_ns = in.get<int64_t>();
  spec.spin.polls_without_pause = in.get<int>();
  spec.timeline_bytes = in.get<uint64_t>();
  if (!in.ok() || in.left() != 0) {
    return Error(Code::kCorrupt, Scope::kProcess, "the spec of a child does not decode");
  }
  return spec;
}

int child_main(os::ChildStart& start) {
  // A Worker that a task makes is no part of this tree, and must not write this tree's file.
  ::unsetenv(kTimelineVariable);
  const Result<int> status = serve(start);
  if (status) return *status;
  fmt::print(stderr, "strata: a child cannot start: {}\n", status.error().to_string());
  return kExitBadStart;
}

}  // namespace strata::runtime
