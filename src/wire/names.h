// What each number of the protocol is called in texts and in docs/protocol.md. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include "strata/callable_handle.h"
#include "strata/error.h"
#include "strata/types.h"
#include "wire/numbers.h"

namespace strata::wire {

// The values that a field of that type may have, in the order of their numbers, each with the name
// that texts and docs/protocol.md have for it.
template <class E>
struct Names;

template <class E>
using Name = std::pair<E, std::string_view>;

template <>
struct Names<Lane> {
  static constexpr std::string_view kType = "lane";
  static constexpr std::array kAll = {
      Name<Lane>{Lane::kBootstrap, "BOOTSTRAP"}, Name<Lane>{Lane::kCommand, "COMMAND"},
      Name<Lane>{Lane::kData, "DATA"}, Name<Lane>{Lane::kHealth, "HEALTH"},
      Name<Lane>{Lane::kPeer, "PEER"}};
};
template <>
struct Names<FrameType> {
  using N = Name<FrameType>;
  static constexpr std::string_view kType = "frame type";
  static constexpr std::array kAll = {N{FrameType::kHello, "HELLO"},
                                      N{FrameType::kTask, "TASK"},
                                      N{FrameType::kCompletion, "COMPLETION"},
                                      N{FrameType::kControl, "CONTROL"},
                                      N{FrameType::kControlReply, "CONTROL_REPLY"},
                                      N{FrameType::kHealth, "HEALTH"},
                                      N{FrameType::kShutdown, "SHUTDOWN"},
                                      N{FrameType::kBootstrap, "BOOTSTRAP"},
                                      N{FrameType::kBootstrapReply, "BOOTSTRAP_REPLY"},
                                      N{FrameType::kLog, "LOG"},
                                      N{FrameType::kCancel, "CANCEL"},
                                      N{FrameType::kAbort, "ABORT"},
                                      N{FrameType::kPeerHello, "PEER_HELLO"},
                                      N{FrameType::kRead, "READ"},
                                      N{FrameType::kWrite, "WRITE"},
                                      N{FrameType::kData, "DATA"},
                                      N{FrameType::kAck, "ACK"},
                                      N{FrameType::kRevoke, "REVOKE"},
                                      N{FrameType::kRevokeAck, "REVOKE_ACK"},
                                      N{FrameType::kSetLog, "SET_LOG"}};
};
template <>
struct Names<ControlCommand> {
  using N = Name<ControlCommand>;
  static constexpr std::string_view kType = "control command";
  static constexpr std::array kAll = {N{ControlCommand::kPrepareRegister, "PREPARE_REGISTER"},
                                      N{ControlCommand::kCommitRegister, "COMMIT_REGISTER"},
                                      N{ControlCommand::kAbortRegister, "ABORT_REGISTER"},
                                      N{ControlCommand::kUnregister, "UNREGISTER"},
                                      N{ControlCommand::kAllocBuffer, "ALLOC_BUFFER"},
                                      N{ControlCommand::kFreeBuffer, "FREE_BUFFER"},
                                      N{ControlCommand::kExportBuffer, "EXPORT_BUFFER"},
                                      N{ControlCommand::kImportBuffer, "IMPORT_BUFFER"},
                                      N{ControlCommand::kReleaseImport, "RELEASE_IMPORT"}};
};
template <>
struct Names<RegistryKind> {
  static constexpr std::string_view kType = "registry";
  static constexpr std::array kAll = {Name<RegistryKind>{RegistryKind::kDispatcher, "DISPATCHER"},
                                      Name<RegistryKind>{RegistryKind::kInner, "INNER"}};
};
template <>
struct Names<ReadyState> {
  static constexpr std::string_view kType = "ready state";
  static constexpr std::array kAll = {Name<ReadyState>{ReadyState::kStarting, "STARTING"},
                                      Name<ReadyState>{ReadyState::kReady, "READY"},
                                      Name<ReadyState>{ReadyState::kFailed, "FAILED"}};
};
template <>
struct Names<Outcome> {
  static constexpr std::string_view kType = "outcome";
  static constexpr std::array kAll = {Name<Outcome>{Outcome::kOk, "OK"},
                                      Name<Outcome>{Outcome::kTaskFailed, "TASK_FAILED"},
                                      Name<Outcome>{Outcome::kEndpointFailed, "ENDPOINT_FAILED"},
                                      Name<Outcome>{Outcome::kSkipped, "SKIPPED"}};
};
template <>
struct Names<Space> {
  static constexpr std::string_view kType = "space";
  static constexpr std::array kAll = {Name<Space>{Space::kHostInline, "HOST_INLINE"},
                                      Name<Space>{Space::kOwned, "OWNED"},
                                      Name<Space>{Space::kImported, "IMPORTED"},
                                      Name<Space>{Space::kMetadataOnly, "METADATA_ONLY"}};
};
template <>
struct Names<Place> {
  static constexpr std::string_view kType = "place";
  static constexpr std::array kAll = {Name<Place>{Place::kHost, "HOST"},
                                      Name<Place>{Place::kChip, "CHIP"}};
};
template <>
struct Names<Path> {
  static constexpr std::string_view kType = "path";
  static constexpr std::array kAll = {Name<Path>{Path::kMapped, "MAPPED"},
                                      Name<Path>{Path::kSocket, "SOCKET"},
                                      Name<Path>{Path::kRelayed, "RELAYED"}};
};
template <>
struct Names<LogStream> {
  static constexpr std::string_view kType = "log stream";
  static constexpr std::array kAll = {Name<LogStream>{LogStream::kLog, "LOG"},
                                      Name<LogStream>{LogStream::kStdout, "STDOUT"},
                                      Name<LogStream>{LogStream::kStderr, "STDERR"}};
};
template <>
struct Names<LogLevel> {
  static constexpr std::string_view kType = "log level";
  static constexpr std::array kAll = {
      Name<LogLevel>{LogLevel::kTrace, "TRACE"}, Name<LogLevel>{LogLevel::kDebug, "DEBUG"},
      Name<LogLevel>{LogLevel::kInfo, "INFO"}, Name<LogLevel>{LogLevel::kWarning, "WARNING"},
      Name<LogLevel>{LogLevel::kError, "ERROR"}};
};
// PYTHON_SERIALIZED is reserved until both sides negotiate it; LOCAL_FUNCTION is never on the wire.
template <>
struct Names<CallableKind> {
  using N = Name<CallableKind>;
  static constexpr std::string_view kType = "callable kind";
  static constexpr std::array kAll = {N{CallableKind::kChipCallable, "CHIP_CALLABLE"},
                                      N{CallableKind::kPythonImport, "PYTHON_IMPORT"},
                                      N{CallableKind::kNativeImport, "NATIVE_IMPORT"}};
};
// Public ones without gaps, whose names are those of name_of().
template <class E, E kFrom, E kTo>
struct Contiguous {
  static constexpr E kFirst = kFrom;
  static constexpr E kLast = kTo;
};
template <>
struct Names<TensorArgType>
    : Contiguous<TensorArgType, TensorArgType::kInput, TensorArgType::kNoDep> {
  static constexpr std::string_view kType = "tag";
};
template <>
struct Names<DType> : Contiguous<DType, DType::kU8, DType::kMxF4E2M1> {
  static constexpr std::string_view kType = "dtype";
};
template <>
struct Names<Code> : Contiguous<Code, Code::kInvalidArgument, Code::kUserCode> {
  static constexpr std::string_view kType = "error code";
};
template <>
struct Names<Scope> : Contiguous<Scope, Scope::kCall, Scope::kProcess> {
  static constexpr std::string_view kType = "scope";
};
// The sender has chosen: kDefault is never on the wire.
template <>
struct Names<Transfer> {
  static constexpr std::string_view kType = "transfer";
  static constexpr std::array kAll = {Name<Transfer>{Transfer::kCopy, "COPY"},
                                      Name<Transfer>{Transfer::kMap, "MAP"}};
};

template <class E>
concept HasGaps = requires {
  Names<E>::kAll;
};

template <class E>
constexpr bool is_known(E value) {
  if constexpr (HasGaps<E>) {
    for (const auto& [known, name] : Names<E>::kAll) {
      if (known == value) return true;
    }
    return false;
  } else {
    return Names<E>::kFirst <= value && value <= Names<E>::kLast;
  }
}
// "?" for a value that is not known.
template <class E>
std::string_view wire_name(E value) {
  if constexpr (HasGaps<E>) {
    for (const auto& [known, name] : Names<E>::kAll) {
      if (known == value) return name;
    }
    return "?";
  } else {
    return is_known(value) ? name_of(value) : "?";
  }
}
// fn(value, name) for all, in the order of their numbers.
template <class E, class Fn>
void for_each_name(Fn&& fn) {
  if constexpr (HasGaps<E>) {
    for (const auto& [value, name] : Names<E>::kAll) fn(value, name);
  } else {
    for (auto n = std::underlying_type_t<E>(Names<E>::kFirst);
         n <= std::underlying_type_t<E>(Names<E>::kLast); ++n) {
      fn(static_cast<E>(n), name_of(static_cast<E>(n)));
    }
  }
}

}  // namespace strata::wire
