// SessionWorld::Life: one session of the simulated world, both ends, its links and its truth.
// Private to the world's files.
#pragma once

#include "sim/session_world.h"

namespace strata::sim {

struct SessionWorld::Life final : session::ParentSession::Sink, session::RunnerSession::Sink {
  Life(SessionWorld& w, uint32_t number, uint64_t session, const SessionOptions& o)
      : world(w), index(number), truth(session, o.timing, w.checks_) {}

  // ---- what the sessions tell
  void on_ready(const wire::Hello& hello) override {
    ++world.counts_.ready;
    granted = hello.credits;
  }
  void on_completion(uint64_t sequence, wire::Completion completion) override {
    ++(completion.outcome == wire::Outcome::kSkipped ? world.counts_.skipped
                                                     : world.counts_.completed);
    truth.on_completion(sequence, completion);
  }
  void on_reply(wire::Lane lane, uint64_t sequence, wire::ControlReply reply) override {
    truth.on_reply(lane, sequence, reply.result);
  }
  void on_log(const wire::Log& log) override {
    ++world.counts_.lines;
    lines_told += 1;
    dropped_told += log.dropped;
  }
  void on_ended(const session::Ended& ended) override;
  void on_work(wire::Lane) override {}
  void on_cancel(uint64_t sequence) override { cancel = sequence; }
  void on_set_log(wire::LogLevel) override {}
  void on_ended(const std::optional<Error>& cause) override;

  Link& link(wire::Lane lane, uint32_t direction) {
    return links[session::index_of(lane)][direction];
  }

  SessionWorld& world;
  uint32_t index;
  uint32_t slot = 0;
  uint32_t process = 0;  // the runner's
  uint64_t old_id = 0;   // of the session before it, or of none that ever was
  SessionTruth truth;
  std::unique_ptr<session::ParentSession> parent;
  std::unique_ptr<session::RunnerSession> runner;
  std::array<std::array<Link, 2>, session::kLaneCount> links;
  std::array<bool, 2> pumping{};     // a kPump is due, by side
  std::array<uint64_t, 2> timers{};  // generation of the armed one, by side
  std::array<std::array<bool, 2>, session::kLaneCount> up{};

  // The parent's user.
  uint32_t tasks_sent = 0;
  uint32_t granted = 0;
  uint32_t early_left = 0;
  bool parent_over = false;
  uint64_t lines_told = 0, dropped_told = 0;

  // The runner's Worker.
  bool runner_over = false;
  bool closed = false;  // the runner's end of the lanes
  bool drained = false;
  std::array<std::optional<session::Work>, session::kLaneCount> work;
  std::array<uint64_t, session::kLaneCount> work_generation{};
  uint64_t cancel = 0;
  uint64_t lines_logged = 0;
};

}  // namespace strata::sim
