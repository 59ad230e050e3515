// last_lines: the end of what a task wrote, for the text of its Error. Pure; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace strata::runtime {

inline constexpr size_t kLastLinesMax = 10;         // of both streams together
inline constexpr size_t kLastLinesBytesMax = 2048;  // of their texts
// Of the end of a stream that is looked at for them: lines of children stand between.
inline constexpr size_t kLastLinesLookBytes = 16 * 1024;

// Begins a line that came from a child of the writer, and ends its "path pid"; see output_lines.h.
inline constexpr char kRelayed = '\x1e';

// "\nlast lines of its stdout:\n  a\n  b\nlast lines of its stderr:\n  c"; empty where there is
// none. Of relayed lines none is taken: they belong to other tasks. What is no UTF-8 becomes '?'.
std::string last_lines(std::string_view out, std::string_view err);

}  // namespace strata::runtime
