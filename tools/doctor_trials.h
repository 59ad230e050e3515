// What the doctor tries: the same calls that a Worker makes, each ended again. Waits have limits of
// their own. One thread, and the only one of its process.
#pragma once

#include <string>
#include <vector>

#include "tools/doctor_probes.h"

namespace strata::tools {

Result<void> try_sealed_memory();
Result<void> try_pidfd();
std::vector<SystemCall> try_system_calls();
// Maps that much and writes its first and its last page.
Result<void> try_heap(uint64_t bytes);
// A file without a name, or where the file system has none, one that is removed at once.
Result<void> try_file(const std::string& folder);
Result<ServerTimes> try_fork_server();
Result<WorkerTimes> try_worker();
// Loads each in turn, in a process of its own, and counts its threads after each.
Result<std::vector<int>> try_loading(const std::vector<std::string>& paths);

Result<Latency> time_futex();
Result<Latency> time_eventfd();
Noise watch_noise();
ClockFacts time_clock();

std::vector<StrataProcess> find_strata_processes();

}  // namespace strata::tools
