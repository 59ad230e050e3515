// What each side refuses of the other: order, identity, credit, the lane, and bytes that are none.
// A refusal ends the session, tells the other side, and names lane, sequence and cause.
#include <gtest/gtest.h>

#include "base/fault.h"
#include "base/prng.h"
#include "pair.h"

namespace strata::session::testing {
namespace {

using wire::ControlCommand;
using wire::FrameType;
using wire::Lane;
constexpr Lane kCommand = Lane::kCommand, kData = Lane::kData, kHealth = Lane::kHealth;

wire::Control control_of(ControlCommand command) {
  wire::Control control;
  control.command = command;
  return control;
}
wire::ControlReply reply_of(ControlCommand command) {
  wire::ControlReply reply;
  reply.command = command;
  return reply;
}

// The runner gets it, ends with a text that has `why`, and so does the parent.
template <class T>
void runner_refuses(Pair& p, Lane lane, FrameType type, uint64_t sequence, const T& message,
                    std::string_view why) {
  p.runner.on_bytes(lane, frame(type, sequence, message), p.now);
  ASSERT_EQ(p.to_runner.ends, 1) << why;
  EXPECT_NE(p.to_runner.cause().find(why), std::string::npos) << p.to_runner.cause();
  EXPECT_NE(p.to_runner.cause().find(wire::wire_name(lane)), std::string::npos);
  EXPECT_NE(p.to_runner.cause().find("L4/7 on node7 pid 88, parent head:900"), std::string::npos);
  p.carry_to_parent(kHealth);
  EXPECT_EQ(p.to_parent.ends, 1);
  EXPECT_NE(p.to_parent.cause().find(why), std::string::npos) << p.to_parent.cause();
}
template <class T>
void parent_refuses(Pair& p, Lane lane, FrameType type, uint64_t sequence, const T& message,
                    std::string_view why) {
  p.parent.on_bytes(lane, frame(type, sequence, message), p.now);
  ASSERT_EQ(p.to_parent.ends, 1) << why;
  EXPECT_NE(p.to_parent.cause().find(why), std::string::npos) << p.to_parent.cause();
  EXPECT_NE(p.to_parent.cause().find(wire::wire_name(lane)), std::string::npos);
  EXPECT_NE(p.to_parent.cause().find("L4/7 on node7:4711 pid 88"), std::string::npos);
  p.carry_to_runner(kHealth);
  EXPECT_EQ(p.to_runner.ends, 1);
}
// A fresh one that is READY, with one TASK (1) and one control (2) on their way.
struct Started : Pair {
  Started() {
    start();
    send_task();
    send_control(ControlCommand::kPrepareRegister);
    carry_all();
  }
};

// ---------------------------------------------------------------- the runner's

TEST(RunnerSession, RefusesGapsAndRepeats) {
  for (const auto& [sequence, why] : {std::pair<uint64_t, const char*>{4, "TASK 4 leaves a gap"},
                                      {2, "TASK 2 came again"},
                                      {0, "TASK 0 came again"}}) {
    Started p;
    runner_refuses(p, kCommand, FrameType::kTask, sequence, wire::Task{}, why);
  }
  Started p;
  runner_refuses(p, kData, FrameType::kControl, 2, control_of(ControlCommand::kFreeBuffer),
                 "CONTROL 2 leaves a gap");
  Started q;
  runner_refuses(q, kHealth, FrameType::kHealth, 1, wire::Health{}, "HEALTH 1 came again");
}

TEST(RunnerSession, RefusesWhatIsNotOfItsLane) {
  Started a, b, c, d;
  runner_refuses(a, kData, FrameType::kTask, 1, wire::Task{}, "is not what a parent says");
  runner_refuses(b, kHealth, FrameType::kTask, 3, wire::Task{}, "is not what a parent says");
  runner_refuses(c, kCommand, FrameType::kControl, 3, control_of(ControlCommand::kFreeBuffer),
                 "FREE_BUFFER 3, which belongs on the DATA lane");
  runner_refuses(d, kCommand, FrameType::kCompletion, 3, wire::Completion{},
                 "is not what a parent says");
}

TEST(RunnerSession, RefusesRequestsBeforeTheirTime) {
  Pair a, b, c, d;
  for (const Lane lane : kLanes) a.parent.on_lane_up(lane, a.now);
  a.runner.on_lane_up(kHealth, a.now);
  a.runner.on_lane_up(kCommand, a.now);
  runner_refuses(a, kCommand, FrameType::kTask, 1, wire::Task{}, "TASK before HELLO");
  b.lanes_up();
  runner_refuses(b, kCommand, FrameType::kTask, 1, wire::Task{}, "TASK 1 before READY");
  c.lanes_up();
  runner_refuses(c, kCommand, FrameType::kControl, 1, control_of(ControlCommand::kUnregister),
                 "0 early controls were announced");
  d.lanes_up();
  runner_refuses(d, kCommand, FrameType::kShutdown, 1, wire::Shutdown{}, "SHUTDOWN before READY");
}

TEST(RunnerSession, RefusesRequestsAfterShutdown) {
  Pair p;
  p.start();
  p.parent.drain(Duration::from_s(1), p.now).value();
  p.carry_all();
  runner_refuses(p, kCommand, FrameType::kTask, 2, wire::Task{}, "TASK 2 after SHUTDOWN");
}

TEST(RunnerSession, RefusesMoreThanItsCredits) {
  Pair p;
  p.start();
  for (uint32_t i = 0; i < kTaskCredits; ++i) p.send_task();
  p.carry_all();
  runner_refuses(p, kCommand, FrameType::kTask, kTaskCredits + 1, wire::Task{},
                 "TASK 17 without credit");
  Pair q;
  q.start();
  for (uint32_t i = 0; i < kControlCredits; ++i) q.send_control(ControlCommand::kFreeBuffer);
  q.carry_all();
  runner_refuses(q, kData, FrameType::kControl, 5, control_of(ControlCommand::kFreeBuffer),
                 "FREE_BUFFER 5 without credit");
}

TEST(RunnerSession, RefusesCancelsOfWhatCannotHaveBeenSent) {
  Started p;
  runner_refuses(p, kHealth, FrameType::kCancel, p.parent.ended() ? 0 : 3, wire::Cancel{1, 4000},
                 "CANCEL 1 to 4000");
}

TEST(RunnerSession, RefusesEchoesOfBeatsThatItNeverSent) {
  Started p;
  runner_refuses(p, kHealth, FrameType::kHealth, 3,
                 wire::Health{.sent_ns = p.now.ns + 5, .echo_ns = p.now.ns + 77},
                 "which was not sent");
  Started q;
  runner_refuses(q, kHealth, FrameType::kHealth, 3, wire::Health{.sent_ns = 3, .echo_ns = 0},
                 "HEALTH sent at 3 after");
}

// ---------------------------------------------------------------- the parent's

TEST(ParentSession, RefusesAnswersToNothingAndToTheWrongKind) {
  Started a, b, c, d, e;
  parent_refuses(a, kCommand, FrameType::kCompletion, 3, wire::Completion{}, "answers nothing");
  parent_refuses(b, kCommand, FrameType::kCompletion, 2, wire::Completion{}, "answers a control");
  parent_refuses(c, kCommand, FrameType::kControlReply, 1,
                 reply_of(ControlCommand::kPrepareRegister), "answers a TASK");
  parent_refuses(d, kData, FrameType::kControlReply, 1, reply_of(ControlCommand::kFreeBuffer),
                 "answers nothing");
  e.runner.take(kCommand, e.now);
  e.runner.completion({}).value();
  e.carry_all();
  parent_refuses(e, kCommand, FrameType::kCompletion, 1, wire::Completion{}, "answers nothing");
}

TEST(ParentSession, RefusesAnswersBeforeTheirTurn) {
  Started a, b, c;
  a.send_task();
  parent_refuses(a, kCommand, FrameType::kCompletion, 3, wire::Completion{},
                 "COMPLETION 3 before the answer to 1");
  parent_refuses(b, kCommand, FrameType::kControlReply, 2,
                 reply_of(ControlCommand::kPrepareRegister), "before the answer to 1");
  c.serve();
  c.send_control(ControlCommand::kPrepareRegister);
  c.carry_all();
  parent_refuses(c, kCommand, FrameType::kControlReply, 3,
                 reply_of(ControlCommand::kCommitRegister), "to COMMIT_REGISTER, it was PREPARE");
}

TEST(ParentSession, RefusesHellosOutOfOrder) {
  wire::Hello hello;
  hello.session_id = kSession;
  hello.worker_id = kWorker;
  hello.credits = 16;
  hello.state = wire::ReadyState::kReady;
  Started started;
  parent_refuses(started, kCommand, FrameType::kHello, 0, hello, "HELLO after READY");
  Pair early;
  for (const Lane lane : kLanes) {
    early.parent.on_lane_up(lane, early.now);
    early.runner.on_lane_up(lane, early.now);
  }
  early.runner.output(kCommand).clear();
  parent_refuses(early, kCommand, FrameType::kHello, 0, hello, "READY before STARTING");
  Pair numbered, other, credit, version, twice;
  for (Pair* const p : {&numbered, &other, &credit, &version, &twice}) p->lanes_up();
  parent_refuses(numbered, kCommand, FrameType::kHello, 1, hello, "HELLO with sequence 1");
  wire::Hello wrong = hello;
  wrong.worker_id = 8;
  parent_refuses(other, kCommand, FrameType::kHello, 0, wrong, "worker 8");
  wrong = hello;
  wrong.credits = 0;
  parent_refuses(credit, kCommand, FrameType::kHello, 0, wrong, "grants no credit");
  wrong = hello;
  wrong.protocol = 2;
  parent_refuses(version, kCommand, FrameType::kHello, 0, wrong, "protocol 2, this side 1");
  wrong = hello;
  wrong.state = wire::ReadyState::kStarting;
  parent_refuses(twice, kCommand, FrameType::kHello, 0, wrong, "STARTING twice");
}

TEST(ParentSession, RefusesReadyBeforeTheLastEarlyAnswer) {
  ParentOptions po = parent_options();
  po.early_controls = 1;
  Pair p(po, runner_options());
  p.lanes_up();
  wire::Hello hello;
  hello.session_id = kSession;
  hello.worker_id = kWorker;
  hello.credits = 16;
  hello.state = wire::ReadyState::kReady;
  parent_refuses(p, kCommand, FrameType::kHello, 0, hello, "the last of 1 early controls");
}

TEST(ParentSession, RefusesBeatsThatCannotBe) {
  const auto beat = [](Pair& p, auto&& change) {
    wire::Health health{.sent_ns = p.now.ns + 1'000'000, .echo_ns = p.now.ns};
    change(health);
    return health;
  };
  Started a, b, c, d, e;
  parent_refuses(a, kHealth, FrameType::kHealth, 2,
                 beat(a, [](auto& h) { h.echo_ns += 1'000'000; }), "HEALTH echoes");
  parent_refuses(b, kHealth, FrameType::kHealth, 2, beat(b, [](auto& h) { h.executing = 3; }),
                 "tells that 3 is executing");
  parent_refuses(c, kHealth, FrameType::kHealth, 2, beat(c, [](auto& h) { h.tasks_done = 2; }),
                 "tells 2 TASKs done");
  parent_refuses(d, kHealth, FrameType::kHealth, 2, beat(d, [](auto& h) { h.sent_ns = 1; }),
                 "HEALTH sent at 1 after");
  parent_refuses(e, kHealth, FrameType::kHealth, 4, beat(e, [](auto&) {}), "HEALTH 4 leaves a gap");
}

TEST(ParentSession, RefusesLinesBeyondTheirCredit) {
  Started p;
  for (uint64_t i = 0; i <= kLogLines && !p.parent.ended(); ++i) {
    p.parent.on_bytes(kHealth, frame(FrameType::kLog, 2 + i, wire::Log{}), p.now);
  }
  EXPECT_EQ(p.to_parent.logs.size(), kLogLines);
  EXPECT_NE(p.to_parent.cause().find("more than 256 LOGs"), std::string::npos);
  Started q;
  wire::Log log;
  log.sequence = 3;
  parent_refuses(q, kHealth, FrameType::kLog, 2, log, "LOG of TASK 3");
}

// ---------------------------------------------------------------- both

TEST(Session, RefusesFramesOfAnotherSessionOrWorker) {
  Started a, b, c, d;
  a.runner.on_bytes(kCommand, frame(FrameType::kTask, 3, wire::Task{}, kSession - 1), a.now);
  EXPECT_NE(a.to_runner.cause().find("TASK 3 is of session"), std::string::npos);
  b.runner.on_bytes(kCommand, frame(FrameType::kTask, 3, wire::Task{}, kSession, 6), b.now);
  EXPECT_NE(b.to_runner.cause().find("TASK 3 is of worker 6, this one is 7"), std::string::npos);
  c.parent.on_bytes(kCommand, frame(FrameType::kCompletion, 1, wire::Completion{}, 3), c.now);
  EXPECT_NE(c.to_parent.cause().find("is of session"), std::string::npos);
  EXPECT_TRUE(c.to_parent.completions.empty());
  d.parent.on_bytes(kCommand, frame(FrameType::kCompletion, 1, wire::Completion{}, kSession, -1),
                    d.now);
  EXPECT_TRUE(d.to_parent.completions.empty());
  EXPECT_EQ(d.to_parent.ends, 1);
}

TEST(Session, NothingThatComesAfterTheEndChangesAnything) {
  Started p;
  p.runner.take(kCommand, p.now);
  p.runner.completion({}).value();
  p.parent.abort(Error(Code::kCancelled, Scope::kSession, "enough"), p.now);
  p.carry_all();
  EXPECT_TRUE(p.to_parent.completions.empty());
  EXPECT_EQ(p.to_parent.ends, 1);
  EXPECT_EQ(p.to_runner.ends, 1);
  p.parent.fail(Error(Code::kSystem, Scope::kSession, "again"), p.now);
  p.runner.fail(Error(Code::kSystem, Scope::kSession, "again"), p.now);
  p.parent.on_lane_closed(kData, std::nullopt, p.now);
  p.runner.on_lane_closed(kData, std::nullopt, p.now);
  p.parent.on_deadline(p.now + Duration::from_s(100));
  p.runner.on_deadline(p.now + Duration::from_s(100));
  EXPECT_EQ(p.to_parent.ends, 1);
  EXPECT_EQ(p.to_runner.ends, 1);
  EXPECT_FALSE(p.parent.cancel(1, 1).ok());
  EXPECT_FALSE(p.parent.drain({}, p.now).ok());
  EXPECT_FALSE(p.parent.set_log(wire::LogLevel::kInfo).ok());
}

TEST(Session, ALaneThatClosesAtAnyStepEndsBothOnce) {
  for (const Lane lane : kLanes) {
    for (int step = 0; step < 6; ++step) {
      for (const bool with_reason : {false, true}) {
        Pair p;
        if (step >= 1) p.lanes_up();
        if (step >= 2) p.runner.ready({});
        if (step >= 3) p.carry_all();
        if (step >= 3) p.send_task();
        if (step >= 4) p.carry_all();
        if (step >= 5) p.take();
        std::optional<Error> why;
        if (with_reason) why = Error(Code::kSystem, Scope::kSession, "reset by peer");
        p.parent.on_lane_closed(lane, why, p.now);
        p.runner.on_lane_closed(lane, why, p.now);
        EXPECT_EQ(p.to_parent.ends, 1);
        EXPECT_EQ(p.to_runner.ends, 1);
        EXPECT_EQ(p.to_parent.ended.in_flight.size(), step >= 3 ? 1u : 0u);
        if (with_reason) {
          EXPECT_NE(p.to_parent.cause().find("reset by peer"), std::string::npos);
        }
        EXPECT_NE(p.to_parent.cause().find(wire::wire_name(lane)), std::string::npos);
      }
    }
  }
}

TEST(Session, BytesOneByOneAreTheSameSession) {
  Pair p;
  p.chunk = 1;
  p.start();
  for (int i = 0; i < 20; ++i) {
    p.send_task(static_cast<uint64_t>(i));
    p.send_control(ControlCommand::kAllocBuffer);
    p.carry_all();
    p.serve();
    p.runner.log({});
    p.run_for(Duration::from_ms(300));
  }
  EXPECT_EQ(p.to_parent.completions.size(), 20u);
  EXPECT_EQ(p.to_parent.replies.size(), 20u);
  EXPECT_EQ(p.to_parent.logs.size(), 20u);
  EXPECT_EQ(p.to_parent.ends, 0);
}

// One bit is turned in one byte of what a lane carries, at every place: the session ends, or the
// byte was never looked at; it never goes on with something else.
TEST(Session, GarbageAtEveryByteOfEachLaneEndsIt) {
  base::Prng prng(5);
  for (const Lane lane : kLanes) {
    for (const bool to_runner : {true, false}) {
      for (size_t at = 0;; ++at) {
        Started p;
        p.send_control(ControlCommand::kAllocBuffer);
        p.carry_to_runner(kData);
        p.serve();
        p.runner.log({});
        p.send_task();
        p.send_control(ControlCommand::kFreeBuffer);
        p.parent.set_log(wire::LogLevel::kInfo).value();
        std::vector<std::byte>& out = to_runner ? p.parent.output(lane) : p.runner.output(lane);
        if (at >= out.size()) {
          ASSERT_GT(at, 48u);
          break;
        }
        out[at] ^= static_cast<std::byte>(1u << prng.below(8));
        const size_t known = p.to_parent.completions.size();
        to_runner ? p.carry_to_runner(lane) : p.carry_to_parent(lane);
        // A length that grew waits for bytes that never come; then the judge ends it.
        const bool ended = to_runner ? p.runner.ended() : p.parent.ended();
        if (!ended) {
          const Instant until = p.now + Duration::from_s(70);
          while (p.now < until && !p.parent.ended()) {
            p.now = p.now + Duration::from_ms(250);
            p.step();
          }
          ASSERT_TRUE(p.parent.ended()) << wire::wire_name(lane) << " byte " << at;
        }
        ASSERT_LE(p.to_parent.completions.size(), known + 1);
      }
    }
  }
}

// ---------------------------------------------------------------- the deliberate faults

#ifdef STRATA_FAULTS
struct Fault {
  explicit Fault(int number) { base::set_fault(number); }
  ~Fault() { base::set_fault(0); }
};

TEST(SessionFaults, EachOneChangesWhatTheTestsAboveProve) {
  {
    Fault fault(5);
    Started p;
    p.send_task();
    p.carry_all();
    p.parent.cancel(3, 3).value();
    p.carry_all();
    p.serve();
    p.carry_all();
    EXPECT_EQ(p.parent.task_credits(), kTaskCredits - 1);
  }
  {
    Fault fault(6);
    Started p;
    p.send_task();
    p.carry_all();
    p.parent.cancel(3, 3).value();
    p.carry_all();
    ASSERT_EQ(p.to_parent.completions.size(), 1u);
    EXPECT_EQ(p.to_parent.completions[0].first, 1u);
  }
  {
    Fault fault(16);
    Started p;
    p.parent.on_bytes(kCommand, frame(FrameType::kCompletion, 1, wire::Completion{}, 3), p.now);
    EXPECT_EQ(p.to_parent.completions.size(), 1u);
  }
  {
    Fault fault(17);
    Started p;
    p.parent.on_deadline(p.now + Duration::from_s(60));
    EXPECT_TRUE(p.parent.ended());
  }
  {
    Fault fault(18);
    Started p;
    p.take();
    p.run_for(Duration::from_s(31));
    EXPECT_TRUE(p.parent.ended());
  }
}
#endif

}  // namespace
}  // namespace strata::session::testing
