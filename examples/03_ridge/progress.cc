#include "progress.h"

#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <utility>

namespace ridge {
namespace {

constexpr uint32_t kRedrawMs = 50;
constexpr std::chrono::seconds kBetweenLines(1);
constexpr uint64_t kBarWidth = 40;
constexpr char kClearLine[] = "\r\x1b[K";

}  // namespace

Progress::Progress(std::string program, std::string step)
    : program_(std::move(program)),
      step_(std::move(step)),
      terminal_(isatty(STDERR_FILENO) != 0),
      next_line_(std::chrono::steady_clock::now() + kBetweenLines) {}

Progress::~Progress() {
  if (bar_shown_) std::fputs(kClearLine, stderr);
}

strata::Result<void> Progress::wait(strata::RunHandle& run) {
  for (;;) {
    strata::Result<void> outcome = run.wait_for(kRedrawMs);
    const bool done = run.done();
    const bool waits_on = !outcome && outcome.error().code() == strata::Code::kDeadline && !done;
    show(run.progress(), !waits_on);
    // It may have ended between the timeout and the question: then wait() has the real outcome.
    if (!waits_on) return done ? run.wait() : std::move(outcome);
  }
}

void Progress::show(const strata::RunProgress& progress, bool last) {
  if (terminal_) {
    const uint64_t all = std::max<uint64_t>(progress.submitted, 1);
    const auto filled = static_cast<size_t>(progress.terminal() * kBarWidth / all);
    std::string bar(filled, '#');
    bar.resize(kBarWidth, '.');
    std::fprintf(stderr, "%s%-8s [%s] %" PRIu64 "/%" PRIu64, kClearLine, step_.c_str(), bar.c_str(),
                 progress.terminal(), progress.submitted);
    bar_shown_ = true;
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (!last && now < next_line_) return;
  next_line_ = now + kBetweenLines;
  std::fprintf(stderr, "%s: %s: %" PRIu64 " of %" PRIu64 " tasks\n", program_.c_str(),
               step_.c_str(), progress.terminal(), progress.submitted);
}

}  // namespace ridge
