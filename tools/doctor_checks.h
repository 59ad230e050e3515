// The judgements of the doctor, one function for each check; doctor.cc lists them. Pure but for the
// probes that they ask. One thread.
#pragma once

#include "tools/doctor.h"

namespace strata::tools {

// Tried: what must work.
Finding check_memory_files(const Probes& probes);
Finding check_pidfd(const Probes& probes);
Finding check_system_calls(const Probes& probes);
Finding check_fork(const Probes& probes);
Finding check_fork_server(const Probes& probes);
Finding check_worker(const Probes& probes);
Finding check_heap(const Probes& probes);
Finding check_wakeups(const Probes& probes);
Finding check_noise(const Probes& probes);
Finding check_clock(const Probes& probes);
Finding check_leftovers(const Probes& probes);
Finding check_timeline(const Probes& probes);
Finding check_program(const Probes& probes);

// Read: how much there is of it.
Finding check_cores(const Probes& probes);
Finding check_quota(const Probes& probes);
Finding check_descriptors(const Probes& probes);
Finding check_processes(const Probes& probes);
Finding check_memory(const Probes& probes);
Finding check_huge_pages(const Probes& probes);
Finding check_shm(const Probes& probes);
Finding check_ptrace(const Probes& probes);

}  // namespace strata::tools
