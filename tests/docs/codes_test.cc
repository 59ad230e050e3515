// The codes that docs/reference promises for calls that are refused.
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "strata/strata.h"

namespace strata {
namespace {

void nothing(Call&) {}
void gives_a_number(Call& call) {
  call.set_result(int64_t{1});
}

// "OK", or the code's name.
template <class T>
std::string code_of(const Result<T>& result) {
  return result ? "OK" : std::string(name_of(result.error().code()));
}

class ReferenceCodes : public ::testing::Test {
 protected:
  void SetUp() override {
    worker_ = Worker::create({.sub_workers = 2}).value();
    nothing_ = worker_->register_callable(local_function<nothing>("nothing")).value();
    worker_->init().value();
    other_ = Worker::create({.chips = 1}).value();
    other_->init().value();
    x_ = worker_->create_buffer(800).value();
    foreign_ = other_->create_buffer(800).value();
  }
  void TearDown() override {
    worker_->close().value();
    other_->close().value();
  }

  // What one call of an orchestration function gives.
  template <class Fn>
  std::string built(Fn&& fn) {
    return code_of(worker_->run([&](Orchestrator& orch) -> Result<void> {
      auto result = fn(orch);
      if (!result) return result.error();
      return {};
    }));
  }
  std::string submitted(TaskArgs args) {
    return built([&](Orchestrator& orch) { return orch.submit_sub(nothing_, args); });
  }

