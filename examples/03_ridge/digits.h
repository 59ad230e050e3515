// The loader of `digits.csv.gz`: gzip, then lines of 64 pixels (0..16) and the digit (0..9).
//
// Any thread. It never half succeeds: all lines are good, or there is one line of text that names
// the file, the line and what is wrong with it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "problem.h"

namespace ridge {

inline constexpr size_t kLineBytesMax = 512;
inline constexpr size_t kLinesMax = 20'000;  // bounds the kernel matrix to 3.2 GB

struct Digit {
  std::array<uint8_t, kPixels> pixels;
  uint8_t label;
};

tl::expected<std::vector<Digit>, std::string> load_digits(const std::string& file);

}  // namespace ridge
