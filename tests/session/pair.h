// Both sides of a session joined in memory, with virtual time: what one has to write is handed to
// the other, in pieces of a size that a test chooses. The test is the driver of both.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "session/parent_session.h"
#include "session/runner_session.h"

namespace strata::session::testing {

inline constexpr uint64_t kSession = 0x5e55;
inline constexpr int32_t kWorker = 7;

inline ParentOptions parent_options() {
  ParentOptions o;
  o.session_id = kSession;
  o.worker_id = kWorker;
  o.host = "node7:4711";
  o.path = "L4/7";
  o.pid = 88;
  return o;
}
inline RunnerOptions runner_options() {
  RunnerOptions o;
  o.session_id = kSession;
  o.worker_id = kWorker;
  o.parent = "head:900";
  o.host = "node7";
  o.path = "L4/7";
  o.pid = 88;
  return o;
}

struct ParentNotes final : ParentSession::Sink {
  void on_starting(const wire::Hello&) override { ++starting; }
  void on_ready(const wire::Hello& hello) override {
    ++ready;
    host = hello.host;
  }
  void on_completion(uint64_t sequence, wire::Completion completion) override {
    completions.emplace_back(sequence, std::move(completion));
  }
  void on_reply(wire::Lane lane, uint64_t sequence, wire::ControlReply reply) override {
    replies.push_back({lane, sequence, std::move(reply)});
  }
  void on_log(const wire::Log& log) override { logs.push_back(log); }
  void on_ended(const Ended& e) override {
    ++ends;
    ended = e;
  }
  std::string cause() const { return ended.cause ? ended.cause->to_string() : "none"; }

  struct Reply {
    wire::Lane lane;
    uint64_t sequence;
    wire::ControlReply reply;
  };
  int starting = 0, ready = 0, ends = 0;
  std::string host;
  std::vector<std::pair<uint64_t, wire::Completion>> completions;
  std::vector<Reply> replies;
  std::vector<wire::Log> logs;
  Ended ended;
};

struct RunnerNotes final : RunnerSession::Sink {
  void on_work(wire::Lane lane) override { ++work[lane]; }
  void on_cancel(uint64_t sequence) override { cancelled.push_back(sequence); }
  void on_set_log(wire::LogLevel to) override { level = to; }
  void on_ended(const std::optional<Error>& e) override {
    ++ends;
    ended = e;
  }
  std::string cause() const { return ended ? ended->to_string() : "none"; }

  std::map<wire::Lane, int> work;
  std::vector<uint64_t> cancelled;
  wire::LogLevel level = wire::LogLevel::kInfo;
  int ends = 0;
  std::optional<Error> ended;
};

class Pair {
 public:
  explicit Pair(ParentOptions p = parent_options(), RunnerOptions r = runner_options())
      : parent(std::move(p), to_parent, now), runner(std::move(r), to_runner, now) {}

  // One of both; bytes go on in pieces of `chunk`.
  void carry_to_runner(wire::Lane lane) {
    carry(parent.output(lane), [&](auto piece) { runner.on_bytes(lane, piece, now); });
  }
  void carry_to_parent(wire::Lane lane) {
    carry(runner.output(lane), [&](auto piece) { parent.on_bytes(lane, piece, now); });
  }
  void carry_all() {
    for (int round = 0; round < 4; ++round) {
      for (const wire::Lane lane : kLanes) {
        carry_to_runner(lane);
        carry_to_parent(lane);
      }
    }
  }
  void lanes_up() {
    for (const wire::Lane lane : kLanes) {
      parent.on_lane_up(lane, now);
      runner.on_lane_up(lane, now);
    }
    carry_all();
  }
  void start() {
    lanes_up();
    runner.ready({});
    carry_all();
  }
  // Both loops run, and the bytes go over.
  void run_for(Duration duration) {
    const Instant until = now + duration;
    while (now < until) {
      now = std::min({until, parent.next_deadline(), runner.next_deadline()});
      step();
    }
  }
  void step() {
    carry_all();
    parent.on_deadline(now);
    runner.on_deadline(now);
    carry_all();
  }
  std::optional<Work> take(wire::Lane lane = wire::Lane::kCommand) {
    return runner.take(lane, now);
  }
  uint64_t send_task(uint64_t scalar = 0) {
    wire::Task task;
    task.scalars = {scalar};
    return parent.task(task, now).value().value();
  }
  // 0: no credit.
  uint64_t send_control(wire::ControlCommand command) {
    wire::Control control;
    control.command = command;
    return parent.control(control, now).value().value_or(0);
  }
  void reply(wire::Lane lane, wire::ControlCommand command) {
    wire::ControlReply reply;
    reply.command = command;
    runner.reply(lane, reply).value();
  }
  // Runs all that can run and answers it; gives how many TASKs ran.
  int serve() {
    int ran = 0;
    for (const wire::Lane lane : {wire::Lane::kCommand, wire::Lane::kData}) {
      while (std::optional<Work> work = runner.take(lane, now)) {
        if (std::holds_alternative<wire::Task>(work->what)) {
          ++ran;
          runner.completion({}).value();
        } else if (const auto* control = std::get_if<wire::Control>(&work->what)) {
          reply(lane, control->command);
        } else {
          runner.drained();
          break;
        }
      }
    }
    return ran;
  }

  Instant now{1'000'000'000};
  size_t chunk = SIZE_MAX;
  ParentNotes to_parent;
  RunnerNotes to_runner;
  ParentSession parent;
  RunnerSession runner;

 private:
  template <class Fn>
  void carry(std::vector<std::byte>& from, Fn&& give) {
    std::vector<std::byte> bytes;
    bytes.swap(from);
    for (size_t i = 0; i < bytes.size();) {
      const size_t n = std::min(chunk, bytes.size() - i);
      give(std::span<const std::byte>(bytes).subspan(i, n));
      i += n;
    }
  }
};

// A frame as one side would send it, for the other side.
template <class T>
std::vector<std::byte> frame(wire::FrameType type, uint64_t sequence, const T& message,
                             uint64_t session = kSession, int32_t worker = kWorker) {
  std::vector<std::byte> out;
  const wire::FrameHeader header{
      .type = type, .session_id = session, .worker_id = worker, .sequence = sequence};
  wire::append_frame(header, message, &out).value();
  return out;
}

}  // namespace strata::session::testing
