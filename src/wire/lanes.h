// The payloads of the health lane, and of the data and peer lanes. Values; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "wire/controls.h"

namespace strata::wire {

inline constexpr uint32_t kAckTextBytesMax = 1024;
inline constexpr uint32_t kChunkBytes = 256 << 10;  // of a transfer, the last one may be shorter

// ---- health

struct Health {
  static constexpr std::string_view kName = "HEALTH";
  int64_t sent_ns = 0;     // of the sender's CLOCK_BOOTTIME
  int64_t echo_ns = 0;     // the newest sent_ns that it has had from the other side; 0: none
  uint64_t executing = 0;  // sequence of the TASK that runs; 0: none
  uint64_t tasks_done = 0;
  uint32_t queued = 0;
  uint64_t rss_bytes = 0;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.number("sent_ns", self.sent_ns);
    io.number("echo_ns", self.echo_ns);
    io.number("executing", self.executing);
    io.number("tasks_done", self.tasks_done);
    io.number("queued", self.queued);
    io.number("rss_bytes", self.rss_bytes);
  }
};

// The TASKs from `first` to `last`, by sequence.
struct Cancel {
  static constexpr std::string_view kName = "CANCEL";
  uint64_t first = 0;
  uint64_t last = 0;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.number("first", self.first);
    io.number("last", self.last);
  }
  Result<void> check() const;
};

struct Abort {
  static constexpr std::string_view kName = "ABORT";
  uint32_t code = 0;
  std::string text;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.number("code", self.code);
    io.text("text", self.text, kTextBytesMax);
  }
  Result<void> check() const;
};

// A session that is lost: nothing of it may touch the owner's memory from here on.
struct Revoke {
  static constexpr std::string_view kName = "REVOKE";
  uint64_t session_id = 0;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.number("session_id", self.session_id);
  }
};

struct RevokeAck {
  static constexpr std::string_view kName = "REVOKE_ACK";
  uint64_t session_id = 0;
  uint32_t connections_closed = 0;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.number("session_id", self.session_id);
    io.number("connections_closed", self.connections_closed);
  }
};

struct SetLog {
  static constexpr std::string_view kName = "SET_LOG";
  uint32_t level = 2;  // a LogLevel

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.number("level", self.level);
  }
  Result<void> check() const;
};

struct Log {
  static constexpr std::string_view kName = "LOG";
  LogStream stream = LogStream::kLog;
  LogLevel level = LogLevel::kInfo;
  uint64_t sequence = 0;  // of the TASK that wrote it; 0: none
  uint32_t dropped = 0;   // lines before this one
  std::string text;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.choice8("stream", self.stream);
    io.choice8("level", self.level);
    io.number("sequence", self.sequence);
    io.number("dropped", self.dropped);
    io.text("text", self.text, kTextBytesMax);
  }
};

// ---- data and peer

struct PeerHello {
  static constexpr std::string_view kName = "PEER_HELLO";
  Token token{};            // of any live export of the owner to this importer
  uint64_t session_id = 0;  // of the importer

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.raw("token", self.token);
    io.number("session_id", self.session_id);
  }
};

// READ; and WRITE, which DATA frames follow.
struct TransferRequest {
  static constexpr std::string_view kName = "READ, WRITE";
  Uid uid{};
  uint64_t generation = 0;
  uint64_t export_id = 0;  // 0 on the parent's data lane
  uint64_t offset = 0;
  uint64_t nbytes = 0;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.uid("uid", self.uid);
    io.number("generation", self.generation);
    io.number("export_id", self.export_id);
    io.number("offset", self.offset);
    io.number("nbytes", self.nbytes);
  }
  Result<void> check() const;
};

// The bytes stand in what was decoded and hold as long as that.
struct Chunk {
  static constexpr std::string_view kName = "DATA";
  uint64_t offset = 0;  // from the transfer's first byte
  std::span<const std::byte> bytes;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.number("offset", self.offset);
    io.rest("bytes", self.bytes);
  }
  Result<void> check() const;
};

struct Ack {
  static constexpr std::string_view kName = "ACK";
  uint32_t code = 0;
  std::string text;
  uint64_t bytes_done = 0;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.number("code", self.code);
    io.text("text", self.text, kAckTextBytesMax);
    io.number("bytes_done", self.bytes_done);
  }
  Result<void> check() const;
};

}  // namespace strata::wire
