// solve: the whole work of ridge, from the digits to the comparison with the reference. Knows no
// command line. One thread, and with `start` fork the only one of its process.
#pragma once

#include <cstdio>

#include "account.h"
#include "options.h"

namespace ridge {

// Tells what it does on `out` while it goes on, or nothing where that is null, and progress on
// stderr. The error is the caller's to print.
Report solve(const Options& options, std::FILE* out);

}  // namespace ridge
