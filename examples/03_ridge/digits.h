// The loader of `digits.csv.gz`: gzip, then lines of 64 pixels (0..16) and the digit (0..9); and
// which of them are learned from, which predicted.
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

// The image moved by whole pixels, right and down where positive; what comes in is zero.
Digit shifted(const Digit& digit, int right, int down);

struct Samples {
  std::vector<Digit> learned;
  std::vector<Digit> predicted;  // the images as they were come first
  size_t predicted_as_they_were = 0;

  size_t size() const { return learned.size() + predicted.size(); }
};
// With `augment` each image comes five times: as it was, and moved by one pixel to each side. All
// five are learned from, or all five are predicted.
Samples split(const std::vector<Digit>& digits, bool augment);

}  // namespace ridge
