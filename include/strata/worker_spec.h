// WorkerSpec: everything a Worker is made from. A value; see Worker::create.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strata/output.h"
#include "strata/timeouts.h"

namespace strata {

// How local children come to be.
enum class StartMethod : uint8_t {
  kInline = 1,  // no processes: tasks are calls in this one, in a fixed order; for debugging, tests
  kFork = 2,    // a fork server, forked by init() while the process has one thread
};

// What a Worker does when one of its local children (SUB, chip, child Worker) ends unasked.
enum class Restart : uint8_t {
  kNever = 1,      // it stays lost; its work goes to the others
  kOnFailure = 2,  // another process takes its worker id, up to WorkerSpec::restart_limit times
};

// Each is reached as a clean Error that names the field.
struct Limits {
  uint32_t slots = 16'384;            // tasks that are submitted and not yet terminal
  uint32_t depth = 16;                // tasks in one child's ring, at most 62
  uint32_t buffers = 65'536;          // live buffers and temporaries
  uint32_t callables = 4'096;         // registered callables
  uint64_t heap_bytes = 64ull << 30;  // shared host memory of all buffers
};

// What each chip of a Worker is made from.
struct ChipSpec {
  std::string backend = "cpu";           // the only one of this build
  uint64_t memory_bytes = 256ull << 20;  // device memory of one chip, at least 4096
};

struct WorkerSpec {
  int level = 3;        // 3 host, 4 pod, 5 supernode, 6 cluster
  int sub_workers = 0;  // helper processes for plain callables, at most 1024
  int chips = 0;        // at most 1024; their worker ids are 0 to chips - 1
  ChipSpec chip = {};
  StartMethod start = StartMethod::kFork;
  bool allow_threads = false;  // fork although other threads exist; see the user guide
  std::vector<std::string> library_path = {};  // folders where NativeImport finds its libraries
  std::vector<int> inherit_fds = {};           // descriptors that the children keep
  // A file that close() writes: what every process below this Worker did, and when; Perfetto opens
  // it. Empty: the environment's STRATA_TIMELINE, and where that is not set none. Only the topmost
  // Worker of a process tree writes one. See docs/timeline.md.
  std::string timeline = {};
  // Of all processes below the topmost Worker, whose option alone counts.
  OutputSpec output = {};
  // What ran in a child that is replaced has failed; what had not started waits for the next one. A
  // chip starts empty: its device memory is lost. A replacement that ends before it is ready counts
  // too; after the last one the child is lost for good.
  Restart restart = Restart::kNever;
  uint32_t restart_limit = 3;  // replacements of each child
  Limits limits = {};
  Timeouts timeouts = {};
  // Workers below this one, each of a smaller level; their ids are 0, 1, ... in this order, those
  // of the SUB children come after them. Worker::add_worker appends one.
  std::vector<WorkerSpec> workers = {};
};

}  // namespace strata
