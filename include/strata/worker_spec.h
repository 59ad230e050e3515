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
  // A child server, started by init(): the program itself where its main begins with child_entry()
  // (strata/child_entry.h), else `strata child-server`, which has no LocalFunction.
  kExec = 3,
  // kFork where that is safe (or allow_threads is set), else kExec; Worker::start_report() says
  // which and why.
  kAuto = 4,
};

// What a Worker does when one of its local children (SUB, chip, child Worker) ends unasked.
enum class Restart : uint8_t {
  kNever = 1,      // it stays lost; its work goes to the others
  kOnFailure = 2,  // another process takes its worker id, up to WorkerSpec::restart_limit times
};

// Which pages the shared heap is made of.
enum class HugePages : uint8_t {
  kNone = 1,
  // Asked of the kernel for each mapping; where it gives shared memory none
  // (/sys/kernel/mm/transparent_hugepage/shmem_enabled), that is told, and ordinary pages serve.
  kTransparent = 2,
  // Of the host's pool (vm.nr_hugepages), taken with each segment; none left is an Error.
  kExplicit = 3,
};

// Each is reached as a clean Error that names the field.
struct Limits {
  uint32_t slots = 16'384;            // tasks that are submitted and not yet terminal
  uint32_t depth = 16;                // tasks in one child's ring, at most 62
  uint32_t buffers = 65'536;          // live buffers and temporaries
  uint32_t callables = 4'096;         // registered callables
  uint64_t heap_bytes = 64ull << 30;  // shared host memory of all buffers
  HugePages huge_pages = HugePages::kNone;
  // Memory of buffers is there when they are made, so that its lack is an Error then, and not the
  // end of whoever touches it first. Costs that first touch at once, on the creator's NUMA node.
  bool reserve_memory = false;
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
  // Cores, by the kernel's numbers, that a child Worker runs on with all that is below it; of the
  // topmost Worker: its children, and not the program. Empty: all that the parent may use.
  std::vector<int> cpus = {};
  std::vector<std::vector<int>> sub_cpus = {};   // one list for each SUB child, or none at all
  std::vector<std::vector<int>> chip_cpus = {};  // one list for each chip, or none at all
  StartMethod start = StartMethod::kAuto;
  bool allow_threads = false;  // fork although other threads exist; see the user guide
  // With kExec and kAuto: the program that serves, by its path. Empty: the program itself, the
  // environment's STRATA_CHILD_SERVER, or `strata` beside program or library.
  std::string child_server = {};
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
