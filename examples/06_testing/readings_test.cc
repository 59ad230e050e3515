// Tests of a graph without processes: StartMethod::kInline makes every task a call in this process,
// one at a time, in an order that is the same each time. So a debugger steps into tasks, and a test
// may look at whatever they leave behind.
#include "readings.h"

#include <gtest/gtest.h>

namespace readings {
namespace {

// What the graph is given, and what ran; tasks are calls in this process, so they may write here.
std::vector<std::string> ran;

template <char name>
void note(strata::Call&) {
  ran.emplace_back(1, name);
}

class Readings : public ::testing::Test {
 protected:
  void SetUp() override {
    ran.clear();
    worker_ =
        strata::Worker::create({.sub_workers = 1, .start = strata::StartMethod::kInline}).value();
    worker_->init().value();
    callables_ = register_all(*worker_).value();
    values_ = worker_->create_buffer(4 * sizeof(double)).value();
  }
  // Runs the graph; the total, or the run's error.
  strata::Result<double> total_of(const std::vector<std::string>& lines, double factor) {
    strata::TaskRef total;
    strata::RunHandle run = worker_
                                ->submit([&](strata::Orchestrator& orch) {
                                  total = build(orch, callables_, lines, factor, values_).value();
                                })
                                .value();
    if (auto outcome = run.wait(); !outcome) return outcome.error();
    return run.result_as<double>(total);
  }

  std::unique_ptr<strata::Worker> worker_;
  Callables callables_;
  strata::Buffer values_;
};

TEST_F(Readings, AreScaledAndAdded) {
  EXPECT_EQ(total_of({"1", "2.5", "4"}, 10).value(), 75);
  EXPECT_EQ(values_.as<double>()[1], 25);
}

TEST_F(Readings, ABadLineFailsTheRunAndSaysWhichTask) {
  const auto total = total_of({"1", "2,5", "4"}, 10);
  ASSERT_FALSE(total);
  EXPECT_EQ(total.error().code(), strata::Code::kTaskFailed);
  EXPECT_EQ(total.error().message(), "no number: 2,5");
  EXPECT_NE(total.error().where().find("'parse'"), std::string::npos);
}

TEST_F(Readings, WhatABadLineShouldHaveWrittenIsReadByNobody) {
  strata::TaskRef total;
  strata::RunHandle run = worker_
                              ->submit([&](strata::Orchestrator& orch) {
                                total = build(orch, callables_, {"1", "x"}, 2, values_).value();
                              })
                              .value();
  EXPECT_FALSE(run.wait());
  EXPECT_EQ(run.progress().succeeded, 2u);  // parse and scale of the first line
  EXPECT_EQ(run.progress().failed, 1u);
  EXPECT_EQ(run.progress().skipped, 2u);  // scale of the second, and the total
  EXPECT_EQ(run.result(total).error().code(), strata::Code::kSkipped);
  // A good line in the same place heals it.
  EXPECT_EQ(total_of({"1", "3"}, 2).value(), 8);
}

TEST_F(Readings, TasksRunInTheOrderOfTheirSubmission) {
  const auto a = worker_->register_callable(strata::local_function<note<'a'>>("a")).value();
  const auto b = worker_->register_callable(strata::local_function<note<'b'>>("b")).value();
  worker_
      ->run([&](strata::Orchestrator& orch) {
        for (int i = 0; i < 2; ++i) {
          orch.submit_sub(a, {}).value();
          orch.submit_sub(b, {}).value();
        }
      })
      .value();
  EXPECT_EQ(ran, (std::vector<std::string>{"a", "b", "a", "b"}));
}

// A deadline is how a test lets a task see that it is cancelled: tasks run inside submit and wait,
// so there is no moment for RunHandle::cancel.
TEST_F(Readings, ASearchThatIsToldToStopStops) {
  const auto outcome = worker_->run([&](strata::Orchestrator& orch) {
    orch.submit_sub(callables_.search, {}, {.deadline_ms = 1}).value();
  });
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code(), strata::Code::kDeadline);
  EXPECT_NE(outcome.error().message().find("stopped before its end"), std::string::npos);
}

TEST_F(Readings, ACallbackHearsOfTheEnd) {
  strata::RunHandle run = worker_
                              ->submit([&](strata::Orchestrator& orch) {
                                build(orch, callables_, {"1"}, 1, values_).value();
                              })
                              .value();
  run.wait().value();
  bool good = false;
  run.on_done([&](const strata::Result<void>& outcome) { good = outcome.ok(); }).value();
  EXPECT_TRUE(good);
}

}  // namespace
}  // namespace readings
