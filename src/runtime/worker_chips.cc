// The part of WorkerCore that is about chips below it, and about the memory that they map.
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/result.h"
#include "model/descriptor.h"
#include "os/fd.h"
#include "os/system_error.h"
#include "runtime/worker_core_inl.h"

namespace strata {
namespace {

Error refuse(Code code, std::string text) {
  return Error(code, Scope::kCall, std::move(text));
}

}  // namespace

Result<ChipCallable> ChipCallable::from_file(const std::string& path, std::string entry,
                                             std::string signature) {
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rbe"));
  if (!file) return os::system_error(fmt::format("open the kernel object {}", path), errno);
  ChipCallable out{{}, std::move(entry), std::move(signature)};
  for (;;) {
    constexpr size_t kPiece = 1 << 20;
    const size_t had = out.blob.size();
    if (had > kBlobBytesMax) break;
    out.blob.resize(had + kPiece);
    const size_t got = std::fread(out.blob.data() + had, 1, kPiece, file.get());
    out.blob.resize(had + got);
    if (got < kPiece) break;
  }
  if (std::ferror(file.get()) != 0) {
    return os::system_error(fmt::format("read the kernel object {}", path), errno);
  }
  if (out.blob.empty() || out.blob.size() > kBlobBytesMax) {
    return refuse(Code::kInvalidArgument,
                  fmt::format("the kernel object {} has {} bytes; 1 to {} are taken", path,
                              out.blob.empty() ? "0" : "more", kBlobBytesMax));
  }
  return out;
}

// ---------------------------------------------------------------- start

Result<void> WorkerCore::make_chip_notes() {
  for (uint32_t i = 0; i < chip_count(); ++i) {
    STRATA_ASSIGN(os::SharedRegion note,
                  os::SharedRegion::create("strata-chip", device::ChipNote::kBytes));
    chip_notes_.push_back(std::move(note));
  }
  return {};
}

device::ChipNote& WorkerCore::chip_note(uint32_t chip) const {
  return *reinterpret_cast<device::ChipNote*>(chip_notes_[chip].data());
}

Result<void> WorkerCore::add_inline_chips() {
  STRATA_TRY(make_chip_notes());
  for (uint32_t i = 0; i < chip_count(); ++i) {
    std::vector<device::HostSegment> host;
    const auto add = [&host](int fd, uint64_t bytes) -> Result<void> {
      const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
      if (copy < 0) return os::system_error("a descriptor of the heap for a chip", errno);
      host.push_back({os::Fd(copy), bytes});
      return {};
    };
    STRATA_TRY(add(heap_.fd(), heap_.size()));
    for (const WorkerPlace::Heap& heap : place_.heaps) STRATA_TRY(add(heap.fd, heap.bytes.size()));
    STRATA_ASSIGN(std::unique_ptr<runtime::ChipExecutor> executor,
                  runtime::ChipExecutor::create({spec_.chip.backend, spec_.chip.memory_bytes},
                                                std::move(host), chip_note(i),
                                                fmt::format("{}/{}", path_, i)));
    inline_chips_.push_back(std::move(executor));
    add_inline(*inline_chips_.back(), caps_of(i));
  }
  return {};
}

Result<ChipUsage> WorkerCore::chip_usage(int chip) const {
  STRATA_TRY(must_be_home("chip_usage"));
  if (chip < 0 || static_cast<uint32_t>(chip) >= chip_count()) {
    return refuse(Code::kNotFound,
                  fmt::format("there is no chip {}; {} has {}", chip, path_, chip_count()));
  }
  // Before init there are none.
  if (static_cast<size_t>(chip) >= chip_notes_.size()) {
    return refuse(Code::kWrongState, "chip_usage of a Worker that is not initialised");
  }
  const device::ChipNote& note = chip_note(static_cast<uint32_t>(chip));
  return ChipUsage{note.memory_bytes, note.used_bytes,    note.peak_bytes, note.mappings,
                   note.mapped_bytes, note.mappings_made, note.copied_in,  note.copied_out};
}

// ---------------------------------------------------------------- callables

// Without the place of the blob.
Result<registry::PreparePayload> WorkerCore::chip_payload(const ChipCallable& chip) const {
  if (chip.blob.empty() || chip.blob.size() > ChipCallable::kBlobBytesMax) {
    return refuse(Code::kInvalidArgument,
                  fmt::format("a chip callable's blob has 1 to {} bytes, not {}",
                              ChipCallable::kBlobBytesMax, chip.blob.size()));
  }
  if (chip.platform != "cpu") {
    return refuse(Code::kUnsupported,
                  fmt::format("kernel '{}' is for the platform '{}': this build has chips of the "
                              "platform 'cpu' only",
                              chip.entry, chip.platform));
  }
  registry::PreparePayload payload;
  payload.name = chip.entry;
  payload.descriptor = model::ChipCallableDescriptor{chip.platform, chip.entry, chip.signature,
                                                     base::sha256(chip.blob)};
  STRATA_TRY(model::validate(payload.descriptor));
  return payload;
}

// Keeps the blob of a registration as long as it is there; a blob that is not needed goes.
void WorkerCore::keep_blob(registry::EntryRef entry, uint32_t buffer) {
  front_->call([&](engine::Core& core) {
    const bool known = std::any_of(blobs_.begin(), blobs_.end(),
                                   [&](const Blob& blob) { return blob.entry == entry; });
    if (known) {
      core.release_buffer(buffer);
    } else {
      blobs_.push_back({entry, buffer});
    }
    std::erase_if(blobs_, [&](const Blob& blob) {
      if (!core.registry().gone(blob.entry)) return false;
      core.release_buffer(blob.buffer);
      return true;
    });
  });
}

// The blob stands in the heap, where chips read it: while it is prepared, and for chips that come
// later.
Result<registry::EntryRef> WorkerCore::register_with_blob(const Callable& callable,
                                                          registry::PreparePayload payload,
                                                          std::span<const uint32_t> listed) {
  const auto* const chip = std::get_if<ChipCallable>(&callable);
  if (chip == nullptr) return front_->register_callable(payload, listed);
  if (chip_count() == 0 && !payload.inner) {
    return refuse(Code::kUnsupported,
                  fmt::format("kernel '{}' runs on chips, and {} has none: WorkerSpec::chips gives "
                              "some, register_inner is for those of Workers below",
                              payload.name, path_));
  }
  STRATA_ASSIGN(const engine::Core::NewBuffer made, create_buffer(chip->blob.size()));
  std::memcpy(heap_.data() + made.heap_offset, chip->blob.data(), chip->blob.size());
  payload.blob_offset = made.heap_offset;
  payload.blob_bytes = chip->blob.size();
  Result<registry::EntryRef> entry = front_->register_callable(payload, listed);
  if (entry) {
    keep_blob(*entry, made.index);
  } else {
    release_buffer(made.index);
  }
  return entry;
}

// ---------------------------------------------------------------- memory

void WorkerCore::make_read_only(uint32_t index) {
  if (!must_be_home("make_read_only")) return;
  front_->call([&](engine::Core& core) { core.make_read_only(index); });
}

}  // namespace strata
