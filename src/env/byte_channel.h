// ByteChannel: a stream of bytes to one peer that never blocks: a socket, TLS over one, either with
// faults put in. Not a protocol: it knows no frame, and no deadline; who drives it does.
//
// The driver watches descriptor() for reading, and for writing while wants_write(). After an event
// it reads until read() gives 0: bytes may wait inside while the descriptor is not readable. An
// Error is final: every further call gives it again, until close(). One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "strata/result.h"

namespace strata::env {

class ByteChannel {
 public:
  // In this order, none is left out for good: deadlines are counted from the change.
  enum class Phase : uint8_t {
    kConnecting,  // no connection, or not all that goes before the handshake is out
    kSilent,      // the handshake waits for the peer's first byte
    kHandshake,   // it has come
    kOpen,        // bytes may be written; the peer has shown its key, where there is one
    kHeard,       // the first byte of the peer's own has been read
    kClosed,      // close(), or an Error
  };

  ByteChannel() = default;
  ByteChannel(const ByteChannel&) = delete;
  ByteChannel& operator=(const ByteChannel&) = delete;
  virtual ~ByteChannel() = default;

  // Goes on with connecting and the handshake as far as it can now; reads nothing of the peer's
  // own. read() and write() do it too.
  virtual Result<Phase> advance() = 0;
  // How many bytes came; 0: none now. kEndpointFailed where the peer has closed or was lost.
  virtual Result<size_t> read(std::span<std::byte> out) = 0;
  // How many bytes were taken, from the front; fewer than given: wait until it can write again, and
  // begin with the rest, all of it.
  virtual Result<size_t> write(std::span<const std::byte> bytes) = 0;
  // Nothing more is written: the peer reads what was, then the end. Reading goes on.
  virtual void end_writes() = 0;
  // Gives the descriptor back. What the peer has not read yet may be lost.
  virtual void close() = 0;

  virtual Phase phase() const = 0;
  virtual bool wants_read() const = 0;
  // The last write was not taken whole, or connecting and the handshake wait for it.
  virtual bool wants_write() const = 0;
  virtual int descriptor() const = 0;  // -1 once it is closed
  // "host:port", for texts.
  virtual const std::string& peer() const = 0;
};

}  // namespace strata::env
