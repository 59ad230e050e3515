// SessionWorld: a parent and its remote Workers' runners, each a process with a clock of its own,
// joined by simulated streams of bytes, and the drivers of both sides of each session.
//
// Streams: delay, pieces of any size, short writes where a link is full, stall in one direction or
// both, reset at any byte, an end that comes late. Processes: kill, pause, sleep of the whole host.
// Bytes: frames of an old session put between those of this one, turned bits.
// Not here: the engine, the daemon, the bootstrap. One thread; all by one seed.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "base/prng.h"
#include "session/parent_session.h"
#include "session/runner_session.h"
#include "sim/session_options.h"
#include "sim/session_truth.h"

namespace strata::sim {

enum class SessionFault : uint32_t {
  kKill,
  kPause,
  kSleep,
  kReset,
  kStall,
  kPartition,
  kSwizzle,
  kOldFrame,
  kGarbage,
  kParentDies,
  kHang,  // a control is never answered
  kCount,
};
std::string_view name_of(SessionFault fault);

struct SessionCounts {
  uint64_t steps = 0;
  uint64_t hash = 0xcbf29ce484222325ull;
  int64_t virtual_ns = 0;
  uint32_t sessions = 0, ready = 0, drained = 0, failed = 0;
  uint32_t tasks = 0, completed = 0, skipped = 0, in_flight = 0;
  uint32_t controls = 0, controls_behind_tasks = 0, data_controls = 0, early = 0;
  uint32_t cancels = 0, lines = 0, lines_dropped = 0, verdicts = 0, deadlines = 0;
  std::array<uint32_t, static_cast<size_t>(SessionFault::kCount)> faults{};  // that fired
};

class SessionWorld {
 public:
  SessionWorld(const SessionOptions& options, bool print);
  ~SessionWorld();
  SessionWorld(const SessionWorld&) = delete;
  SessionWorld& operator=(const SessionWorld&) = delete;

  void run();
  Checks& checks() { return checks_; }
  const SessionCounts& counts() const { return counts_; }
  std::string last_events() const;

 private:
  static constexpr uint32_t kParent = 0;  // the parent's process
  enum class Kind : uint8_t {
    kLaneUp,   // a: session, b: lane, c: 0 the parent's end, 1 the runner's
    kArrive,   // a: session, b: lane, c: direction, 0 to the runner
    kTimer,    // a: session, c: side
    kPump,     // a: session, c: side
    kWorkEnd,  // a: session, b: lane
    kBuilt,    // a: session
    kScript,   // a: slot
    kOpen,     // a: slot
    kFault,
    kResume,  // a: process
  };
  struct Event {
    int64_t at;
    uint64_t tie;  // drawn, so that what is due at once comes in any order
    Kind kind;
    uint32_t a, b, c;
    uint64_t generation;
    bool operator<(const Event& o) const { return at != o.at ? at > o.at : tie > o.tie; }
  };
  struct Piece {
    int64_t at;
    std::vector<std::byte> bytes;
    bool end = false;
  };
  // One direction of a lane.
  struct Link {
    std::deque<Piece> pieces;
    uint64_t bytes = 0;  // under way
    int64_t last = 0;    // when the last piece arrives
    int64_t stalled_until = 0;
    uint64_t carried = 0;
    uint64_t reset_at = UINT64_MAX;
    bool gone = false;   // reset: nothing goes in or out
    bool ended = false;  // by the writer
    bool told = false;   // the reader has seen the end
  };
  struct Life;
  struct Slot {
    uint32_t lives = 0;
    Life* now = nullptr;
    uint64_t old_id = 0;
  };

  // ---- session_world.cc
  void push(int64_t at, Kind kind, uint32_t a = 0, uint32_t b = 0, uint32_t c = 0,
            uint64_t generation = 0);
  bool handle(const Event& event);
  uint32_t process_of(const Event& event) const;
  void note(const char* what, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0);
  int64_t around(int64_t mean) { return 1 + static_cast<int64_t>(prng_.below(2 * mean + 1)); }
  void open(uint32_t slot);
  void lane_up(Life& life, wire::Lane lane, bool runner);
  void timer(Life& life, bool runner);
  void after(Life& life, bool runner);
  void arm(Life& life, bool runner);
  void on_life_over(Life& life);
  void end_of_process(Life& life);
  bool all_over() const;
  session::Instant local(uint32_t process) const { return processes_[process].local(now_); }

  // ---- session_user.cc
  void script(uint32_t slot);
  void send_control(Life& life, wire::ControlCommand command);
  void send_task(Life& life);
  void take_work(Life& life);
  void work_end(Life& life, wire::Lane lane);
  void finish_task(Life& life);

  // ---- session_links.cc
  void pump(Life& life, bool runner, bool all);
  void write(Life& life, wire::Lane lane, uint32_t direction, std::vector<std::byte>& bytes,
             bool all);
  void arrive(Life& life, wire::Lane lane, uint32_t direction);
  void give(Life& life, wire::Lane lane, bool to_parent, std::span<const std::byte> bytes);
  void break_lane(Life& life, wire::Lane lane);
  void tell_closed(Life& life, wire::Lane lane, bool to_parent, bool reset);
  void close_all(Life& life, bool runner);

  // ---- session_nemesis.cc
  void fault();
  void fired(SessionFault fault) { ++counts_.faults[static_cast<size_t>(fault)]; }
  void kill(Life& life);
  void pause(uint32_t process, int64_t ns);
  void stall(Life& life, wire::Lane lane, uint32_t direction, int64_t ns);
  void partition(Life& life);
  void swizzle(Life& life);
  void old_frame(Life& life);
  void garbage(Life& life);
  void parent_dies();
  void heal();

  const SessionOptions options_;
  base::Prng prng_;
  bool print_;
  Checks checks_;
  SessionCounts counts_;
  int64_t now_ = 1;
  std::priority_queue<Event> events_;
  std::vector<SimProcess> processes_;
  std::vector<std::vector<Event>> deferred_;  // by process, while it is paused
  std::vector<Slot> slots_;
  std::vector<std::unique_ptr<Life>> lives_;
  std::array<uint32_t, static_cast<size_t>(SessionFault::kCount)> left_{};
  bool healed_ = false;
  std::deque<std::string> notes_;
};

}  // namespace strata::sim
