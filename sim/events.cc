#include "sim/events.h"

#include <fmt/format.h>

#include <cstdio>

#include "sim/strided.h"

namespace strata::sim {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(EventKind::kCount)> kNames = {
    "run-open",   "run-seal", "run-cancel",   "run-waited",   "submit",       "refused",
    "task-start", "task-end", "buffer-new",   "buffer-drop",  "clear-error",  "register",
    "unregister", "control",  "reply",        "worker-start", "worker-death", "worker-lost",
    "kill",       "pause",    "parent-sleep", "parent-wake",  "engine-sleep", "engine-wake",
    "park",       "unpark",   "child-sleep",  "child-wake",   "signal",       "wake",
    "watch",      "punch",    "stall",        "liveness",
};

}  // namespace

std::string_view name_of(EventKind kind) {
  return kNames[static_cast<size_t>(kind)];
}

void EventLog::add(base::Instant at, std::string_view who, EventKind kind, uint64_t a, uint64_t b) {
  ++total_;
  ++counts_[static_cast<size_t>(kind)];
  hash_ = mix(mix(hash_, static_cast<uint64_t>(at.ns) << 8 | static_cast<uint64_t>(kind)),
              a * 0x10001 + b);
  if (kept_.size() == kKept) kept_.pop_front();
  kept_.push_back({at.ns, std::string(who), kind, a, b});
  if (print_) std::fprintf(stderr, "%s\n", line(kept_.back()).c_str());
}

std::string EventLog::line(const Event& event) {
  return fmt::format("{:>14} ns  {:<12} {:<13} {:>10} {:>10}", event.ns, event.who,
                     name_of(event.kind), event.a, event.b);
}

std::string EventLog::last() const {
  std::string out =
      fmt::format("{:>14}     {:<12} {:<13} {:>10} {:>10}\n", "time", "who", "what", "a", "b");
  for (const Event& event : kept_) out += line(event) + "\n";
  return out;
}

}  // namespace strata::sim
