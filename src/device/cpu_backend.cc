#include "device/cpu_backend.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <exception>

#include "base/check.h"
#include "base/result.h"
#include "os/system_error.h"

namespace strata::device {
namespace {

constexpr uint64_t kPageBytes = 4096;

// The whole pages of a range.
struct Pages {
  uint64_t begin;
  uint64_t bytes;
};
Pages pages_of(const HostRange& range) {
  const uint64_t begin = range.begin / kPageBytes * kPageBytes;
  const uint64_t end = (range.begin + range.bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  return {begin, end - begin};
}

}  // namespace

Result<std::unique_ptr<CpuBackend>> CpuBackend::create(uint64_t memory_bytes,
                                                       std::vector<HostSegment> host,
                                                       ChipNote& note) {
  // Pages come with the first touch.
  void* const at = ::mmap(nullptr, memory_bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    return os::system_error(
        fmt::format("device memory of ChipSpec::memory_bytes = {} bytes", memory_bytes), errno);
  }
  return std::unique_ptr<CpuBackend>(
      new CpuBackend({static_cast<std::byte*>(at), memory_bytes}, std::move(host), note));
}

CpuBackend::CpuBackend(std::span<std::byte> memory, std::vector<HostSegment> host, ChipNote& note)
    : memory_(memory), ranges_(memory.size()), host_(std::move(host)), note_(note) {
  note_.memory_bytes = ranges_.bytes();
}

CpuBackend::~CpuBackend() {
  ::munmap(memory_.data(), memory_.size());
}

// ---------------------------------------------------------------- kernels

Result<ChipBackend::Kernel> CpuBackend::load(const KernelSource& source) {
  // Constructors of the object run here.
  note_.begin(ChipNote::Doing::kLoading, source.name, 0);
  Result<KernelObject> object = KernelObject::load(source);
  note_.end();
  if (!object) return std::move(object).error();
  kernels_.emplace(++last_kernel_, *std::move(object));
  return last_kernel_;
}

void CpuBackend::unload(Kernel kernel) {
  kernels_.erase(kernel);
}

KernelOutcome CpuBackend::run(Kernel kernel, strata_call* call, int32_t blocks) {
  const auto found = kernels_.find(kernel);
  STRATA_CHECK(found != kernels_.end());
  const KernelObject& object = found->second;
  KernelOutcome out;
  note_.begin(ChipNote::Doing::kRunning, object.name(), blocks);
  const uint32_t name = trace_ != nullptr ? trace_->name(object.name()) : 0;
  for (int32_t block = 0; block < blocks && out.code == 0; ++block) {
    const uint64_t since = trace_ != nullptr ? trace_->now() : 0;
    note_.block.store(block, std::memory_order_relaxed);
    call->block_idx = block;
    out.block = block;
    try {
      out.code = object.entry()(call);
    } catch (const std::exception& e) {
      out.code = 1;
      out.text = e.what();
    } catch (...) {
      out.code = 1;
      out.text = "an exception that is no std::exception";
    }
    if (trace_ == nullptr) continue;
    trace_->push({.start = since,
                  .end = trace_->now(),
                  .id = static_cast<uint64_t>(block),
                  .name = name,
                  .kind = trace::Kind::kBlock,
                  .mark = out.code == 0 ? trace::Mark::kOk : trace::Mark::kFailed});
  }
  note_.end();
  return out;
}

// ---------------------------------------------------------------- device memory

Result<std::byte*> CpuBackend::allocate(uint64_t bytes) {
  const auto offset = ranges_.allocate(bytes);
  if (!offset) {
    return Error(
        Code::kResourceExhausted, Scope::kTask,
        fmt::format("no device memory for {} bytes: {} of {} bytes are in use, the largest "
                    "gap has {}; ChipSpec::memory_bytes enlarges it",
                    bytes, ranges_.used(), ranges_.bytes(), ranges_.largest_gap()));
  }
  note_.used_bytes.store(ranges_.used(), std::memory_order_relaxed);
  note_.peak_bytes.store(ranges_.peak(), std::memory_order_relaxed);
  return memory_.data() + *offset;
}

void CpuBackend::free(std::byte* at) {
  ranges_.free(static_cast<uint64_t>(at - memory_.data()));
  note_.used_bytes.store(ranges_.used(), std::memory_order_relaxed);
}

// ---------------------------------------------------------------- host memory

Result<int> CpuBackend::fd_of(const HostRange& range) const {
  if (range.segment >= host_.size() || range.begin > host_[range.segment].bytes ||
      range.bytes > host_[range.segment].bytes - range.begin) {
    return Error(Code::kCorrupt, Scope::kTask,
                 fmt::format("[{}, +{}) is not in host segment {}", range.begin, range.bytes,
                             range.segment));
  }
  return host_[range.segment].fd.get();
}

Result<void> CpuBackend::read_host(const HostRange& from, std::byte* to) {
  STRATA_ASSIGN(const int fd, fd_of(from));
  for (uint64_t done = 0; done < from.bytes;) {
    const ssize_t got =
        ::pread(fd, to + done, from.bytes - done, static_cast<off_t>(from.begin + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return os::system_error("copy from host memory to a chip", got < 0 ? errno : EIO);
    done += static_cast<uint64_t>(got);
  }
  return {};
}

Result<void> CpuBackend::copy_in(const HostRange& from, std::byte* to) {
  STRATA_TRY(read_host(from, to));
  note_.copied_in.fetch_add(from.bytes, std::memory_order_relaxed);
  return {};
}

Result<void> CpuBackend::copy_out(const std::byte* from, const HostRange& to) {
  STRATA_ASSIGN(const int fd, fd_of(to));
  for (uint64_t done = 0; done < to.bytes;) {
    const ssize_t put =
        ::pwrite(fd, from + done, to.bytes - done, static_cast<off_t>(to.begin + done));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return os::system_error("copy from a chip to host memory", put < 0 ? errno : EIO);
    done += static_cast<uint64_t>(put);
  }
  note_.copied_out.fetch_add(to.bytes, std::memory_order_relaxed);
  return {};
}

Result<std::byte*> CpuBackend::map(const HostRange& range, bool writable) {
  STRATA_ASSIGN(const int fd, fd_of(range));
  const Pages pages = pages_of(range);
  const int rights = PROT_READ | (writable ? PROT_WRITE : 0);
  void* const at =
      ::mmap(nullptr, pages.bytes, rights, MAP_SHARED, fd, static_cast<off_t>(pages.begin));
  if (at == MAP_FAILED) {
    return os::system_error(fmt::format("map {} bytes of host memory", pages.bytes), errno);
  }
  note_.mappings.fetch_add(1, std::memory_order_relaxed);
  note_.mappings_made.fetch_add(1, std::memory_order_relaxed);
  note_.mapped_bytes.fetch_add(pages.bytes, std::memory_order_relaxed);
  return static_cast<std::byte*>(at) + (range.begin - pages.begin);
}

void CpuBackend::unmap(const HostRange& range, std::byte* at) {
  const Pages pages = pages_of(range);
  STRATA_CHECK(::munmap(at - (range.begin - pages.begin), pages.bytes) == 0);
  note_.mappings.fetch_sub(1, std::memory_order_relaxed);
  note_.mapped_bytes.fetch_sub(pages.bytes, std::memory_order_relaxed);
}

}  // namespace strata::device
