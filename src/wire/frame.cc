#include "wire/frame.h"

#include <fmt/format.h>

#include <cstring>

#include "base/bytes.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "base/result.h"

namespace strata::wire {
namespace {

constexpr std::array<char, 4> kPreambleMagic = {'S', 'T', 'R', 'P'};
constexpr std::array<char, 4> kFrameMagic = {'S', 'T', 'R', 'A'};
constexpr size_t kCrcAt = 40;  // of the header; what is before it is covered

// 48 bytes, filled from the front.
class Fixed {
 public:
  template <class T>
  void put(const T& value) {
    STRATA_DCHECK(sizeof value <= bytes_.size() - at_);
    std::memcpy(bytes_.data() + at_, &value, sizeof value);
    at_ += sizeof value;
  }
  std::span<const std::byte> so_far() const { return std::span(bytes_).first(at_); }
  const std::array<std::byte, kHeaderBytes>& all() const {
    STRATA_CHECK(at_ == bytes_.size());
    return bytes_;
  }

 private:
  std::array<std::byte, kHeaderBytes> bytes_{};
  size_t at_ = 0;
};
static_assert(kPreambleBytes == kHeaderBytes);

Error corrupt(std::string text) {
  return Error(Code::kCorrupt, Scope::kSession, std::move(text));
}

// The two fields that both begin with.
Result<void> take_magic(base::ByteReader* in, const std::array<char, 4>& magic,
                        std::string_view what) {
  if (std::memcmp(in->get_bytes(4).data(), magic.data(), 4) != 0) {
    return corrupt(
        fmt::format("{}: its first bytes are not \"{}\": the other side does not speak "
                    "this protocol",
                    what, std::string_view(magic.data(), 4)));
  }
  if (const uint16_t version = in->get<uint16_t>(); version != kVersion) {
    return Error(Code::kAbiMismatch, Scope::kSession,
                 fmt::format("{}: protocol version {}, this side has {}: upgrade {} side", what,
                             version, kVersion, version < kVersion ? "the other" : "this"));
  }
  return {};
}

}  // namespace

std::array<std::byte, kPreambleBytes> encode_preamble(const Preamble& preamble) {
  Fixed out;
  out.put(kPreambleMagic);
  out.put(kVersion);
  out.put(static_cast<uint16_t>(preamble.lane));
  out.put(preamble.session_id);
  out.put(preamble.token);
  out.put(uint64_t{0});
  out.put(uint64_t{0});
  return out.all();
}

Result<Preamble> decode_preamble(std::span<const std::byte, kPreambleBytes> bytes) {
  base::ByteReader in(bytes);
  STRATA_TRY(take_magic(&in, kPreambleMagic, "preamble"));
  Preamble preamble;
  preamble.lane = static_cast<Lane>(in.get<uint16_t>());
  if (!is_known(preamble.lane)) {
    return corrupt(fmt::format("preamble: lane {} is none", static_cast<uint16_t>(preamble.lane)));
  }
  preamble.session_id = in.get<uint64_t>();
  const std::span<const std::byte> token = in.get_bytes(preamble.token.size());
  std::copy(token.begin(), token.end(), preamble.token.begin());
  if (in.get<uint64_t>() != 0 || in.get<uint64_t>() != 0) {
    return corrupt("preamble: a reserved field is not zero");
  }
  const bool anonymous = preamble.session_id == 0 && preamble.token == Token{};
  if (preamble.lane == Lane::kBootstrap ? !anonymous : preamble.session_id == 0) {
    return corrupt(fmt::format("preamble: session {:#x} and its token do not go with lane {}",
                               preamble.session_id, wire_name(preamble.lane)));
  }
  return preamble;
}

Result<FrameHeader> decode_header(std::span<const std::byte, kHeaderBytes> bytes,
                                  uint32_t payload_bytes_max) {
  base::ByteReader in(bytes);
  STRATA_TRY(take_magic(&in, kFrameMagic, "frame"));
  FrameHeader header;
  header.type = static_cast<FrameType>(in.get<uint16_t>());
  header.session_id = in.get<uint64_t>();
  header.worker_id = in.get<int32_t>();
  header.flags = in.get<uint32_t>();
  header.sequence = in.get<uint64_t>();
  header.payload_bytes = in.get<uint32_t>();
  header.payload_crc = in.get<uint32_t>();
  const uint32_t crc = in.get<uint32_t>();
  if (crc != base::crc32c(bytes.first(kCrcAt))) return corrupt("frame: the header's CRC is wrong");
  if (in.get<uint32_t>() != 0) return corrupt("frame: a reserved field is not zero");
  if (!is_known(header.type)) {
    return corrupt(fmt::format("frame: type {} is none", static_cast<uint16_t>(header.type)));
  }
  if ((header.flags & ~kFlagNoCrc) != 0 ||
      ((header.flags & kFlagNoCrc) != 0 && header.type != FrameType::kData)) {
    return corrupt(fmt::format("{}: flags {:#x}", wire_name(header.type), header.flags));
  }
  if ((header.flags & kFlagNoCrc) != 0 && header.payload_crc != 0) {
    return corrupt(fmt::format("{}: a CRC that is said to be none", wire_name(header.type)));
  }
  if (header.payload_bytes > payload_bytes_max) {
    return Error(Code::kResourceExhausted, Scope::kSession,
                 fmt::format("{}: a payload of {} bytes, at most {} were agreed on",
                             wire_name(header.type), header.payload_bytes, payload_bytes_max));
  }
  return header;
}

Result<void> finish_frame(const FrameHeader& header, size_t begin, bool crc,
                          std::vector<std::byte>* out) {
  STRATA_CHECK(crc || header.type == FrameType::kData);
  const std::span<const std::byte> payload = std::span(*out).subspan(begin + kHeaderBytes);
  if (payload.size() > kPayloadBytesMax) {
    const size_t bytes = payload.size();
    out->resize(begin);
    return Error(Code::kResourceExhausted, Scope::kCall,
                 fmt::format("{}: a payload of {} bytes, a frame holds at most {}",
                             wire_name(header.type), bytes, kPayloadBytesMax));
  }
  Fixed fixed;
  fixed.put(kFrameMagic);
  fixed.put(kVersion);
  fixed.put(static_cast<uint16_t>(header.type));
  fixed.put(header.session_id);
  fixed.put(header.worker_id);
  fixed.put(crc ? uint32_t{0} : kFlagNoCrc);
  fixed.put(header.sequence);
  fixed.put(static_cast<uint32_t>(payload.size()));
  fixed.put(crc ? base::crc32c(payload) : uint32_t{0});
  fixed.put(base::crc32c(fixed.so_far()));
  fixed.put(uint32_t{0});
  std::memcpy(out->data() + begin, fixed.all().data(), kHeaderBytes);
  return {};
}

std::span<std::byte> Splitter::space() {
  if (begin_ == end_) begin_ = end_ = 0;
  const size_t room = std::max(wanted_ - std::min(wanted_, end_ - begin_), kReadBytes);
  if (bytes_.size() - end_ < room && begin_ > 0) {
    std::memmove(bytes_.data(), bytes_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (bytes_.size() - end_ < room) bytes_.resize(end_ + room);
  return std::span(bytes_).subspan(end_);
}

void Splitter::came(size_t n) {
  STRATA_CHECK(n <= bytes_.size() - end_);
  end_ += n;
}

Result<std::optional<Frame>> Splitter::next() {
  if (broken_) return *broken_;
  const std::span<const std::byte> there = std::span(bytes_).subspan(begin_, end_ - begin_);
  wanted_ = kHeaderBytes;
  if (there.size() < kHeaderBytes) return std::optional<Frame>{};
  Result<FrameHeader> header = decode_header(there.first<kHeaderBytes>(), payload_bytes_max_);
  if (!header) {
    broken_ = header.error();
    return *broken_;
  }
  wanted_ = kHeaderBytes + size_t{header->payload_bytes};
  if (there.size() < wanted_) return std::optional<Frame>{};
  const std::span<const std::byte> payload = there.subspan(kHeaderBytes, header->payload_bytes);
  if ((header->flags & kFlagNoCrc) == 0 && base::crc32c(payload) != header->payload_crc) {
    broken_ = corrupt(fmt::format("{}: the payload's CRC is wrong", wire_name(header->type)));
    return *broken_;
  }
  begin_ += wanted_;
  wanted_ = kHeaderBytes;
  return std::optional<Frame>(Frame{*header, payload});
}

}  // namespace strata::wire
