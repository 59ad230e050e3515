// Manifest: what a session is to be, as BOOTSTRAP brings it to the daemon and the daemon hands it
// to the runner: JSON of at most 1 MiB, every key of the tables in docs/protocol.md exactly once.
//
// Not a policy: whether a daemon has such chips, lets such names into the environment or such
// libraries in is the daemon's to say. One description, fields(), is the writer's, the reader's,
// the tables' and the fuzzers', as in codec.h. Values; any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strata/result.h"
#include "strata/worker_spec.h"
#include "wire/bootstrap.h"

namespace strata::wire {

inline constexpr uint32_t kManifestNameBytesMax = 32;  // of a platform, a runtime, a transport
inline constexpr uint32_t kManifestDevicesMax = 1024;
inline constexpr uint32_t kManifestCpusMax = 8192;
inline constexpr uint32_t kManifestEnvMax = 64;
inline constexpr uint32_t kManifestEnvBytesMax = 4096;  // of one value
inline constexpr uint32_t kManifestCallablesMax = 4096;
inline constexpr uint32_t kManifestEarlyControlsMax = 65'536;
inline constexpr uint32_t kManifestPathsMax = 8;
inline constexpr uint32_t kManifestCwdBytesMax = 1024;
inline constexpr uint32_t kNoLimit = std::numeric_limits<uint32_t>::max();

template <>
struct Names<HugePages> {
  static constexpr std::string_view kType = "huge pages";
  static constexpr std::array kAll = {Name<HugePages>{HugePages::kNone, "NONE"},
                                      Name<HugePages>{HugePages::kTransparent, "TRANSPARENT"},
                                      Name<HugePages>{HugePages::kExplicit, "EXPLICIT"}};
};

// Of the runner's Worker, as strata::Limits: `depth` is the size of each child's ring.
struct ManifestLimits {
  static constexpr std::string_view kName = "limits";
  uint32_t slots = Limits{}.slots;
  uint32_t depth = Limits{}.depth;
  uint32_t buffers = Limits{}.buffers;
  uint32_t callables = Limits{}.callables;
  uint64_t heap_bytes = Limits{}.heap_bytes;
  HugePages huge_pages = HugePages::kNone;
  bool reserve_memory = false;
  uint32_t payload_bytes_max = kPayloadBytesMax;  // of a frame of this session

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.number("slots", self.slots, 1, 1 << 24);
    io.number("depth", self.depth, 1, 62);
    io.number("buffers", self.buffers, 1, kNoLimit);
    io.number("callables", self.callables, 1, kNoLimit);
    io.number("heap_bytes", self.heap_bytes, 4096, uint64_t{1} << 62);
    io.choice("huge_pages", self.huge_pages);
    io.boolean("reserve_memory", self.reserve_memory);
    io.number("payload_bytes_max", self.payload_bytes_max, 64 << 10, kPayloadBytesMax);
  }
};

// The first seven are strata::Timeouts of the runner's Worker, the others the session's own.
struct ManifestTimeouts {
  static constexpr std::string_view kName = "timeouts";
  uint32_t child_ready_ms = Timeouts{}.child_ready_ms;
  uint32_t building_turn_ms = Timeouts{}.building_turn_ms;
  uint32_t control_ms = Timeouts{}.control_ms;
  uint32_t close_ms = Timeouts{}.close_ms;
  uint32_t exit_ms = Timeouts{}.exit_ms;
  uint32_t deadline_grace_ms = Timeouts{}.deadline_grace_ms;
  uint32_t stall_report_ms = Timeouts{}.stall_report_ms;
  uint32_t start_ms = 30'000;           // until READY
  uint32_t handshake_ms = 5'000;        // of TLS, from the peer's first byte
  uint32_t transfer_ms = 10'000;        // without a byte
  uint32_t beat_ms = 250;               // between two HEALTH of one side
  uint32_t hold_ms = 3'000;             // without a beat, then the runner holds
  uint32_t parent_verdict_ms = 5'000;   // without a beat, then the parent gives the session up
  uint32_t runner_verdict_ms = 30'000;  // without a beat, then the runner ends

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.number("child_ready_ms", self.child_ready_ms, 0, kNoLimit);
    io.number("building_turn_ms", self.building_turn_ms, 0, kNoLimit);
    io.number("control_ms", self.control_ms, 0, kNoLimit);
    io.number("close_ms", self.close_ms, 0, kNoLimit);
    io.number("exit_ms", self.exit_ms, 0, kNoLimit);
    io.number("deadline_grace_ms", self.deadline_grace_ms, 0, kNoLimit);
    io.number("stall_report_ms", self.stall_report_ms, 0, kNoLimit);
    io.number("start_ms", self.start_ms, 1, kNoLimit);
    io.number("handshake_ms", self.handshake_ms, 1, kNoLimit);
    io.number("transfer_ms", self.transfer_ms, 1, kNoLimit);
    io.number("beat_ms", self.beat_ms, 1, kNoLimit);
    io.number("hold_ms", self.hold_ms, 1, kNoLimit);
    io.number("parent_verdict_ms", self.parent_verdict_ms, 1, kNoLimit);
    io.number("runner_verdict_ms", self.runner_verdict_ms, 1, kNoLimit);
  }
};

