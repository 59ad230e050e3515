// Which cores children run on: those of their lists, with all that is below them.
#include <sched.h>

#include "os/cores.h"
#include "tests/runtime/nested_util.h"
#include "tests/runtime/worker_test_util.h"

namespace strata::test {
namespace {

// The result: the number of cores of the mask, and the first.
struct Cores {
  int count;
  int first;
};
void result_cores(Call& call) {
  const std::vector<int> cores = os::cores_allowed();
  call.set_result(Cores{static_cast<int>(cores.size()), cores.empty() ? -1 : cores.front()});
}
Cores cores_of_process(int pid) {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(::sched_getaffinity(pid, sizeof set, &set), 0);
  int first = 0;
  while (first < CPU_SETSIZE && !CPU_ISSET(first, &set)) ++first;
  return {CPU_COUNT(&set), first};
}

class Cpus : public ::testing::Test {
 protected:
  void SetUp() override {
    all_ = os::cores_allowed();
    if (all_.size() < 2) GTEST_SKIP() << "this machine gives one core: nothing can be told apart";
  }
  std::vector<int> all_;
};

TEST_F(Cpus, OfSubChildrenAreTheirListsAndTheProgramsStay) {
  auto spec = spec_of(StartMethod::kFork, 3);
  spec.sub_cpus = {{all_[0]}, {all_[1]}, {}};
  const auto worker = started(spec);
  const auto children = worker->sub_children();
  EXPECT_EQ(cores_of_process(children[0].pid).count, 1);
  EXPECT_EQ(cores_of_process(children[0].pid).first, all_[0]);
  EXPECT_EQ(cores_of_process(children[1].pid).count, 1);
  EXPECT_EQ(cores_of_process(children[1].pid).first, all_[1]);
  EXPECT_EQ(cores_of_process(children[2].pid).count, static_cast<int>(all_.size()));
  EXPECT_EQ(os::cores_allowed(), all_);
  EXPECT_TRUE(worker->close().ok());
}

TEST_F(Cpus, OfAChildWorkerHoldForAllBelowIt) {
  auto spec = pod(StartMethod::kFork, 2, 1);
  spec.workers[0].cpus = {all_[1]};
  const auto worker = started(spec);
  const auto hosts = worker->next_level_children();
  for (const int pid : host_of(hosts[0].pid).all) {
    EXPECT_EQ(cores_of_process(pid).count, 1) << pid;
    EXPECT_EQ(cores_of_process(pid).first, all_[1]) << pid;
  }
  for (const int pid : host_of(hosts[1].pid).all) {
    EXPECT_EQ(cores_of_process(pid).count, static_cast<int>(all_.size())) << pid;
  }
  EXPECT_TRUE(worker->close().ok());
}

TEST_F(Cpus, OfTheTopmostWorkerAreThoseOfItsChildrenWithoutAList) {
  auto spec = spec_of(StartMethod::kFork, 1);
  spec.cpus = {all_[1]};
  spec.chips = 1;
  const auto worker = started(spec);
  EXPECT_EQ(cores_of_process(worker->sub_children()[0].pid).first, all_[1]);
  EXPECT_EQ(cores_of_process(worker->next_level_children()[0].pid).count, 1);
  EXPECT_EQ(os::cores_allowed(), all_);
  const auto work = registered<result_cores>(*worker, "cores");
  TaskRef task;
  auto run =
      worker->submit([&](Orchestrator& orch) { task = orch.submit_sub(work, TaskArgs()).value(); });
  ASSERT_TRUE(run->wait().ok());
  EXPECT_EQ(run->result_as<Cores>(task).value().first, all_[1]);
  EXPECT_TRUE(worker->close().ok());
}

TEST_F(Cpus, OfChipsAreTheirLists) {
  auto spec = spec_of(StartMethod::kFork, 0);
  spec.chips = 2;
  spec.chip_cpus = {{all_[1]}, {all_[0]}};
  const auto worker = started(spec);
  EXPECT_EQ(cores_of_process(worker->next_level_children()[0].pid).first, all_[1]);
  EXPECT_EQ(cores_of_process(worker->next_level_children()[1].pid).first, all_[0]);
  EXPECT_TRUE(worker->close().ok());
}

TEST_F(Cpus, ThatCannotBeAreRefusedByName) {
  const int beyond = all_.back() + 1;
  auto spec = spec_of(StartMethod::kFork, 1);
  spec.cpus = {beyond};
  expect_error(Worker::create(spec).value()->init(), Code::kInvalidArgument,
               "WorkerSpec::cpus names core " + std::to_string(beyond));
  spec = spec_of(StartMethod::kFork, 1);
  spec.cpus = {all_[0]};
  spec.sub_cpus = {{all_[1]}};
  expect_error(Worker::create(spec).value()->init(), Code::kInvalidArgument, "sub_cpus");
  spec.sub_cpus = {{all_[0]}, {all_[0]}};
  expect_error(Worker::create(spec), Code::kInvalidArgument, "2 lists for 1 children");
  auto top = pod(StartMethod::kFork, 2, 1);
  top.workers[1].cpus = {beyond};
  expect_error(Worker::create(top).value()->init(), Code::kInvalidArgument,
               "Worker 1: WorkerSpec::cpus");
  spec = spec_of(StartMethod::kInline, 1);
  spec.cpus = {all_[0]};
  expect_error(Worker::create(spec), Code::kInvalidArgument, "kInline");
}

TEST_F(Cpus, OfALateWorkerThatCannotBeAreRefusedByName) {
  const auto worker = started(pod(StartMethod::kFork, 1, 1));
  WorkerSpec late = spec_of(StartMethod::kFork, 1);
  late.cpus = {all_.back() + 1};
  expect_error(worker->add_worker(late), Code::kInvalidArgument, "WorkerSpec::cpus names core");
  late.cpus = {all_[1]};
  EXPECT_TRUE(worker->add_worker(late).ok());
  EXPECT_TRUE(worker->close().ok());
}

}  // namespace
}  // namespace strata::test
