#include "runtime/child_main.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "base/result.h"
#include "base/text.h"
#include "mailbox/child_loop.h"
#include "os/cores.h"
#include "os/event_fd.h"
#include "os/futex.h"
#include "os/process_title.h"
#include "os/shared_region.h"
#include "runtime/child_host.h"
#include "runtime/child_output.h"
#include "runtime/child_spec.h"
#include "runtime/chip_main.h"
#include "runtime/context.h"
#include "runtime/executor.h"
#include "runtime/inner_worker.h"
#include "runtime/task_trace.h"
#include "runtime/timeline.h"
#include "runtime/worker_core.h"

namespace strata::runtime {
namespace {

using Side = ChildMailbox;

// The memory that a child maps at its start.
struct Mappings {
  os::SharedRegion region;
  os::SharedRegion hub;
  std::vector<os::SharedRegion> heaps;
  std::unique_ptr<Timeline> timeline;  // null: none

  // Null where there is no timeline, or no room in it.
  std::unique_ptr<TaskTrace> trace(trace::Role role, const std::string& path) const {
    if (!timeline) return nullptr;
    auto recorder = timeline->recorder(role, path);
    return recorder ? std::make_unique<TaskTrace>(std::move(recorder)) : nullptr;
  }
  std::vector<model::MappedSegment> segments() const {
    std::vector<model::MappedSegment> out;
    for (const os::SharedRegion& heap : heaps) out.push_back({heap.data(), heap.size()});
    return out;
  }
};

Result<Mappings> map(const ChildSpec& spec, std::vector<os::Fd>& fds) {
  const size_t timeline_at = ChildSpec::kFixedFds + spec.heap_bytes.size();
  const size_t expected = timeline_at + (spec.timeline_bytes > 0 ? 1 : 0);
  if (fds.size() != expected) {
    return Error(Code::kCorrupt, Scope::kProcess,
                 fmt::format("{} descriptors came, not {}", fds.size(), expected));
  }
  STRATA_ASSIGN(os::SharedRegion region,
                os::SharedRegion::adopt(std::move(fds[0]), mailbox::kRegionBytes));
  STRATA_ASSIGN(os::SharedRegion hub,
                os::SharedRegion::adopt(std::move(fds[1]), mailbox::kHubBytes));
  Mappings out{std::move(region), std::move(hub), {}, nullptr};
  for (size_t i = 0; i < spec.heap_bytes.size(); ++i) {
    STRATA_ASSIGN(
        os::SharedRegion heap,
        os::SharedRegion::adopt(std::move(fds[ChildSpec::kFixedFds + i]), spec.heap_bytes[i]));
    // Where the kernel gives none the parent has said so.
    if (i == 0 && spec.huge_pages) static_cast<void>(heap.ask_for_huge_pages());
    out.heaps.push_back(std::move(heap));
  }
  if (spec.timeline_bytes > 0) {
    STRATA_ASSIGN(out.timeline, Timeline::adopt(std::move(fds[timeline_at]), spec.timeline_bytes));
  }
  return out;
}

Result<int> serve_helper(const ChildSpec& spec, Mappings& mapped, os::EventFd parent,
                         ChildOutput* output) {
  STRATA_ASSIGN(Side side, Side::attach({}, mapped.region.bytes(), mapped.hub.bytes()));
  Executor executor(mapped.segments(), spec.path);
  const std::unique_ptr<TaskTrace> trace = mapped.trace(trace::Role::kSub, spec.path);
  ChildHost<Executor> host(side, executor, std::move(parent), trace.get(), output);
  mailbox::ChildLoop loop(side, host, spec.spin);
  return loop.run();
}

// Answers the parent's greeting with the reason why this child cannot take tasks.
int refuse_start(Side& side, const os::EventFd& parent, const Error& error) {
  for (;;) {
    mailbox::ControlView control;
    if (side.control_take(&control)) {
      if (control.command == mailbox::kCommandExit) return mailbox::kExitAsked;
      const std::string text(base::cut_text(error.to_string(), mailbox::kControlBytesMax));
      side.control_reply(static_cast<uint32_t>(error.code()), std::as_bytes(std::span(text)));
      if (side.parent_asleep_after_publish(true)) parent.signal();
      return kExitBadStart;
    }
    if (side.corrupt() != nullptr) return mailbox::kExitCorrupt;
    if (!side.prepare_sleep()) continue;
    os::futex_wait(reinterpret_cast<const std::atomic<uint32_t>*>(side.sleep_word()), 1);
    side.finish_sleep();
  }
}

// The Worker of this process, with all that is below it. Its fork server is made first, while the
// process has one thread and nothing of the mailbox is in use.
Result<std::shared_ptr<WorkerCore>> start_worker(const ChildSpec& spec, Mappings& mapped,
                                                 const ChildOutput* output) {
  // What is forked from here maps what it needs by descriptor.
  STRATA_TRY(mapped.region.set_inherited(false));
  STRATA_TRY(mapped.hub.set_inherited(false));
  if (mapped.timeline) STRATA_TRY(mapped.timeline->set_inherited(false));
  WorkerPlace place{spec.path, {}, mapped.timeline.get()};
  if (output != nullptr) place.output_above = output->reader_fd();
  for (os::SharedRegion& heap : mapped.heaps) {
    STRATA_TRY(heap.set_inherited(false));
    place.heaps.push_back({heap.fd(), heap.bytes()});
  }
  STRATA_ASSIGN(std::shared_ptr<WorkerCore> core,
                WorkerCore::create(*spec.worker, std::move(place)));
  STRATA_TRY(core->init());
  return core;
}

Result<int> serve_worker(const ChildSpec& spec, Mappings& mapped, os::EventFd parent,
                         ChildOutput* output) {
  Result<std::shared_ptr<WorkerCore>> core = start_worker(spec, mapped, output);
  STRATA_ASSIGN(Side side, Side::attach({}, mapped.region.bytes(), mapped.hub.bytes()));
  if (!core) return refuse_start(side, parent, core.error());
  int status = 0;
  {
    InnerWorker inner(**core);
    Executor executor(mapped.segments(), spec.path, &inner);
    const std::unique_ptr<TaskTrace> trace = mapped.trace(trace::Role::kWorker, spec.path);
    ChildHost<Executor> host(side, executor, std::move(parent), trace.get(), output);
    mailbox::ChildLoop loop(side, host, spec.spin);
    status = loop.run();
  }
  // From here downwards, before this process ends.
  if (const Result<void> closed = (*core)->close(); !closed) {
    fmt::print(stderr, "strata: {}\n", closed.error().to_string());
  }
  return status;
}

// Null: stdout and stderr are what the parent's are.
Result<std::unique_ptr<ChildOutput>> take_output(const ChildSpec& spec, std::vector<os::Fd>& fds) {
  if (!spec.output) return std::unique_ptr<ChildOutput>();
  if (fds.size() < 3) {
    return Error(Code::kCorrupt, Scope::kProcess, "no descriptors came for a child's output");
  }
  const size_t at = fds.size() - 3;
  STRATA_ASSIGN(std::unique_ptr<ChildOutput> output,
                ChildOutput::adopt(std::move(fds[at]), std::move(fds[at + 1]),
                                   os::EventFd::adopt(std::move(fds[at + 2]))));
  fds.resize(at);
  return output;
}

Result<int> serve(os::ChildStart& start) {
  STRATA_ASSIGN(const ChildSpec spec, decode_child_spec(start.spec));
  os::set_process_title(fmt::format("strata: {}", spec.path));
  STRATA_ASSIGN(const std::unique_ptr<ChildOutput> output, take_output(spec, start.fds));
  if (!spec.cpus.empty()) STRATA_TRY(os::bind_to_cores(spec.cpus));
  os::EventFd parent =
      os::EventFd::adopt(start.fds.size() > 2 ? std::move(start.fds[2]) : os::Fd());
  if (spec.chip) return serve_chip(spec, start, std::move(parent), output.get());
  STRATA_ASSIGN(Mappings mapped, map(spec, start.fds));
  if (!spec.worker) return serve_helper(spec, mapped, std::move(parent), output.get());
  Result<int> status = serve_worker(spec, mapped, std::move(parent), output.get());
  end_context();
  return status;
}

}  // namespace

int child_main(os::ChildStart& start) {
  // A Worker that a task makes is no part of this tree, and must not write this tree's file.
  ::unsetenv(kTimelineVariable);
  forget_context();
  const Result<int> status = serve(start);
  if (status) return *status;
  fmt::print(stderr, "strata: a child cannot start: {}\n", status.error().to_string());
  return kExitBadStart;
}

}  // namespace strata::runtime
