// EventLog: what happened in one simulated run: counted, hashed and the last ones kept for print.
// One thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "base/time.h"

namespace strata::sim {

enum class EventKind : uint8_t {
  kRunOpen,
  kRunSeal,
  kRunCancel,
  kRunWaited,
  kSubmit,     // a task id, b run
  kRefused,    // a task id, b code
  kTaskStart,  // a task id, b worker
  kTaskEnd,    // a task id, b outcome
  kBufferNew,
  kBufferDrop,
  kClearError,
  kRegister,
  kUnregister,
  kControl,  // a worker, b command
  kReply,    // a worker, b code
  kWorkerStart,
  kWorkerDeath,
  kWorkerLost,
  kKill,
  kPause,
  kParentSleep,
  kParentWake,
  kEngineSleep,
  kEngineWake,
  kPark,
  kUnpark,
  kChildSleep,
  kChildWake,
  kSignal,
  kWake,
  kWatch,
  kPunch,
  kStall,
  kLiveness,
  kCount,
};
std::string_view name_of(EventKind kind);

class EventLog {
 public:
  static constexpr size_t kKept = 50;

  explicit EventLog(bool print) : print_(print) {}

  void add(base::Instant at, std::string_view who, EventKind kind, uint64_t a = 0, uint64_t b = 0);
  uint64_t total() const { return total_; }
  uint64_t count(EventKind kind) const { return counts_[static_cast<size_t>(kind)]; }
  uint64_t hash() const { return hash_; }
  // The last ones, a line each, in fixed columns.
  std::string last() const;

 private:
  struct Event {
    int64_t ns;
    std::string who;
    EventKind kind;
    uint64_t a;
    uint64_t b;
  };
  static std::string line(const Event& event);

  bool print_;
  uint64_t total_ = 0;
  uint64_t hash_ = 0;
  std::array<uint64_t, static_cast<size_t>(EventKind::kCount)> counts_{};
  std::deque<Event> kept_;
};

}  // namespace strata::sim
