// RemoteWorkerSpec: a Worker on another host, behind a `strata serve` there. A value; see
// Worker::add_remote_worker.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "strata/timeouts.h"
#include "strata/worker_spec.h"

namespace strata {

// Of one session, beside Timeouts, which are the remote Worker's own.
struct SessionTimeouts {
  uint32_t start_ms = 30'000;     // connecting again and again until it is ready
  uint32_t handshake_ms = 5'000;  // of TLS, from the peer's first byte
  uint32_t control_ms = 30'000;   // a registration there, from when no task stands before it
  uint32_t beat_ms = 250;         // between two beats
  uint32_t verdict_ms = 5'000;    // without a beat: the Worker is lost
  uint32_t hold_ms = 3'000;       // without a beat it starts no task
  uint32_t orphan_ms = 30'000;    // without a beat it ends itself
  uint32_t close_ms = 10'000;     // from the order to end until its host is told to kill it
};

struct RemoteWorkerSpec {
  std::string endpoint;  // "host:port", "10.0.0.7:7070", "[fe80::1]:7070" of a `strata serve`
  int level = 3;         // below that of the Worker it is added to
  std::string platform = "cpu";
  std::string runtime = "tensormap_and_ringbuffer";  // this engine, the only one
  std::vector<int> device_ids;                       // a chip for each
  int num_sub_workers = 0;
  // "tcp", or "sim", another name of it. What needs hardware that this build does not drive (roce,
  // hccs, ub) is refused by name.
  std::string transport = "tcp";
  // A file of `strata key new`, mode 0600, the same as the daemon's. Empty: no TLS, and so only a
  // daemon on this host's loopback.
  std::string key_file;
  std::map<std::string, std::string> env;  // names that the daemon allows
  std::string cwd;                         // relative to the daemon's folder; empty: it
  Limits limits = {};
  Timeouts timeouts = {};
  SessionTimeouts session = {};
};

}  // namespace strata
