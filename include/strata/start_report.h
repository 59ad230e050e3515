// StartReport: how the children of a Worker came to be. A value; see Worker::start_report.
#pragma once

#include <string>

#include "strata/worker_spec.h"

namespace strata {

struct StartReport {
  // kInline, kFork or kExec; before init() what WorkerSpec::start says.
  StartMethod method = StartMethod::kAuto;
  std::string reason;           // in words: why that one
  int server_pid = 0;           // of the process that makes the children; 0: none
  std::string program = {};     // kExec: the path of the child server
  bool local_functions = true;  // whether LocalFunction can be registered
};

}  // namespace strata
