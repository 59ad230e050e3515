// The targets of the 48 bytes that open a connection and of those before each payload.
#include "tests/fuzz/frames.h"

#include <cstring>

#include "base/crc32c.h"
#include "tests/fuzz/oracle.h"
#include "tests/wire/messages.h"

namespace strata::fuzz {

HeaderBytes load_header(std::span<const std::byte> bytes) {
  HeaderBytes out;
  Loader loader(bytes);
  HeaderBytes::fields(loader, out);
  return out;
}

Bytes bytes_of(const HeaderBytes& header) {
  Bytes out;
  Changes none(0);
  Mutator writer(&none, Mutator::kNone, &out);
  HeaderBytes::fields(writer, header);
  return out;
}

void mend_header(std::span<std::byte> header) {
  const uint32_t crc = base::crc32c(header.first(40));
  std::memcpy(header.data() + 40, &crc, sizeof crc);
}

namespace {

constexpr size_t kBytes = wire::kHeaderBytes;
static_assert(wire::kPreambleBytes == kBytes);

// Both decoders are given exactly 48 bytes by whoever reads them.
std::array<std::byte, kBytes> fixed(std::span<const std::byte> input) {
  std::array<std::byte, kBytes> out{};
  std::copy_n(input.begin(), std::min(input.size(), kBytes), out.begin());
  return out;
}

void test_preamble(std::span<const std::byte> input) {
  const auto bytes = fixed(input);
  count_allocations();
  const Result<wire::Preamble> got = wire::decode_preamble(bytes);
  check_allocations(kBytes);
  if (!got.ok()) return check_error(got.error());
  check_same(bytes, wire::encode_preamble(*got));
}

void test_header(std::span<const std::byte> input) {
  const auto bytes = fixed(input);
  count_allocations();
  const Result<wire::FrameHeader> got = wire::decode_header(bytes);
  check_allocations(kBytes);
  if (!got.ok()) return check_error(got.error());
  HeaderBytes again;
  again.type = static_cast<uint16_t>(got->type);
  again.session_id = got->session_id;
  again.worker_id = got->worker_id;
  again.flags = got->flags;
  again.sequence = got->sequence;
  again.payload_bytes = got->payload_bytes;
  again.payload_crc = got->payload_crc;
  Bytes written = bytes_of(again);
  mend_header(written);
  check_same(bytes, written);
}

size_t mutate_header(uint8_t* input, size_t size, size_t size_max, uint64_t seed) {
  const size_t n = mutate_payload<HeaderBytes>(input, size, size_max, seed);
  if (n >= kBytes && seed % 8 != 0) {
    mend_header(std::as_writable_bytes(std::span(input, kBytes)));
  }
  return n;
}

std::vector<Bytes> preamble_seeds() {
  const auto command =
      wire::encode_preamble({wire::Lane::kCommand, 77, wire::sample::counted<16>(1)});
  const auto bootstrap = wire::encode_preamble({wire::Lane::kBootstrap, 0, {}});
  return {Bytes(command.begin(), command.end()), Bytes(bootstrap.begin(), bootstrap.end())};
}

std::vector<Bytes> header_seeds() {
  Bytes task, data;
  const Bytes bytes = wire::sample::bytes("bytes");
  wire::append_frame({wire::FrameType::kTask, 77, 3, 0, 5, 0, 0}, wire::sample::task(), &task)
      .value();
  wire::append_frame({wire::FrameType::kData, 77, -1, 0, wire::kTransferBit, 0, 0},
                     wire::Chunk{0, bytes}, &data, false)
      .value();
  task.resize(kBytes);
  data.resize(kBytes);
  return {task, data};
}

}  // namespace

STRATA_FUZZ_TARGET(preamble, test_preamble, mutate_payload<PreambleBytes>, preamble_seeds);
STRATA_FUZZ_TARGET(frame_header, test_header, mutate_header, header_seeds);

}  // namespace strata::fuzz
