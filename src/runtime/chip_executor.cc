#include "runtime/chip_executor.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/result.h"
#include "base/sha256.h"
#include "engine/core_types.h"

namespace strata::runtime {
namespace {

constexpr uint32_t kIndexMax = 1u << 24;

Error at_call(Code code, std::string text) {
  return Error(code, Scope::kCall, std::move(text));
}

}  // namespace

Result<std::unique_ptr<ChipExecutor>> ChipExecutor::create(const device::BackendOptions& options,
                                                           std::vector<device::HostSegment> host,
                                                           device::ChipNote& note,
                                                           std::string path) {
  std::vector<uint64_t> bytes;
  for (const device::HostSegment& segment : host) bytes.push_back(segment.bytes);
  STRATA_ASSIGN(std::unique_ptr<device::ChipBackend> backend,
                device::make_backend(options, std::move(host), note));
  return std::unique_ptr<ChipExecutor>(
      new ChipExecutor(options, std::move(bytes), std::move(backend), std::move(path)));
}

ChipExecutor::ChipExecutor(const device::BackendOptions& options, std::vector<uint64_t> host_bytes,
                           std::unique_ptr<device::ChipBackend> backend, std::string path)
    : platform_(options.backend),
      host_bytes_(std::move(host_bytes)),
      backend_(std::move(backend)),
      transfers_(*backend_),
      frame_(std::move(path)) {}

// ---------------------------------------------------------------- controls

uint32_t ChipExecutor::control(uint32_t command, std::span<const std::byte> request,
                               std::string* text) {
  const Result<void> done = command == static_cast<uint32_t>(engine::Command::kDropMapping)
                                ? drop_mapping(request)
                                : phase(command, request);
  if (done) return 0;
  *text = done.error().message();
  return static_cast<uint32_t>(done.error().code());
}

Result<void> ChipExecutor::drop_mapping(std::span<const std::byte> request) {
  base::ByteReader in(request);
  Uid uid;
  uid.high = in.get<uint64_t>();
  uid.low = in.get<uint64_t>();
  if (!in.ok()) return at_call(Code::kCorrupt, "a control that is too short");
  transfers_.drop(uid);
  return {};
}

Result<void> ChipExecutor::phase(uint32_t command, std::span<const std::byte> request) {
  base::ByteReader in(request);
  in.get<uint64_t>();  // the transaction: this table needs to know only what is prepared
  const uint32_t index = in.get<uint32_t>();
  const uint32_t generation = in.get<uint32_t>();
  if (!in.ok() || index >= kIndexMax) return at_call(Code::kCorrupt, "a control that is too short");
  if (index >= entries_.size()) entries_.resize(index + 1);
  Entry& entry = entries_[index];
  switch (static_cast<engine::Command>(command)) {
    case engine::Command::kPrepare:
      return prepare(entry, generation, request.last(in.left()));
    case engine::Command::kCommit:
      if (entry.generation != generation || entry.kernel == 0) {
        return at_call(Code::kWrongState, "a commit of what was not prepared");
      }
      entry.committed = true;
      return {};
    case engine::Command::kAbort:
    case engine::Command::kUnregister:
      if (entry.generation == generation) forget(entry);
      return {};
    default:
      return at_call(Code::kUnsupported, fmt::format("no control has the number {}", command));
  }
}

Result<void> ChipExecutor::prepare(Entry& entry, uint32_t generation,
                                   std::span<const std::byte> bytes) {
  STRATA_ASSIGN(const registry::PreparePayload payload, registry::decode_payload(bytes));
  const auto* const chip = std::get_if<model::ChipCallableDescriptor>(&payload.descriptor);
  if (chip == nullptr) {
    return at_call(Code::kUnsupported, fmt::format("'{}' is no chip callable, and {} is a chip",
                                                   payload.name, frame_.path()));
  }
  if (chip->platform != platform_) {
    return at_call(Code::kUnsupported,
                   fmt::format("kernel '{}' is for the platform '{}', and {} is a chip of '{}'",
                               payload.name, chip->platform, frame_.path(), platform_));
  }
  std::vector<std::byte> blob(payload.blob_bytes);
  STRATA_TRY(backend_->read_host({payload.blob_segment, payload.blob_offset, payload.blob_bytes},
                                 blob.data()));
  if (base::sha256(blob) != chip->blob) {
    return at_call(Code::kCorrupt, fmt::format("the bytes of kernel '{}' do not have the SHA-256 "
                                               "that its descriptor names",
                                               payload.name));
  }
  STRATA_ASSIGN(const device::ChipBackend::Kernel kernel,
                backend_->load({payload.name, chip->entry, blob}));
  forget(entry);
  entry = {generation, kernel, false, payload.name};
  return {};
}

void ChipExecutor::forget(Entry& entry) {
  if (entry.kernel != 0) backend_->unload(entry.kernel);
  entry = {};
}

// ---------------------------------------------------------------- tasks

void ChipExecutor::run(const mailbox::TaskPost& post, std::span<const std::byte> args,
                       Cancelled cancelled, mailbox::TaskOutcome* outcome) {
  frame_.clear();
  *outcome = {};
  if (post.callable >= entries_.size() || !entries_[post.callable].committed) {
    frame_.fail(-1,
                fmt::format("callable {} is not registered in {}", post.callable, frame_.path()),
                outcome);
    return;
  }
  const Entry& entry = entries_[post.callable];
  if (post.block_dim < 1) {
    frame_.fail(-1,
                fmt::format("kernel '{}' is to run over {} blocks: CallConfig::block_dim is at "
                            "least 1",
                            entry.name, post.block_dim),
                outcome);
    return;
  }
  const Result<void> decoded = decoder_.decode(args, [this](uint32_t segment) {
    return segment < host_bytes_.size() ? model::MappedSegment{nullptr, host_bytes_[segment]}
                                        : model::MappedSegment{};
  });
  if (!decoded) {
    frame_.fail(-1, decoded.error().message(), outcome);
    return;
  }
  const Result<void> there = transfers_.begin(decoder_, &tensors_);
  if (there) {
    run_kernel(entry, post, cancelled, outcome);
  } else {
    frame_.fail(-1, fmt::format("kernel '{}' did not run: {}", entry.name, there.error().message()),
                outcome);
  }
  transfers_.end();
}

void ChipExecutor::run_kernel(const Entry& entry, const mailbox::TaskPost& post,
                              Cancelled cancelled, mailbox::TaskOutcome* outcome) {
  strata_call raw = frame_.open(post, decoder_, cancelled);
  raw.tensors = tensors_.data();
  raw.tensor_count = static_cast<uint32_t>(tensors_.size());
  const device::KernelOutcome ended = backend_->run(entry.kernel, &raw, post.block_dim);
  if (ended.code != 0) {
    const std::string& why = ended.text.empty() ? frame_.text() : ended.text;
    frame_.fail(
        ended.code,
        fmt::format("kernel '{}', block {} of {}: {}", entry.name, ended.block, post.block_dim,
                    why.empty() ? fmt::format("it returned {}", ended.code) : why),
        outcome);
    return;
  }
  if (const Result<void> back = transfers_.write_back(); !back) {
    frame_.fail(-1,
                fmt::format("what kernel '{}' wrote did not come back: {}", entry.name,
                            back.error().message()),
                outcome);
    return;
  }
  frame_.succeed(outcome);
}

}  // namespace strata::runtime