// How tensors may travel: the lanes' transport, and the paths of imports that are allowed.
struct DataProfile {
  static constexpr std::string_view kName = "data_profile";
  std::string transport = "tcp";
  std::vector<Path> paths = {Path::kMapped, Path::kSocket, Path::kRelayed};

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.text("transport", self.transport, kManifestNameBytesMax);
    io.choices("paths", self.paths, kManifestPathsMax);
  }
};

// A callable that the runner registers before its first HELLO. Import kinds alone; chip callables
// travel as controls.
struct ManifestCallable {
  static constexpr std::string_view kName = "callable";
  CallableKind kind = CallableKind::kNativeImport;
  std::string module;  // the library's base name, or the Python module
  std::string symbol;  // the C symbol, or the qualified name

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.choice("kind", self.kind);
    io.text("module", self.module, kPathBytesMax);
    io.text("symbol", self.symbol, kPathBytesMax);
  }
};

struct Manifest {
  static constexpr std::string_view kName = "manifest";
  uint64_t session_id = 1;  // never 0
  std::string parent_path;  // of the Worker that opens the session, "L5/2"
  int32_t parent_level = 4;
  int32_t level = 3;      // below the parent's
  int32_t worker_id = 0;  // of the remote Worker, in the parent's ids
  std::string platform = "cpu";
  std::string runtime = "tensormap_and_ringbuffer";
  std::string build;  // of the parent, for texts
  std::vector<int32_t> device_ids;
  uint32_t sub_workers = 0;
  std::vector<int32_t> cpus;
  std::vector<std::pair<std::string, std::string>> env;  // each name once
  std::string cwd;                                       // below the daemon's folder; empty: it
  ManifestLimits limits;
  DataProfile data_profile;
  uint32_t early_controls = 0;  // that come between lanes-up and READY
  uint64_t features = 0;
  std::vector<ManifestCallable> dispatcher;
  std::vector<ManifestCallable> inner;
  ManifestTimeouts timeouts;
  LogLevel log_level = LogLevel::kInfo;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.number("session_id", self.session_id, 1, std::numeric_limits<uint64_t>::max());
    io.text("parent_path", self.parent_path, kPathBytesMax);
    io.number("parent_level", self.parent_level, 4, 6);
    io.number("level", self.level, 3, 6);
    io.number("worker_id", self.worker_id, 0, 65'535);
    io.text("platform", self.platform, kManifestNameBytesMax);
    io.text("runtime", self.runtime, kManifestNameBytesMax);
    io.text("build", self.build, kProductBytesMax);
    io.numbers("device_ids", self.device_ids, kManifestDevicesMax, 0, 65'535);
    io.number("sub_workers", self.sub_workers, 0, 1024);
    io.numbers("cpus", self.cpus, kManifestCpusMax, 0, 65'535);
    io.names("env", self.env, kManifestEnvMax, kPathBytesMax, kManifestEnvBytesMax);
    io.text("cwd", self.cwd, kManifestCwdBytesMax);
    io.object("limits", self.limits);
    io.object("data_profile", self.data_profile);
    io.number("early_controls", self.early_controls, 0, kManifestEarlyControlsMax);
    io.number("features", self.features, 0, std::numeric_limits<uint64_t>::max());
    io.objects("dispatcher", self.dispatcher, kManifestCallablesMax);
    io.objects("inner", self.inner, kManifestCallablesMax);
    io.object("timeouts", self.timeouts);
    io.choice("log_level", self.log_level);
  }
  // Levels, repeats, names and folders, and the order of the beats' timeouts.
  Result<void> check() const;
};

// The JSON, without blanks, its keys in the order of fields(). kInvalidArgument with the key's path
// where decode_manifest would refuse it.
Result<std::string> encode_manifest(const Manifest& manifest);
// kCorrupt with the key's path ("limits.depth", "dispatcher[2].kind") and the reason for anything
// else: no JSON, an unknown, missing or repeated key, a wrong type, a value out of its range. Takes
// memory in proportion to the text.
Result<Manifest> decode_manifest(std::string_view text);

}  // namespace strata::wire
