// Writes timelines as Chrome trace-event JSON, which Perfetto and chrome://tracing open.
// Pure: it writes to the stream that it is given. Any thread.
#pragma once

#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "trace/trace.h"

namespace strata::trace {

// The events of one process on one clock. A name or lane beyond its table is shown as its number.
struct ProcessTimeline {
  int64_t pid = 0;
  std::string name;
  std::vector<std::string> lanes;
  std::vector<std::string> names;
  std::vector<Event> events;
  uint64_t dropped = 0;  // shown in the process's labels where not 0
};

// Any bytes are allowed in names: what is not UTF-8 is shown as U+FFFD. The stream's own state
// tells whether the write succeeded.
void write_perfetto_json(std::span<const ProcessTimeline> processes, std::ostream& out);

}  // namespace strata::trace
