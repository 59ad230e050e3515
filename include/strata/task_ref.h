// TaskRef: names one task of a run. A value.
#pragma once

#include <cstdint>

namespace strata {

struct TaskRef {
  uint64_t run = 0;
  uint64_t task = 0;  // its number within the run, from 0 in submission order
};

}  // namespace strata
