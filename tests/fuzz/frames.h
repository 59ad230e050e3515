// Preamble and frame header as lists of fields, so that the mutator of messages is theirs too, and
// the checksums of a frame.
#pragma once

#include <array>
#include <cstdint>

#include "tests/fuzz/mutator.h"
#include "wire/frame.h"

namespace strata::fuzz {

struct PreambleBytes {
  std::array<std::byte, 4> magic{};
  uint16_t version = 1;
  uint16_t lane = 1;
  uint64_t session_id = 0;
  wire::Token token{};
  uint64_t reserved_a = 0;
  uint64_t reserved_b = 0;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.raw("magic", self.magic);
    io.number("version", self.version);
    io.number("lane", self.lane);
    io.number("session_id", self.session_id);
    io.raw("token", self.token);
    io.number("reserved", self.reserved_a);
    io.number("reserved", self.reserved_b);
  }
};

struct HeaderBytes {
  std::array<std::byte, 4> magic = {std::byte{'S'}, std::byte{'T'}, std::byte{'R'}, std::byte{'A'}};
  uint16_t version = 1;
  uint16_t type = 1;
  uint64_t session_id = 0;
  int32_t worker_id = 0;
  uint32_t flags = 0;
  uint64_t sequence = 0;
  uint32_t payload_bytes = 0;
  uint32_t payload_crc = 0;
  uint32_t header_crc = 0;
  uint32_t reserved = 0;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.raw("magic", self.magic);
    io.number("version", self.version);
    io.number("type", self.type);
    io.number("session_id", self.session_id);
    io.number("worker_id", self.worker_id);
    io.number("flags", self.flags);
    io.number("sequence", self.sequence);
    io.number("payload_bytes", self.payload_bytes);
    io.number("payload_crc", self.payload_crc);
    io.number("header_crc", self.header_crc);
    io.number("reserved", self.reserved);
  }
};

HeaderBytes load_header(std::span<const std::byte> bytes);
Bytes bytes_of(const HeaderBytes& header);
// Makes the header's own checksum right, over 48 bytes.
void mend_header(std::span<std::byte> header);

}  // namespace strata::fuzz
