// Where the processes of a benchmark run. For the programs of bench/ only.
#pragma once

#include <sched.h>

#include <cstdio>
#include <cstdlib>

namespace strata::bench {

inline cpu_set_t usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) {
    std::perror("sched_getaffinity");
    std::exit(1);
  }
  return cores;
}

// This thread, and what it starts.
inline void stay_on(const cpu_set_t& cores) {
  if (sched_setaffinity(0, sizeof cores, &cores) != 0) {
    std::perror("sched_setaffinity");
    std::exit(1);
  }
}

// The same on the n-th of those cores alone, or on the last where there are fewer.
inline void stay_on_core(int n) {
  const cpu_set_t all = usable_cores();
  cpu_set_t one;
  for (int core = 0; core < CPU_SETSIZE && n >= 0; ++core) {
    if (!CPU_ISSET(core, &all)) continue;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    --n;
  }
  stay_on(one);
}

}  // namespace strata::bench