  std::unique_ptr<Worker> worker_;
  std::unique_ptr<Worker> other_;
  CallableHandle nothing_;
  Buffer x_;
  Buffer foreign_;
};

TEST_F(ReferenceCodes, OfBuffersThatAreNotThere) {
  EXPECT_EQ(code_of(worker_->create_buffer(0)), "INVALID_ARGUMENT");
  EXPECT_EQ(code_of(worker_->clear_error(Buffer())), "INVALID_ARGUMENT");
  EXPECT_EQ(code_of(worker_->clear_error(foreign_)), "NOT_FOUND");
  EXPECT_EQ(code_of(Buffer().make_read_only()), "INVALID_ARGUMENT");
}

TEST_F(ReferenceCodes, OfRegistrationsThatAreRefused) {
  const auto registered = [&](const Callable& callable, const std::vector<int>& workers = {}) {
    return code_of(worker_->register_callable(callable, workers));
  };
  EXPECT_EQ(registered(NativeImport{"a/b.so", "f"}), "INVALID_ARGUMENT");
  EXPECT_EQ(registered(NativeImport{"b.so", "f-g"}), "INVALID_ARGUMENT");
  EXPECT_EQ(registered(NativeImport{"b.so", "f"}), "NOT_FOUND");
  EXPECT_EQ(registered(LocalFunction{}), "INVALID_ARGUMENT");
  EXPECT_EQ(registered(local_function<gives_a_number>("f"), {9}), "NOT_FOUND");
  EXPECT_EQ(registered(local_function<gives_a_number>("f"), {0, 0}), "INVALID_ARGUMENT");
  const ChipCallable kernel{std::vector<std::byte>(10), "f", ""};
  EXPECT_EQ(registered(kernel), "UNSUPPORTED");
  EXPECT_EQ(registered(ChipCallable{}), "INVALID_ARGUMENT");
  EXPECT_EQ(code_of(other_->register_callable(kernel)), "NOT_FOUND");
  const Callable plain = local_function<nothing>("nothing");
  EXPECT_EQ(code_of(other_->register_callable(plain, {0})), "UNSUPPORTED");
  EXPECT_EQ(code_of(worker_->register_inner(plain)), "WRONG_STATE");
  EXPECT_EQ(code_of(worker_->unregister_inner({})), "INVALID_ARGUMENT");
}

TEST_F(ReferenceCodes, OfHandlesThatAreNotThisWorkers) {
  EXPECT_EQ(code_of(worker_->unregister_callable({})), "INVALID_ARGUMENT");
  EXPECT_EQ(code_of(other_->unregister_callable(nothing_)), "INVALID_ARGUMENT");
  EXPECT_EQ(built([](Orchestrator& orch) { return orch.submit_sub({}, TaskArgs()); }),
            "INVALID_ARGUMENT");
  EXPECT_EQ(code_of(worker_->unregister_callable(nothing_)), "OK");
  EXPECT_EQ(code_of(worker_->unregister_callable(nothing_)), "NOT_FOUND");
  EXPECT_EQ(submitted({}), "NOT_FOUND");
}

TEST_F(ReferenceCodes, OfTensorsThatASubmitRefuses) {
  const Tensor x = x_.tensor<double>({100});
  const Tensor without = Tensor::without_storage<double>({4});
  EXPECT_EQ(submitted(TaskArgs().add_tensor(Tensor{}, INPUT)), "INVALID_ARGUMENT");
  EXPECT_EQ(submitted(TaskArgs().add_tensor(x_.tensor<double>({101}), INPUT)), "INVALID_ARGUMENT");
  EXPECT_EQ(submitted(TaskArgs().add_tensor(foreign_.tensor<double>({1}), INPUT)), "NOT_FOUND");
  EXPECT_EQ(submitted(TaskArgs().add_tensor(x, INPUT, Transfer::kCopy)), "UNSUPPORTED");
  EXPECT_EQ(submitted(TaskArgs().add_tensor(without, INPUT)), "INVALID_ARGUMENT");
  EXPECT_EQ(submitted(TaskArgs().add_tensor(without, OUTPUT)), "OK");
  const TaskArgs constant = TaskArgs().add_tensor(without, OUTPUT);
  EXPECT_EQ(built([&](Orchestrator& orch) { return orch.submit_sub(nothing_, constant); }),
            "INVALID_ARGUMENT");
  x_.make_read_only().value();
  EXPECT_EQ(submitted(TaskArgs().add_tensor(x, OUTPUT)), "INVALID_ARGUMENT");
  EXPECT_EQ(submitted(TaskArgs().add_tensor(x, INPUT)), "OK");
}

TEST_F(ReferenceCodes, OfOrchestratorsCallsThatAreRefused) {
  using Orch = Orchestrator;
  EXPECT_EQ(built([&](Orch& o) { return o.submit_next_level(nothing_, {}, {}, 3); }), "NOT_FOUND");
  EXPECT_EQ(built([&](Orch& o) { return o.submit_next_level(nothing_, {}); }), "NO_WORKER");
  EXPECT_EQ(built([&](Orch& o) { return o.submit_sub_group(nothing_, std::span<TaskArgs>()); }),
            "INVALID_ARGUMENT");
  EXPECT_EQ(built([](Orch& o) { return o.temporary<double>({0}); }), "INVALID_ARGUMENT");
  EXPECT_EQ(built([](Orch& o) {
              return o.temporary<double>({1, 1, 1, 1, 1, 1, 1, 1, 1});
            }),
            "INVALID_ARGUMENT");
  EXPECT_EQ(built([](Orch& o) { return o.wait({1, 99}); }), "NOT_FOUND");
  EXPECT_EQ(built([&](Orch& o) {
              Result<TaskRef> other = TaskRef{};
              std::thread([&] { other = o.submit_sub(nothing_, {}); }).join();
              return other;
            }),
            "WRONG_STATE");
  EXPECT_EQ(built([&](Orch&) { return worker_->close(); }), "WRONG_STATE");
  EXPECT_EQ(built([&](Orch&) { return worker_->run([](Orch&) {}); }), "WRONG_STATE");
  EXPECT_EQ(code_of(worker_->run([](Orch&) { throw std::runtime_error("no"); })), "USER_CODE");
}

TEST_F(ReferenceCodes, OfRunHandles) {
  EXPECT_EQ(code_of(RunHandle().wait()), "INVALID_ARGUMENT");
  EXPECT_EQ(code_of(RunHandle().result({})), "INVALID_ARGUMENT");
  const auto gives = worker_->register_callable(local_function<gives_a_number>("gives")).value();
  TaskRef task;
  auto run = worker_->submit([&](Orchestrator& o) { task = o.submit_sub(gives, {}).value(); });
  ASSERT_TRUE(run->wait().ok());
  EXPECT_EQ(code_of(run->result_as<int64_t>(task)), "OK");
  EXPECT_EQ(code_of(run->result_as<int32_t>(task)), "INVALID_ARGUMENT");
  EXPECT_EQ(code_of(run->result({task.run, 7})), "NOT_FOUND");
  EXPECT_EQ(code_of(run->result({task.run + 1, 0})), "NOT_FOUND");
}

TEST_F(ReferenceCodes, OfWorkersLives) {
  EXPECT_EQ(code_of(Worker::create({.level = 2})), "INVALID_ARGUMENT");
  EXPECT_EQ(code_of(worker_->add_worker({.level = 3})), "INVALID_ARGUMENT");
  EXPECT_EQ(code_of(worker_->init()), "WRONG_STATE");
  EXPECT_EQ(code_of(other_->chip_usage(5)), "NOT_FOUND");
  auto early = Worker::create({.chips = 1}).value();
  EXPECT_EQ(code_of(early->chip_usage(0)), "WRONG_STATE");
  EXPECT_EQ(code_of(early->run([](Orchestrator&) {})), "WRONG_STATE");
  EXPECT_EQ(code_of(early->close()), "OK");
  EXPECT_EQ(code_of(early->close()), "OK");
  EXPECT_EQ(code_of(early->init()), "WRONG_STATE");
  EXPECT_EQ(code_of(early->create_buffer(8)), "WRONG_STATE");
  EXPECT_EQ(code_of(early->register_callable(local_function<nothing>("n"))), "WRONG_STATE");
  EXPECT_EQ(code_of(ChipCallable::from_file("not-there.so", "f")), "SYSTEM");
}

}  // namespace
}  // namespace strata
