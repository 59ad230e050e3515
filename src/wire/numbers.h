// The numbers of the protocol; their names are in names.h. A number is never reused; one that is
// not here is refused, also a reserved one. Pure; any thread.
#pragma once

#include <cstdint>

namespace strata::wire {

inline constexpr uint16_t kVersion = 1;
inline constexpr uint32_t kPayloadBytesMax = 16u << 20;  // negotiated down, never up

// What a connection is for; the first thing that it says.
enum class Lane : uint16_t { kBootstrap = 1, kCommand = 2, kData = 3, kHealth = 4, kPeer = 5 };

enum class FrameType : uint16_t {
  kHello = 1,
  kTask = 2,
  kCompletion = 3,
  kControl = 4,
  kControlReply = 5,
  kHealth = 6,
  kShutdown = 7,
  kBootstrap = 8,
  kBootstrapReply = 9,
  kLog = 10,
  kCancel = 11,
  kAbort = 12,
  kPeerHello = 13,
  kRead = 14,
  kWrite = 15,
  kData = 16,
  kAck = 17,
  kRevoke = 18,
  kRevokeAck = 19,
  kSetLog = 20,
};

// 32 to 63 are reserved for domains, 64 to 79 for graphs.
enum class ControlCommand : uint32_t {
  kPrepareRegister = 1,
  kCommitRegister = 2,
  kAbortRegister = 3,
  kUnregister = 4,
  kAllocBuffer = 5,
  kFreeBuffer = 6,
  kExportBuffer = 7,
  kImportBuffer = 8,
  kReleaseImport = 9,
};

enum class RegistryKind : uint32_t { kDispatcher = 1, kInner = 2 };
enum class ReadyState : uint32_t { kStarting = 0, kReady = 1, kFailed = 2 };
enum class Outcome : uint32_t { kOk = 0, kTaskFailed = 1, kEndpointFailed = 2, kSkipped = 3 };
// Where the bytes of a tensor are.
enum class Space : uint32_t { kHostInline = 1, kOwned = 2, kImported = 3, kMetadataOnly = 4 };
enum class Place : uint32_t { kHost = 1, kChip = 2 };
// How an importer reaches the bytes. 2 and 3 are reserved for UCX.
enum class Path : uint32_t { kMapped = 1, kSocket = 4, kRelayed = 5 };
enum class LogStream : uint8_t { kLog = 0, kStdout = 1, kStderr = 2 };
enum class LogLevel : uint8_t { kTrace = 0, kDebug = 1, kInfo = 2, kWarning = 3, kError = 4 };

}  // namespace strata::wire
