#include "runtime/chip_main.h"

#include <fmt/format.h>

#include "base/result.h"
#include "mailbox/child_loop.h"
#include "os/shared_region.h"
#include "runtime/child_host.h"
#include "runtime/chip_executor.h"
#include "runtime/task_trace.h"
#include "runtime/timeline.h"

namespace strata::runtime {

Result<int> serve_chip(const ChildSpec& spec, os::ChildStart& start, os::EventFd parent,
                       ChildOutput* output) {
  const size_t heaps = spec.heap_bytes.size();
  const size_t timeline_at = ChildSpec::kFixedFds + heaps;
  const size_t expected = timeline_at + (spec.timeline_bytes > 0 ? 1 : 0) + 1;
  if (start.fds.size() != expected) {
    return Error(Code::kCorrupt, Scope::kProcess,
                 fmt::format("{} descriptors came, not {}", start.fds.size(), expected));
  }
  STRATA_ASSIGN(os::SharedRegion region,
                os::SharedRegion::adopt(std::move(start.fds[0]), mailbox::kRegionBytes));
  STRATA_ASSIGN(os::SharedRegion hub,
                os::SharedRegion::adopt(std::move(start.fds[1]), mailbox::kHubBytes));
  STRATA_ASSIGN(os::SharedRegion note,
                os::SharedRegion::adopt(std::move(start.fds.back()), device::ChipNote::kBytes));
  STRATA_ASSIGN(ChildMailbox side, ChildMailbox::attach({}, region.bytes(), hub.bytes()));
  // Heaps stay descriptors: a kernel finds no host memory but what its task maps.
  std::vector<device::HostSegment> host;
  for (size_t i = 0; i < heaps; ++i) {
    host.push_back({std::move(start.fds[ChildSpec::kFixedFds + i]), spec.heap_bytes[i]});
  }
  STRATA_ASSIGN(const std::unique_ptr<ChipExecutor> executor,
                ChipExecutor::create({spec.chip->backend, spec.chip->memory_bytes}, std::move(host),
                                     *reinterpret_cast<device::ChipNote*>(note.data()), spec.path));
  std::unique_ptr<Timeline> timeline;
  std::unique_ptr<TaskTrace> trace;
  if (spec.timeline_bytes > 0) {
    STRATA_ASSIGN(timeline,
                  Timeline::adopt(std::move(start.fds[timeline_at]), spec.timeline_bytes));
    auto recorder = timeline->recorder(trace::Role::kChip, spec.path);
    if (recorder) {
      trace = std::make_unique<TaskTrace>(std::move(recorder));
      executor->set_trace(&trace->recorder());
    }
  }
  ChildHost<ChipExecutor> child(side, *executor, std::move(parent), trace.get(), output);
  mailbox::ChildLoop loop(side, child, spec.spin);
  return loop.run();
}

}  // namespace strata::runtime
