// Writes a timeline as Chrome trace-event JSON, which Perfetto and chrome://tracing open and any
// JSON parser reads. docs/timeline.md says what stands in it.
//
// Pure: it writes to the stream that it is given. One thread.
#pragma once

#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "trace/report.h"

namespace strata::trace {

// Facts about the timeline as a whole, for the file's "otherData".
using Facts = std::vector<std::pair<std::string, std::string>>;

// Any bytes are allowed in names: what is not UTF-8 is shown as U+FFFD. The stream's own state
// tells whether the write succeeded.
void write_perfetto_json(Report& report, const Facts& facts, std::ostream& out);

}  // namespace strata::trace
