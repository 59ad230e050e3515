// What this process is: threads, cores, and whether a plain fork of it is safe. Looks, changes
// nothing. Any thread; the answer about threads is the moment's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "strata/result.h"

namespace strata::os {

// Threads of this process, this one included.
Result<int> thread_count();

// Opens /dev/null as those of 0, 1 and 2 that are closed, so that nothing that is opened later
// takes the place of stdin, stdout or stderr. False where that fails.
bool fill_closed_stdio();

// Cores that this thread may run on; at least one.
int cores_in_affinity_mask();

// Lets others run on this core; returns at once where nobody wants it.
void yield_core();

// The file that is mapped at that address, absolute; empty where there is none.
std::string mapped_path(const void* address);

// Another number in every process that is a plain fork of this one, and in its forks. What was made
// under another number belongs to another process. One load.
uint32_t fork_generation();

// What makes a fork without exec unsafe.
struct ForkHazards {
  int other_threads = 0;
  std::string python;  // the mapped interpreter's path, or empty
  std::string ucx;     // a mapped UCX transport module's path (they load when UCX initialises)
  bool any() const { return other_threads > 0 || !python.empty() || !ucx.empty(); }
  // "1 other thread; the Python interpreter /usr/bin/python3.11", or empty.
  std::string to_string() const;
};
Result<ForkHazards> fork_hazards();

// The pure half, for the text of a /proc/<pid>/maps.
bool is_python_path(std::string_view path);
bool is_ucx_module_path(std::string_view path);

}  // namespace strata::os
