// SessionTruth: what really happened in one simulated session, written down by the drivers of both
// ends, and the checkers that hold the session's word against it. It shares no code with the
// session but the frames' format.
//
// Checked: a TASK starts at most once, never after it was answered or skipped, only if the parent
// has sent it, and never behind a held fence or after the parent's verdict; each request is
// answered once, with what the runner said, or reported in flight; what is said not to have run has
// not; credits are conserved; a verdict comes neither early nor late; a control's deadline counts
// no time of what stands before it; nothing of another session changes anything.
// Not checked: the texts, the order between lanes, what the Worker does with a task. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "session/options.h"
#include "sim/checks.h"
#include "wire/frame.h"
#include "wire/lanes.h"
#include "wire/task.h"

namespace strata::sim {

// A process of the simulation: its clock, and when it ran.
struct SimProcess {
  bool alive = true;
  bool paused = false;
  int64_t offset_ns = 0;
  int64_t drift_ppm = 0;
  int64_t paused_since = 0;
  int64_t paused_ns = 0;  // altogether, without a pause that goes on
  uint32_t pauses = 0;

  session::Instant local(int64_t now) const {
    return {now + offset_ns +
            static_cast<int64_t>(static_cast<__int128>(now) * drift_ppm / 1000000)};
  }
  // When `local` will be, not before `now`.
  int64_t global(session::Instant at, int64_t now) const {
    const int64_t left = at.ns - local(now).ns;
    return left <= 0 ? now : now + left + left / 1000 + 1;
  }
  // How long it has run until now.
  int64_t ran(int64_t now) const { return now - paused_ns - (paused ? now - paused_since : 0); }
};

struct RequestTruth {
  bool is_task = false;
  int64_t sent_at = 0;
  uint32_t starts = 0;
  int64_t ended_at = -1;   // on the runner
  bool answered = false;   // the parent has it
  bool in_flight = false;  // reported at the end
  bool cancelled = false;
  bool failed = false;  // how the runner answered
};

class SessionTruth {
 public:
  SessionTruth(uint64_t id, const session::Timing& timing, Checks& checks)
      : id_(id), timing_(timing), checks_(checks) {}

  // What the runner answers a request with.
  static uint64_t answer_of(uint64_t session, wire::Lane lane, uint64_t sequence);

  // ---- the parent's side
  void on_sent(wire::Lane lane, uint64_t sequence, bool is_task, int64_t now);
  void on_cancelled(uint64_t first, uint64_t last);
  void on_completion(uint64_t sequence, const wire::Completion& completion);
  void on_reply(wire::Lane lane, uint64_t sequence, std::span<const std::byte> result);
  void on_credits(uint32_t granted, uint32_t left);
  // Bytes of the health lane that reached the parent's process, or the runner's.
  void on_health_bytes(bool to_parent, std::span<const std::byte> bytes, const SimProcess& process,
                       int64_t now);
  void on_health_up(bool parent, const SimProcess& process, int64_t now);
  void on_parent_ended(const session::Ended& ended, const SimProcess& parent, int64_t now);
  // After a step of a live side.
  void check_silence(bool parent, const SimProcess& process, int64_t now);

  // ---- the runner's side
  // May a TASK with these scalars start?
  void on_start(uint64_t sequence, const wire::Task& task, const SimProcess& runner, int64_t now);
  void on_control_taken(wire::Lane lane, uint64_t sequence);
  void on_end(wire::Lane lane, uint64_t sequence, bool failed, int64_t now);
  void on_runner_ended(const std::optional<Error>& cause, const SimProcess& runner, int64_t now);

  uint64_t id() const { return id_; }
  const std::vector<RequestTruth>& command() const { return command_; }

 private:
  struct Ear {
    bool up = false;
    bool broken = false;
    wire::Splitter splitter;
    int64_t ran_at = 0;  // of the last beat, or of the lane: how long the process had run
    uint32_t pauses_at = 0;
    session::Instant echo{};  // the newest that came
  };

  std::vector<RequestTruth>& of(wire::Lane lane) {
    return lane == wire::Lane::kCommand ? command_ : data_;
  }
  RequestTruth* find(wire::Lane lane, uint64_t sequence);
  void fail(std::string what);
  void check_verdict(const Ear& ear, int64_t limit, const SimProcess& process, int64_t now,
                     const char* who);
  void check_control_deadline(int64_t now);

  uint64_t id_;
  session::Timing timing_;
  Checks& checks_;
  std::vector<RequestTruth> command_, data_;  // by sequence, from 1
  Ear parent_ear_, runner_ear_;
  bool verdict_given_ = false;
  uint32_t tasks_sent_ = 0, tasks_answered_ = 0;
};

}  // namespace strata::sim
