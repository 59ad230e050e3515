// Which cores this thread may run on, and how many of them are worth counting on. Any thread; the
// answers are the moment's.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "os/machine.h"
#include "strata/result.h"

namespace strata::os {

// Numbers that a core can have; the kernel's own bound is lower.
inline constexpr int kCoresMax = 1 << 16;

// The affinity mask of this thread, ascending; empty where the kernel does not tell.
std::vector<int> cores_allowed();
// Only these from now on, for this thread and what it starts. kSystem where the kernel refuses.
Result<void> bind_to_cores(std::span<const int> cores);
// "0-3,8".
std::string cores_text(std::span<const int> cores);

// The pure half of usable_cores: what a quota of so many cores' time leaves of a mask. At least 1.
int usable_cores(int in_mask, std::optional<double> quota);
// Cores of the mask, no more than the control group's quota, rounded up, lets run at a time.
int usable_cores(const SystemFiles& files = SystemFiles());

}  // namespace strata::os
