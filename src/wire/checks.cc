// The rules of payloads that go beyond one field.
#include <fmt/format.h>

#include "base/result.h"
#include "model/extent.h"
#include "wire/lanes.h"

namespace strata::wire {
namespace {

Error wrong(std::string text) {
  return Error(Code::kCorrupt, Scope::kSession, std::move(text));
}

bool overflows(uint64_t a, uint64_t b) {
  uint64_t sum;
  return __builtin_add_overflow(a, b, &sum);
}

Result<void> check_tensor(const TaskTensor& t, uint64_t inline_bytes) {
  const TensorDesc& d = t.desc;
  if (t.rank > Tensor::kRankMax) return wrong(fmt::format("rank {}", t.rank));
  const bool is_inline = d.space == Space::kHostInline;
  const bool is_buffer = d.space == Space::kOwned || d.space == Space::kImported;
  if (!is_inline && (d.inline_offset != 0 || d.inline_len != 0)) {
    return wrong("inline fields of a tensor that is not HOST_INLINE");
  }
  const bool names_buffer =
      d.uid != Uid{} || d.generation != 0 || d.import_id != 0 || d.offset != 0 || d.nbytes != 0;
  if (!is_buffer && names_buffer) return wrong("fields of a buffer where there is none");
  if (d.space == Space::kOwned && d.import_id != 0) return wrong("an import_id of an OWNED buffer");
  if (d.space == Space::kImported && d.import_id == 0) return wrong("IMPORTED without import_id");
  if (is_buffer && (d.uid == Uid{} || d.generation == 0)) {
    return wrong("a buffer without uid or generation");
  }
  if (is_inline && t.tag != TensorArgType::kInput) return wrong("HOST_INLINE that is no INPUT");
  if (is_inline &&
      (d.inline_offset > inline_bytes || d.inline_len > inline_bytes - d.inline_offset)) {
    return wrong(fmt::format("inline bytes {} to {} of {}", d.inline_offset,
                             uint64_t{d.inline_offset} + d.inline_len, inline_bytes));
  }
  if (overflows(d.offset, d.nbytes)) return wrong("offset and nbytes overflow");
  if (d.space == Space::kMetadataOnly) return {};
  model::Extent extent;
  const uint64_t end = is_inline ? d.inline_len : d.offset + d.nbytes;
  if (!model::extent_inside(t.dtype, t.rank, d.offset, t.shape.data(), t.stride.data(), end,
                            &extent)) {
    return wrong("a shape that leaves its bytes");
  }
  return {};
}

}  // namespace

bool is_inside_folder(std::string_view path) {
  if (path.starts_with('/') || path.find('\0') != std::string_view::npos) return false;
  while (!path.empty()) {
    const std::string_view part = path.substr(0, path.find('/'));
    if (part == "..") return false;
    path.remove_prefix(std::min(path.size(), part.size() + 1));
  }
  return true;
}

Result<void> Task::check() const {
  if (config.block_dim < 1) return wrong(fmt::format("TASK: block_dim is {}", config.block_dim));
  if ((config.flags & ~(kFlagTimeline | kFlagDumpArgs)) != 0) {
    return wrong(
        fmt::format("TASK: flags {:#x}, of which this version knows 1 and 2", config.flags));
  }
  if (!is_inside_folder(config.output_prefix)) {
    return wrong("TASK: output_prefix leaves its folder: it must be relative and without \"..\"");
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (const auto checked = check_tensor(tensors[i], inline_bytes.size()); !checked) {
      return wrong(fmt::format("TASK: tensor {}: {}", i, checked.error().message()));
    }
  }
  return {};
}

Result<void> check_failure(std::string_view what, bool failed, uint32_t code, uint32_t scope) {
  if (!failed) {
    if (code != 0 || scope != 0) return wrong(fmt::format("{}: a code or scope of success", what));
    return {};
  }
  if (!is_known(static_cast<Code>(code))) {
    return wrong(fmt::format("{}: code {}, which this version does not know", what, code));
  }
  if (!is_known(static_cast<Scope>(scope))) {
    return wrong(fmt::format("{}: scope {}, which this version does not know", what, scope));
  }
  return {};
}

Result<void> Completion::check() const {
  STRATA_TRY(check_failure(kName, outcome != Outcome::kOk, code, scope));
  if (outcome == Outcome::kOk && !message.empty()) return wrong("COMPLETION: a text of success");
  if (outcome != Outcome::kOk && !result.empty()) return wrong("COMPLETION: a result of a failure");
  if (ended_ns < started_ns) return wrong("COMPLETION: it ended before it started");
  return {};
}

Result<void> Bootstrap::check() const {
  if (protocol_min > protocol_max) return wrong("BOOTSTRAP: protocol_min is above protocol_max");
  return {};
}

Result<void> BootstrapReply::check() const {
  return check_failure(kName, code != 0, code, code != 0 ? 1 : 0);
}

Result<void> Control::check() const {
  if (version == kControlVersion) return {};
  return wrong(fmt::format("CONTROL: {} of version {}, this version knows {}", wire_name(command),
                           version, kControlVersion));
}

Result<void> ControlReply::check() const {
  if (version != kControlVersion) {
    return wrong(fmt::format("CONTROL_REPLY: {} of version {}, this version knows {}",
                             wire_name(command), version, kControlVersion));
  }
  STRATA_TRY(check_failure(kName, code != 0, code, scope));
  if (code != 0 && !result.empty()) return wrong("CONTROL_REPLY: a result of a failure");
  return {};
}

Result<void> PrepareRegister::check() const {
  if (payload_version != kPayloadVersion) {
    return wrong(fmt::format("PREPARE_REGISTER: payload version {}, this version knows {}",
                             payload_version, kPayloadVersion));
  }
  if (registry == RegistryKind::kDispatcher && kind == CallableKind::kChipCallable) {
    return wrong("PREPARE_REGISTER: DISPATCHER takes no CHIP_CALLABLE; INNER does");
  }
  return {};
}

Result<void> AllocBuffer::check() const {
  if (nbytes == 0) return wrong("ALLOC_BUFFER: no bytes");
  if (flags != 0) return wrong(fmt::format("ALLOC_BUFFER: flags {:#x}, none are known", flags));
  if (place == Place::kHost ? chip != -1 : chip < 0) {
    return wrong(fmt::format("ALLOC_BUFFER: chip {} of place {}", chip, wire_name(place)));
  }
  return {};
}

Result<void> Span::check(std::string_view of) const {
  if (nbytes == 0 || overflows(offset, nbytes)) {
    return wrong(fmt::format("{}: {} bytes from {} are no range", of, nbytes, offset));
  }
  if (access == 0 || (access & ~(kAccessRead | kAccessWrite)) != 0) {
    return wrong(fmt::format("{}: access {}", of, access));
  }
  return {};
}

Result<void> Cancel::check() const {
  if (first == 0 || first > last) return wrong(fmt::format("CANCEL: {} to {}", first, last));
  return {};
}

Result<void> Abort::check() const {
  return check_failure(kName, true, code, static_cast<uint32_t>(Scope::kSession));
}

Result<void> SetLog::check() const {
  if (level > static_cast<uint32_t>(LogLevel::kError)) {
    return wrong(fmt::format("SET_LOG: level {}", level));
  }
  return {};
}

Result<void> TransferRequest::check() const {
  if (!overflows(offset, nbytes)) return {};
  return wrong(fmt::format("{}: {} bytes from {} overflow", kName, nbytes, offset));
}

Result<void> Chunk::check() const {
  if (bytes.empty() || bytes.size() > kChunkBytes) {
    return wrong(fmt::format("DATA: {} bytes, 1 to {} are", bytes.size(), kChunkBytes));
  }
  if (overflows(offset, bytes.size())) return wrong("DATA: offset and bytes overflow");
  return {};
}

Result<void> Ack::check() const {
  return check_failure(kName, code != 0, code, code != 0 ? 1 : 0);
}

}  // namespace strata::wire
