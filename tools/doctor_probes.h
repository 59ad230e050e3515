// Probes: what the doctor asks of the machine, as functions that a test can replace. Each real one
// tries the thing itself where that is possible, and ends everything that it starts.
// One thread, and the only one of its process.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "os/machine.h"
#include "os/process.h"
#include "strata/result.h"
#include "tools/capacity.h"
#include "tools/program_libraries.h"

namespace strata::tools {

// What the kernel says without being tried.
struct Facts {
  os::MemoryState memory;
  os::CgroupLimits cgroup;
  os::KernelSettings kernel;
  ProcessCount processes;
  std::optional<uint64_t> nofile, nproc, address_space, file_size;  // soft limits
  std::optional<uint64_t> nofile_hard;
  std::optional<os::FileSystemSpace> shm;
  int cores = 1;  // of the affinity mask
};

// A system call that Strata makes, and how it ends here: 0, or its errno.
struct SystemCall {
  std::string name;
  int error = 0;
};

struct ServerTimes {
  double start_ms = 0;   // until the fork server stands
  double child_ms = 0;   // from the request until the child has ended, with the right status
  double notice_ms = 0;  // from a SIGKILL to a child until its end is told
};

struct WorkerTimes {
  double init_ms = 0;
  double task_us = 0;    // median of one empty task after the other
  double notice_ms = 0;  // from the submit of a task whose child is killed until the Error
  double close_ms = 0;
};

struct Latency {
  double median_us = 0, p99_us = 0;  // a round trip of two processes
};

// A core that only looks at the clock: what others took of it.
struct Noise {
  double lost = 0;  // share, 0 to 1
  double longest_us = 0;
};

struct ClockFacts {
  bool counter = false;  // the time-stamp counter is sound
  double read_ns = 0;    // of the monotonic clock
};

// A process that a Strata program has started.
struct StrataProcess {
  int pid = 0, parent = 0;
  std::string name, parent_name;
  char state = 'S';
  bool is_orphan = false;  // what should end it is gone
};

struct Probes {
  std::function<Facts()> facts;
  std::function<Result<void>()> sealed_memory;
  std::function<Result<void>()> pidfd;
  std::function<std::vector<SystemCall>()> system_calls;
  std::function<Result<os::ForkHazards>()> fork_hazards;
  std::function<Result<ServerTimes>()> fork_server;
  std::function<Result<WorkerTimes>()> worker;
  std::function<Result<Latency>()> futex, eventfd;
  std::function<Noise()> noise;
  std::function<ClockFacts()> clock;
  std::function<Result<void>(uint64_t bytes)> map_heap;
  std::function<std::vector<StrataProcess>()> strata_processes;
  std::string timeline_folder;  // where a timeline would be written
  bool timeline_asked = false;  // by STRATA_TIMELINE
  std::function<Result<void>(const std::string& folder)> write_file;
  std::string program;  // a program to look at, or empty
  std::function<Result<ProgramLibraries>(const std::string& path)> program_libraries;
  // For each library, the threads that loading it has started.
  std::function<Result<std::vector<int>>(const std::vector<std::string>& paths)> threads_of;
};
Probes real_probes();

// Calls `function` in a process of its own and gives what it returns; kDeadline where it does not
// answer in time (it is killed then), kEndpointFailed where it ends without an answer,
// kResourceExhausted from kAnswerBytesMax on. What the function starts in its process group ends
// with it.
inline constexpr size_t kAnswerBytesMax = 1 << 20;
Result<std::string> call_in_process(const std::function<std::string()>& function,
                                    base::Duration deadline);

}  // namespace strata::tools
