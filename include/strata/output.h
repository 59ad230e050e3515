// OutputSpec: where the lines go that children write to stdout and stderr. A value; see WorkerSpec.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace strata {

enum class OutputMode : uint8_t {
  // Whole lines come to the stdout and stderr of the topmost Worker's process, each with the path
  // and pid of its child: "[L4/1/0 pid 4711] text".
  kForward = 1,
  // Children write to the stdout and stderr that they inherit: no prefix, and no last lines in
  // errors.
  kInherit = 2,
  // Nothing is shown. Errors have the last lines of their tasks all the same.
  kDiscard = 3,
};

// One line of a child; the views hold during the call.
struct OutputLine {
  std::string_view path;  // of the child, "L4/1/0"
  int pid = 0;
  bool is_stderr = false;
  std::string_view text;  // without the newline
};

struct OutputSpec {
  OutputMode mode = OutputMode::kForward;
  // Of one child; what is beyond is dropped, counted, and told. 0: no limit.
  uint32_t lines_per_second = 10'000;
  // Takes the lines instead of the program's stdout and stderr. Called on a thread of Strata's, one
  // line at a time; it may not close the Worker.
  std::function<void(const OutputLine&)> on_line = {};
};

}  // namespace strata
