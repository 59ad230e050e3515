// Preamble and frame header: the 48 bytes that open a connection, and those before each payload.
// Both layouts are frozen for ever. Not a protocol: which frame may come when is session's.
//
// Splitter cuts a stream into frames. Pure; each object is one thread's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "strata/result.h"
#include "wire/bootstrap.h"

namespace strata::wire {

inline constexpr size_t kPreambleBytes = 48;
inline constexpr size_t kHeaderBytes = 48;
inline constexpr uint32_t kFlagNoCrc = 1;                    // DATA only
inline constexpr uint64_t kTransferBit = uint64_t{1} << 63;  // in a transfer's sequence

// In clear, first on every connection. It routes, it does not authenticate.
struct Preamble {
  Lane lane = Lane::kBootstrap;
  uint64_t session_id = 0;  // 0 on BOOTSTRAP, as is the token
  Token token{};
};

std::array<std::byte, kPreambleBytes> encode_preamble(const Preamble& preamble);
// kAbiMismatch for another version, with both in the text; kCorrupt for anything else.
Result<Preamble> decode_preamble(std::span<const std::byte, kPreambleBytes> bytes);

struct FrameHeader {
  FrameType type = FrameType::kHello;
  uint64_t session_id = 0;
  int32_t worker_id = -1;
  uint32_t flags = 0;
  uint64_t sequence = 0;
  uint32_t payload_bytes = 0;
  uint32_t payload_crc = 0;
};

// kAbiMismatch, kCorrupt; kResourceExhausted where the payload is over `payload_bytes_max`.
Result<FrameHeader> decode_header(std::span<const std::byte, kHeaderBytes> bytes,
                                  uint32_t payload_bytes_max = kPayloadBytesMax);

// Fills in the header at `begin` of `out`, whose payload stands behind it.
Result<void> finish_frame(const FrameHeader& header, size_t begin, bool crc,
                          std::vector<std::byte>* out);

// Appends header and payload. Sizes, CRCs and, where `crc` is false, the flag are filled in; `crc`
// false is for DATA alone. Where it is refused `out` is as it was.
template <class T>
Result<void> append_frame(const FrameHeader& header, const T& message, std::vector<std::byte>* out,
                          bool crc = true) {
  const size_t begin = out->size();
  out->resize(begin + kHeaderBytes);
  if (Result<void> encoded = encode(message, out); !encoded) {
    out->resize(begin);
    return encoded;
  }
  return finish_frame(header, begin, crc, out);
}

struct Frame {
  FrameHeader header;
  std::span<const std::byte> payload;
};

// What a stream brings, frame by frame. It holds at most one frame that is not whole, and takes
// memory for no more than has come or the header has announced within the limit.
class Splitter {
 public:
  explicit Splitter(uint32_t payload_bytes_max = kPayloadBytesMax)
      : payload_bytes_max_(payload_bytes_max) {}

  // Where the next bytes of the stream go; not empty. Then say how many came.
  std::span<std::byte> space();
  void came(size_t n);
  // The next whole frame; its payload holds until the next call of space(). After an Error the
  // stream is of no use any more, and every further call gives it again.
  Result<std::optional<Frame>> next();
  // Bytes of a frame that is not whole yet.
  size_t pending() const { return end_ - begin_; }
  void set_payload_bytes_max(uint32_t bytes) { payload_bytes_max_ = bytes; }

 private:
  static constexpr size_t kReadBytes = 64 << 10;

  uint32_t payload_bytes_max_;
  std::vector<std::byte> bytes_;
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t wanted_ = kHeaderBytes;  // of the frame that begins at begin_
  std::optional<Error> broken_;
};

}  // namespace strata::wire
