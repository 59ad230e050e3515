// CONTROL and CONTROL_REPLY, the bodies of the controls and the results of those that have one; and
// SHUTDOWN. Values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "wire/bootstrap.h"

namespace strata::wire {

inline constexpr uint32_t kControlVersion = 1;  // of every command there is
inline constexpr uint32_t kPayloadVersion = 1;  // of PREPARE_REGISTER's payload
inline constexpr uint32_t kRegisterBytesMax = 15u << 20;
inline constexpr uint32_t kControlBodyBytesMax = kRegisterBytesMax + 1024;
inline constexpr uint32_t kControlResultBytesMax = 1u << 20;
inline constexpr uint32_t kEndpointsMax = 16;
inline constexpr uint32_t kExportBytesMax = 4096;  // of a transport's descriptor
inline constexpr uint32_t kAccessRead = 1, kAccessWrite = 2;

struct Control {
  static constexpr std::string_view kName = "CONTROL";
  ControlCommand command = ControlCommand::kPrepareRegister;
  uint32_t version = kControlVersion;
  std::vector<std::byte> body;  // one of the structs below, by `command`

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.choice("command", self.command);
    io.number("command_version", self.version);
    io.blob("body", self.body, kControlBodyBytesMax);
  }
  Result<void> check() const;
};

// One for each CONTROL; a code that is not 0 means that nothing was applied.
struct ControlReply {
  static constexpr std::string_view kName = "CONTROL_REPLY";
  ControlCommand command = ControlCommand::kPrepareRegister;
  uint32_t version = kControlVersion;
  uint32_t code = 0;
  uint32_t scope = 0;
  std::string message;
  std::vector<std::byte> result;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.choice("command", self.command);
    io.number("command_version", self.version);
    io.number("code", self.code);
    io.number("scope", self.scope);
    io.text("message", self.message, kMessageBytesMax);
    io.blob("result", self.result, kControlResultBytesMax);
  }
  Result<void> check() const;
};

struct Shutdown {
  static constexpr std::string_view kName = "SHUTDOWN";
  uint32_t deadline_ms = 0;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.number("deadline_ms", self.deadline_ms);
  }
};

struct PrepareRegister {
  static constexpr std::string_view kName = "PREPARE_REGISTER";
  uint64_t transaction = 0;
  RegistryKind registry = RegistryKind::kDispatcher;
  CallableKind kind = CallableKind::kNativeImport;
  base::Sha256 digest{};
  uint32_t payload_version = kPayloadVersion;
  std::vector<std::byte> payload;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.number("transaction", self.transaction);
    io.choice("registry", self.registry);
    io.choice("kind", self.kind);
    io.raw("digest", self.digest);
    io.number("payload_version", self.payload_version);
    io.blob("payload", self.payload, kRegisterBytesMax);
  }
  // DISPATCHER takes imports only, INNER also CHIP_CALLABLE.
  Result<void> check() const;
};

// Of COMMIT_REGISTER and of ABORT_REGISTER.
struct EndRegister {
  static constexpr std::string_view kName = "COMMIT_REGISTER, ABORT_REGISTER";
  uint64_t transaction = 0;
  RegistryKind registry = RegistryKind::kDispatcher;
  base::Sha256 digest{};

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.number("transaction", self.transaction);
    io.choice("registry", self.registry);
    io.raw("digest", self.digest);
  }
};

struct Unregister {
  static constexpr std::string_view kName = "UNREGISTER";
  RegistryKind registry = RegistryKind::kDispatcher;
  base::Sha256 digest{};

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.choice("registry", self.registry);
    io.raw("digest", self.digest);
  }
};

struct AllocBuffer {
  static constexpr std::string_view kName = "ALLOC_BUFFER";
  uint64_t nbytes = 0;
  Place place = Place::kHost;
  int32_t chip = -1;  // of place CHIP
  uint32_t flags = 0;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.number("nbytes", self.nbytes);
    io.choice("place", self.place);
    io.number("chip", self.chip);
    io.number("flags", self.flags);
  }
  Result<void> check() const;
};

// The body of FREE_BUFFER, and the result of ALLOC_BUFFER.
struct BufferName {
  static constexpr std::string_view kName = "FREE_BUFFER";
  Uid uid{};
  uint64_t generation = 0;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.uid("uid", self.uid);
    io.number("generation", self.generation);
  }
};

// A part of a buffer, and what may be done with it.
struct Span {
  static constexpr std::string_view kName = "span";
  Uid uid{};
  uint64_t generation = 0;
  uint64_t offset = 0;
  uint64_t nbytes = 0;
  uint32_t access = kAccessRead;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.uid("uid", self.uid);
    io.number("generation", self.generation);
    io.number("offset", self.offset);
    io.number("nbytes", self.nbytes);
    io.number("access", self.access);
  }
  Result<void> check(std::string_view of) const;
};

struct ExportBuffer {
  static constexpr std::string_view kName = "EXPORT_BUFFER";
  Span span;
  std::string importer;  // its path

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.nested("span", self.span);
    io.text("importer", self.importer, kPathBytesMax);
  }
  Result<void> check() const { return span.check(kName); }
};

// How to reach an export: the result of EXPORT_BUFFER, handed to the importer.
struct Export {
  static constexpr std::string_view kName = "EXPORT_BUFFER's result";
  uint64_t export_id = 0;
  Token token{};
  std::vector<std::string> endpoints;  // "host:port"
  std::vector<std::byte> descriptor;   // of a transport, opaque

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.number("export_id", self.export_id);
    io.raw("token", self.token);
    io.list("endpoints", self.endpoints, kEndpointsMax);
    io.blob("descriptor", self.descriptor, kExportBytesMax);
  }
};

struct ImportBuffer {
  static constexpr std::string_view kName = "IMPORT_BUFFER";
  Span span;
  uint64_t owner_session = 0;
  std::string owner;  // its path
  Export exported;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.nested("span", self.span);
    io.number("owner_session", self.owner_session);
    io.text("owner", self.owner, kPathBytesMax);
    io.nested("export", self.exported);
  }
  Result<void> check() const { return span.check(kName); }
};

struct Import {
  static constexpr std::string_view kName = "IMPORT_BUFFER's result";
  uint64_t import_id = 0;
  Path path = Path::kSocket;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.number("import_id", self.import_id);
    io.choice("path", self.path);
  }
};

struct ReleaseImport {
  static constexpr std::string_view kName = "RELEASE_IMPORT";
  BufferName buffer;
  uint64_t import_id = 0;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.nested("buffer", self.buffer);
    io.number("import_id", self.import_id);
  }
};

}  // namespace strata::wire
