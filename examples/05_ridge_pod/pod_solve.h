// solve: the whole work of ridge_pod, as ridge::solve is that of ridge. One thread, and with
// `start` fork the only one of its process.
#pragma once

#include <cstdio>

#include "account.h"
#include "pod_options.h"

namespace ridge_pod {

// Tells what it does on `out` while it goes on, or nothing where that is null, and progress on
// stderr. The error is the caller's to print.
ridge::Report solve(const Options& options, std::FILE* out);

}  // namespace ridge_pod
