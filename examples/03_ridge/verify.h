// The check against `ridge_reference`: runs it as a process of its own and compares what it says.
//
// One thread; waits for that process.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <tl/expected.hpp>
#include <vector>

namespace ridge {

struct Reference {
  std::vector<double> factor;  // the lower triangle by rows, nothing between the rows
  std::vector<uint8_t> predictions;
};

// Runs `program data`, with --augment where that is so. The Error is a line that says what went
// wrong.
tl::expected<Reference, std::string> run_reference(const std::string& program,
                                                   const std::string& data, bool augment,
                                                   size_t learned, size_t predicted);

// max |L - Lref| / max |Lref| over the lower triangle; infinity where one is not a number.
// `factor` is learned x learned by rows.
double factor_error(std::span<const double> factor, size_t learned, const Reference& reference);

}  // namespace ridge
