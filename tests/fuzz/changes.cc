#include "tests/fuzz/changes.h"

#include <algorithm>
#include <array>

namespace strata::fuzz {

uint64_t Changes::number(uint64_t was, unsigned bits) {
  const uint64_t all = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  switch (prng_.below(9)) {
    case 0:
      return prng_.below(4);
    case 1:
      return all - prng_.below(3);
    case 2:
      return (all >> 1) + prng_.below(3) - 1;
    case 3:
      return was + prng_.below(9) - 4;
    case 4:
      return was ^ (uint64_t{1} << prng_.below(bits));
    case 5:
      return uint64_t{1} << prng_.below(bits);
    case 6:
      return prng_.below(70);
    case 7:
      if (!numbers_.empty()) return numbers_[prng_.below(numbers_.size())] + prng_.below(3) - 1;
      [[fallthrough]];
    default:
      return prng_.next() & all;
  }
}

std::string Changes::text(std::string_view was, size_t bytes_max) {
  using namespace std::string_view_literals;
  static constexpr std::array kParts = {""sv,
                                        "a"sv,
                                        "A_1"sv,
                                        ".."sv,
                                        "/"sv,
                                        "a/../b"sv,
                                        "."sv,
                                        "a.b"sv,
                                        "a..b"sv,
                                        ":"sv,
                                        " "sv,
                                        "\0"sv,
                                        "\xc3\xa9"sv,
                                        "\xe2\x82\xac"sv,
                                        "\xf0\x9f\x98\x80"sv,
                                        "\xff"sv,
                                        "\xc0\x80"sv,
                                        "\xe0\x80\x80"sv,
                                        "\xed\xa0\x80"sv,
                                        "\xf0\x80\x80\x80"sv,
                                        "\xf4\x90\x80\x80"sv,
                                        "\xe2\x82"sv,
                                        "\x7f"sv,
                                        "\n"sv,
                                        "cpu"sv,
                                        "libtile.so"sv,
                                        "%s{}"sv};
  const std::string_view part = kParts[prng_.below(kParts.size())];
  std::string out(was);
  switch (prng_.below(6)) {
    case 0:
      return std::string(part);
    case 1:
      return out.substr(0, prng_.below(out.size() + 1));
    case 2:
      return out.insert(prng_.below(out.size() + 1), part);
    case 3:
      return out + std::string(part);
    case 4:
      if (!out.empty()) out[prng_.below(out.size())] = static_cast<char>(prng_.below(256));
      return out;
    default: {
      // About the limit, where that is not too long to be worth it.
      const size_t n = std::min<size_t>(bytes_max + prng_.below(3), 1200);
      while (out.size() + 1 < n) out += out.empty() ? "a" : out.substr(0, n - out.size());
      return out;
    }
  }
}

Bytes Changes::bytes(std::span<const std::byte> was, size_t bytes_max) {
  const std::string as_text(reinterpret_cast<const char*>(was.data()), was.size());
  const std::string changed = text(as_text, bytes_max);
  const auto* const begin = reinterpret_cast<const std::byte*>(changed.data());
  return {begin, begin + changed.size()};
}

uint32_t Changes::length(uint32_t was, uint32_t most) {
  switch (prng_.below(4)) {
    case 0:
      return most + 1;
    case 1:
      return was + 1;
    case 2:
      return was - 1;
    default:
      return static_cast<uint32_t>(number(was, 32));
  }
}

std::vector<size_t> Changes::items(size_t count, size_t count_max) {
  std::vector<size_t> out;
  for (size_t i = 0; i < count; ++i) out.push_back(i);
  if (count == 0) return out;
  const size_t one = prng_.below(count);
  switch (prng_.below(4)) {
    case 0:
      out.erase(out.begin() + static_cast<ptrdiff_t>(one));
      break;
    case 1:
      out.insert(out.begin() + static_cast<ptrdiff_t>(prng_.below(count)), one);
      break;
    case 2:
      std::swap(out[one], out[prng_.below(count)]);
      break;
    default:
      out.resize(std::min<size_t>(count_max + prng_.below(2), 40), one);
      break;
  }
  return out;
}

}  // namespace strata::fuzz
