// BOOTSTRAP and BOOTSTRAP_REPLY, the two frames between a parent and a daemon, and HELLO, the first
// one of a runner. Values; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "wire/task.h"

namespace strata::wire {

using Token = std::array<std::byte, 16>;

inline constexpr uint32_t kProductBytesMax = 64;
inline constexpr uint32_t kBuildIdBytesMax = 32;
inline constexpr uint32_t kManifestBytesMax = 1 << 20;
inline constexpr uint32_t kTextBytesMax = 4096;
inline constexpr uint32_t kRuntimesMax = 16;

// The fields before the manifest are frozen for ever, so that every version can refuse every other
// one in words.
struct Bootstrap {
  static constexpr std::string_view kName = "BOOTSTRAP";
  uint16_t protocol_min = kVersion;
  uint16_t protocol_max = kVersion;
  std::string product;              // "strata 0.1.0"
  std::vector<std::byte> build_id;  // the layout id
  std::string manifest;             // JSON: what the session is to be

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.number("protocol_min", self.protocol_min);
    io.number("protocol_max", self.protocol_max);
    io.text("product", self.product, kProductBytesMax);
    io.blob("build_id", self.build_id, kBuildIdBytesMax);
    io.text("manifest", self.manifest, kManifestBytesMax);
  }
  Result<void> check() const;
};

struct BootstrapReply {
  static constexpr std::string_view kName = "BOOTSTRAP_REPLY";
  uint32_t code = 0;  // of Code; 0: the runner's process exists
  std::string text;
  uint16_t protocol = kVersion;
  std::string product;
  std::vector<std::byte> build_id;
  Token command{};
  Token data{};
  Token health{};
  uint32_t pid = 0;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.number("code", self.code);
    io.text("text", self.text, kTextBytesMax);
    io.number("protocol", self.protocol);
    io.text("product", self.product, kProductBytesMax);
    io.blob("build_id", self.build_id, kBuildIdBytesMax);
    io.raw("token_command", self.command);
    io.raw("token_data", self.data);
    io.raw("token_health", self.health);
    io.number("pid", self.pid);
  }
  Result<void> check() const;
};

// What a session's runner is able to do: bits by the numbers of the enumerations, 1 << number.
struct SessionCaps {
  static constexpr std::string_view kName = "caps";
  uint32_t kinds = 0;
  uint32_t scopes = 0;
  uint32_t spaces = 0;
  uint32_t directions = 0;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.number("kinds", self.kinds);
    io.number("scopes", self.scopes);
    io.number("spaces", self.spaces);
    io.number("directions", self.directions);
  }
};

struct RuntimeName {
  static constexpr std::string_view kName = "runtime";
  std::string name;
  std::string version;
  std::string abi;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.text("name", self.name, 32);
    io.text("version", self.version, 32);
    io.text("abi", self.abi, 64);
  }
};

// With sequence 0 once the lanes are up; again when READY, or FAILED.
struct Hello {
  static constexpr std::string_view kName = "HELLO";
  uint64_t session_id = 0;
  int32_t worker_id = 0;
  uint16_t protocol = kVersion;
  uint64_t features = 0;
  ReadyState state = ReadyState::kStarting;
  uint32_t credits = 0;
  SessionCaps caps;
  std::vector<RuntimeName> runtimes;
  std::string host;
  uint32_t pid = 0;
  std::string text;  // why it failed

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.number("session_id", self.session_id);
    io.number("worker_id", self.worker_id);
    io.number("protocol", self.protocol);
    io.number("features", self.features);
    io.choice("ready_state", self.state);
    io.number("credits", self.credits);
    io.nested("caps", self.caps);
    io.list("runtimes", self.runtimes, kRuntimesMax);
    io.text("host", self.host, kPathBytesMax);
    io.number("pid", self.pid);
    io.text("text", self.text, kTextBytesMax);
  }
};

}  // namespace strata::wire
