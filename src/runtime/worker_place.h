// WorkerPlace: where in the tree of its host a Worker stands. A value; any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "runtime/timeline.h"

namespace strata {

// Where in the tree a Worker stands.
struct WorkerPlace {
  struct Heap {
    int fd;
    std::span<std::byte> bytes;
  };
  std::string path = {};         // "L4/0"; empty for the root, which is "L4"
  std::vector<Heap> heaps = {};  // of the Workers above, the nearest first; they outlive this one
  // Of the root; null: none. It outlives this Worker.
  const runtime::Timeline* timeline = nullptr;
  std::string root_path = {};  // of a root that is not "L4"
  int output_above = -1;       // wakes who reads this process's output; -1: nobody does
};

}  // namespace strata
