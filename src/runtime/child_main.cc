#include "runtime/child_main.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/bytes.h"
#include "mailbox/child_loop.h"
#include "os/shared_region.h"
#include "runtime/child_host.h"
#include "runtime/chip_main.h"
#include "runtime/executor.h"

namespace strata::runtime {
namespace {

Result<int> serve(os::ChildStart& start) {
  STRATA_ASSIGN(const ChildSpec spec, decode_child_spec(start.spec));
  if (spec.kind == ChildKind::kChip) return serve_chip(spec, start);
  if (start.fds.size() != ChildSpec::kFds) {
    return Error(Code::kCorrupt, Scope::kProcess,
                 fmt::format("{} descriptors came, not {}", start.fds.size(), ChildSpec::kFds));
  }
  STRATA_ASSIGN(os::SharedRegion region,
                os::SharedRegion::adopt(std::move(start.fds[0]), mailbox::kRegionBytes));
  STRATA_ASSIGN(os::SharedRegion hub,
                os::SharedRegion::adopt(std::move(start.fds[1]), mailbox::kHubBytes));
  STRATA_ASSIGN(os::SharedRegion heap,
                os::SharedRegion::adopt(std::move(start.fds[2]), spec.heap_bytes));
  STRATA_ASSIGN(ChildMailbox side, ChildMailbox::attach({}, region.bytes(), hub.bytes()));
  Executor executor(heap.bytes(), spec.path);
  ChildHost<Executor> host(side, executor, os::EventFd::adopt(std::move(start.fds[3])));
  mailbox::ChildLoop loop(side, host, spec.spin);
  return loop.run();
}

}  // namespace

std::vector<std::byte> encode(const ChildSpec& spec) {
  base::ByteWriter out;
  out.put(static_cast<uint8_t>(spec.kind));
  out.put_string(spec.path);
  out.put(spec.heap_bytes);
  out.put(spec.spin.free_spin_ns);
  out.put(spec.spin.permit_spin_ns);
  out.put(spec.spin.polls_without_pause);
  out.put_string(spec.chip.backend);
  out.put(spec.chip.memory_bytes);
  return std::move(out).take();
}

Result<ChildSpec> decode_child_spec(std::span<const std::byte> bytes) {
  base::ByteReader in(bytes);
  ChildSpec spec;
  spec.kind = static_cast<ChildKind>(in.get<uint8_t>());
  spec.path = in.get_string(4096);
  spec.heap_bytes = in.get<uint64_t>();
  spec.spin.free_spin_ns = in.get<int64_t>();
  spec.spin.permit_spin_ns = in.get<int64_t>();
  spec.spin.polls_without_pause = in.get<int>();
  spec.chip.backend = in.get_string(4096);
  spec.chip.memory_bytes = in.get<uint64_t>();
  if (!in.ok() || spec.kind > ChildKind::kChip || in.left() != 0) {
    return Error(Code::kCorrupt, Scope::kProcess, "the spec of a child does not decode");
  }
  return spec;
}

int child_main(os::ChildStart& start) {
  const Result<int> status = serve(start);
  if (status) return *status;
  fmt::print(stderr, "strata: a child cannot start: {}\n", status.error().to_string());
  return kExitBadStart;
}

}  // namespace strata::runtime
