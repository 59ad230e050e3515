// What the code of a task in a child Worker can do and what it is refused: rights to its arguments,
// temporaries, waits, groups.
#include "tests/runtime/nested_util.h"

namespace strata {
namespace {

using namespace test;  // NOLINT

// The error that `fn` throws becomes the task's text; a fn that throws none fails the task too.
template <class Fn>
void expect_thrown(Code code, Fn&& fn) {
  try {
    fn();
  } catch (const InnerError& e) {
    if (e.code() == code) throw std::runtime_error(std::string("as expected: ") + e.what());
    throw std::runtime_error("another code: " + std::to_string(static_cast<int>(e.code())) + " " +
                             e.what());
  }
  throw std::runtime_error("nothing was thrown");
}

class Inner : public ::testing::TestWithParam<StartMethod> {
 protected:
  Inner() : worker_(Worker::create(pod(GetParam(), 1, 1)).value()) {}
  ~Inner() override { EXPECT_TRUE(worker_->close().ok()); }

  template <void (*fn)(Call&)>
  Result<void> run(const TaskArgs& args) {
    const auto handle = registered<fn>(*worker_, "the task");
    return run_one(*worker_, handle, args);
  }
  std::unique_ptr<Worker> worker_;
};
INSTANTIATE_TEST_SUITE_P(Starts, Inner, ::testing::Values(StartMethod::kInline, StartMethod::kFork),
                         [](const auto& instance) {
                           return instance.param == StartMethod::kInline ? "Inline" : "Fork";
                         });

// ---------------------------------------------------------------- rights

// Tensor 0 is passed on to an inner task with the tag of scalar 0.
void pass_on(Call& call) {
  InnerOrchestrator orch = call.orchestrator();
  const auto tag = static_cast<TensorArgType>(call.scalar<uint8_t>(0));
  orch.submit_sub(orch.inner_handle<nothing>(), TaskArgs().add_tensor(call.ref(0), tag));
}

TEST_P(Inner, TagsOfInnerTasksNeedTheRightsOfTheTasksOwn) {
  worker_->register_inner(local_function<nothing>("nothing")).value();
  worker_->init().value();
  const Buffer x = worker_->create_buffer(64).value();
  const TensorArgType tags[] = {INPUT, OUTPUT, INOUT, OUTPUT_EXISTING, NO_DEP};
  for (const TensorArgType given : tags) {
    for (const TensorArgType wanted : tags) {
      const Result<void> ran = run<pass_on>(TaskArgs()
                                                .add_tensor(x.tensor<int64_t>({8}), given)
                                                .add_scalar(static_cast<uint8_t>(wanted)));
      const bool may = (!reads(wanted) || reads(given)) && (!writes(wanted) || writes(given));
      EXPECT_EQ(ran.ok(), may) << name_of(wanted) << " of " << name_of(given);
      if (ran.ok()) continue;
      expect_error(ran, Code::kTaskFailed, "an inner task's " + std::string(name_of(wanted)));
      expect_error(ran, Code::kTaskFailed, "gives the right to ");
      worker_->clear_error(x).value();
    }
  }
}

// An inner task on the elements from scalar 0 on, scalar 1 of them, of tensor 0's buffer.
void use_range(Call& call) {
  InnerOrchestrator orch = call.orchestrator();
  Tensor t = call.ref(0);
  t.offset = call.scalar<uint64_t>(0) * 8;
  t.shape[0] = call.scalar<uint64_t>(1);
  orch.submit_sub(orch.inner_handle<nothing>(), TaskArgs().add_tensor(t, INPUT));
}

TEST_P(Inner, TasksMayUseABytesRangeOnlyWithinOneArgument) {
  worker_->register_inner(local_function<nothing>("nothing")).value();
  worker_->init().value();
  const Buffer x = worker_->create_buffer(100 * 8).value();
  const auto args = [&](uint64_t first, uint64_t count) {
    return TaskArgs()
        .add_tensor(x.tensor<int64_t>({20}, 40 * 8), INPUT)
        .add_tensor(x.tensor<int64_t>({20}, 60 * 8), INPUT)
        .add_scalar(first)
        .add_scalar(count);
  };
  EXPECT_TRUE(run<use_range>(args(40, 20)).ok());
  EXPECT_TRUE(run<use_range>(args(45, 3)).ok());
  EXPECT_TRUE(run<use_range>(args(60, 20)).ok());
  for (const auto& [first, count] :
       {std::pair(39u, 1u), {39u, 3u}, {80u, 1u}, {79u, 2u}, {0u, 100u}}) {
    expect_error(run<use_range>(args(first, count)), Code::kTaskFailed,
                 "no argument of the task surely names all of these bytes");
  }
  // Both arguments together name them, neither does alone.
  expect_error(run<use_range>(args(50, 20)), Code::kTaskFailed, "within one argument");
  expect_error(run<use_range>(args(90, 20)), Code::kTaskFailed, "leaves its buffer");
}

// Tensor 0 is a tile; inner tasks take its rows [scalar 0, + scalar 1) and columns likewise.
void use_block(Call& call) {
  InnerOrchestrator orch = call.orchestrator();
  Tensor t = call.ref(0);
  t.offset +=
      (call.scalar<uint64_t>(0) * static_cast<uint64_t>(t.stride[0]) + call.scalar<uint64_t>(2)) *
      8;
  t.shape[0] = call.scalar<uint64_t>(1);
  t.shape[1] = call.scalar<uint64_t>(3);
  orch.submit_sub(orch.inner_handle<nothing>(), TaskArgs().add_tensor(t, INOUT));
}

TEST_P(Inner, TasksMayUseARectangleOnlyWithinTheArgumentsOwn) {
  worker_->register_inner(local_function<nothing>("nothing")).value();
  worker_->init().value();
  const Buffer x = worker_->create_buffer(32 * 32 * 8).value();
  const Tensor tile = x.tensor<int64_t>({32, 32}).block(8, 8, 16, 16);
  const auto run_block = [&](uint64_t row, uint64_t rows, uint64_t column, uint64_t columns) {
    Result<void> ran = run<use_block>(TaskArgs()
                                          .add_tensor(tile, INOUT)
                                          .add_scalar(row)
                                          .add_scalar(rows)
                                          .add_scalar(column)
                                          .add_scalar(columns));
    worker_->clear_error(x).value();
    return ran;
  };
  EXPECT_TRUE(run_block(0, 16, 0, 16).ok());
  EXPECT_TRUE(run_block(3, 5, 2, 7).ok());
  EXPECT_TRUE(run_block(15, 1, 15, 1).ok());
  expect_error(run_block(0, 17, 0, 16), Code::kTaskFailed, "surely names");
  expect_error(run_block(0, 16, 1, 16), Code::kTaskFailed, "surely names");
  expect_error(run_block(0, 1, 0, 17), Code::kTaskFailed, "surely names");
  expect_error(run_block(0, 2, 16, 8), Code::kTaskFailed, "surely names");
}

// A view that is neither a range nor a rectangle.
void use_cover(Call& call) {
  InnerOrchestrator orch = call.orchestrator();
  Tensor t = call.ref(0);
  t.rank = 3;
  t.shape = {2, 2, 2};
  t.stride = {17, 5, 2};
  orch.submit_sub(orch.inner_handle<nothing>(), TaskArgs().add_tensor(t, INPUT));
}

TEST_P(Inner, ViewWhoseBytesAreNotDecidedNeedsThemAll) {
  worker_->register_inner(local_function<nothing>("nothing")).value();
  worker_->init().value();
  const Buffer x = worker_->create_buffer(64 * 8).value();
  // The range around them is the argument's, whole.
  EXPECT_TRUE(run<use_cover>(TaskArgs().add_tensor(x.tensor<int64_t>({64}), INPUT)).ok());
  Tensor odd = x.tensor<int64_t>({2, 2, 2}, 8);
  odd.stride = {17, 5, 2};
  EXPECT_TRUE(run<pass_on>(TaskArgs().add_tensor(odd, INOUT).add_scalar(INOUT)).ok());
  const Tensor columns = x.tensor<int64_t>({8, 8}).block(0, 0, 8, 7);
  expect_error(run<use_cover>(TaskArgs().add_tensor(columns, INPUT)), Code::kTaskFailed,
               "cannot be decided");
}

Tensor kept;  // of an earlier task, in the process of the child Worker

void keep_tensor(Call& call) {
  kept = call.ref(0);
}
void use_kept(Call& call) {
  InnerOrchestrator orch = call.orchestrator();
  expect_thrown(Code::kNotFound, [&] {
    orch.submit_sub(orch.inner_handle<nothing>(), TaskArgs().add_tensor(kept, NO_DEP));
  });
}

TEST_P(Inner, ArgumentOfAnEarlierTaskIsRefused) {
  worker_->register_inner(local_function<nothing>("nothing")).value();
  worker_->init().value();
  const Buffer x = worker_->create_buffer(64).value();
  const TaskArgs args = TaskArgs().add_tensor(x.tensor<int64_t>({8}), INPUT);
  EXPECT_TRUE(run<keep_tensor>(args).ok());
  expect_error(run<use_kept>(TaskArgs()), Code::kTaskFailed, "as expected: a tensor of buffer");
  // Nor is its place another's: the next task's argument may stand there.
  const Buffer y = worker_->create_buffer(64).value();
  expect_error(run<use_kept>(TaskArgs().add_tensor(y.tensor<int64_t>({8}), INPUT)),
               Code::kTaskFailed, "as expected: a tensor of buffer");
}

// Adds tensor 0 to tensor 1, element by element, by inner tasks that overlap both.
void views_of_one_buffer(Call& call) {
  InnerOrchestrator orch = call.orchestrator();
  const InnerHandle copy = orch.inner_handle<copy_add>();
  // Elements 0..7 to 8..15, then 8..15 to 0..7: the second after the first.
  orch.submit_sub(copy, TaskArgs()
                            .add_tensor(call.ref(0), INPUT)
                            .add_tensor(call.ref(1), OUTPUT)
                            .add_scalar(int64_t{100}));
  orch.submit_sub(copy, TaskArgs()
                            .add_tensor(call.ref(1), INPUT)
                            .add_tensor(call.ref(0), OUTPUT)
                            .add_scalar(int64_t{1000}));
}

TEST_P(Inner, ArgumentsOfOneBufferAreOneMemoryForDependencies) {
  worker_->register_inner(local_function<copy_add>("copy_add")).value();
  worker_->init().value();
  const Buffer x = worker_->create_buffer(16 * 8).value();
  for (int i = 0; i < 8; ++i) x.as<int64_t>()[i] = i;
  run<views_of_one_buffer>(TaskArgs()
                               .add_tensor(x.tensor<int64_t>({8}), INOUT)
                               .add_tensor(x.tensor<int64_t>({8}, 64), INOUT))
      .value();
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(x.as<int64_t>()[i], i + 1100);
    EXPECT_EQ(x.as<int64_t>()[8 + i], i + 100);
  }
}

void all_arguments(Call& call) {
  InnerOrchestrator orch = call.orchestrator();
  TaskArgs args;
  for (uint32_t i = 0; i < call.tensor_count(); ++i) args.add_tensor(call.ref(i), INPUT);
  args.set_inline(call.inline_bytes());
  const TaskRef task = orch.submit_sub(orch.inner_handle<nothing>(), args);
  orch.wait(task);
}

TEST_P(Inner, TaskOf256TensorsOfRank8WithFullInlineBytesPassesThemOn) {
  worker_->register_inner(local_function<nothing>("nothing")).value();
  worker_->init().value();
  const std::vector<uint64_t> shape = {1, 1, 1, 1, 1, 1, 1, 2};
  std::vector<Buffer> buffers;
  TaskArgs args;
  for (size_t i = 0; i < TaskArgs::kTensorsMax; ++i) {
    buffers.push_back(worker_->create_buffer(16).value());
    args.add_tensor(buffers.back().tensor(DType::kI64, shape), INPUT);
  }
  args.set_inline(std::vector<std::byte>(TaskArgs::kInlineBytesMax));
  run<all_arguments>(args).value();
}

TEST(InnerLimits, ArgumentsBeyondTheInnerWorkersTableFailTheTaskByName) {
  WorkerSpec spec = pod(StartMethod::kFork, 1, 1);
  spec.workers[0].limits.buffers = 2;
  auto worker = Worker::create(spec).value();
  const auto all = registered<all_arguments>(*worker, "all_arguments");
  worker->register_inner(local_function<nothing>("nothing")).value();
  worker->init().value();
  std::vector<Buffer> buffers;
  TaskArgs args;
  for (int i = 0; i < 3; ++i) {
    buffers.push_back(worker->create_buffer(16).value());
    args.add_tensor(buffers.back().tensor<int64_t>({2}), INPUT);
    if (i == 1) run_one(*worker, all, args).value();
  }
  expect_error(run_one(*worker, all, args), Code::kTaskFailed, "Limits::buffers");
  run_one(*worker, all, TaskArgs()).value();
  worker->close().value();
}

// ---------------------------------------------------------------- the orchestrator

void by_temporaries(Call& call) {
  InnerOrchestrator orch = call.orchestrator();
  Tensor sum = orch.temporary<int64_t>({8});
  {
    const auto scope = orch.scope();
    const Tensor twice = orch.temporary<int64_t>({8});
    orch.submit_sub(orch.inner_handle<copy_add>(), TaskArgs()
                                                       .add_tensor(call.ref(0), INPUT)
                                                       .add_tensor(twice, OUTPUT)
                                                       .add_scalar(int64_t{10}));
    orch.submit_sub(
        orch.inner_handle<copy_add>(),
        TaskArgs().add_tensor(twice, INPUT).add_tensor(sum, OUTPUT).add_scalar(int64_t{10}));
  }
  orch.submit_sub(
      orch.inner_handle<copy_add>(),
      TaskArgs().add_tensor(sum, INPUT).add_tensor(call.ref(1), OUTPUT).add_scalar(int64_t{10}));
}

TEST_P(Inner, TemporariesAndScopesCarryDataBetweenInnerTasks) {
  worker_->register_inner(local_function<copy_add>("copy_add")).value();
  worker_->init().value();
  const Buffer x = worker_->create_buffer(2 * 64).value();
  x.as<int64_t>()[3] = 5;
  for (int i = 0; i < 20; ++i) {
    run<by_temporaries>(TaskArgs()
                            .add_tensor(x.tensor<int64_t>({8}), INPUT)
                            .add_tensor(x.tensor<int64_t>({8}, 64), OUTPUT))
        .value();
    EXPECT_EQ(x.as<int64_t>()[8], 30);
    EXPECT_EQ(x.as<int64_t>()[11], 35);
  }
}

void by_automatic_storage(Call& call) {
  InnerOrchestrator orch = call.orchestrator();
  TaskArgs first = TaskArgs()
                       .add_tensor(call.ref(0), INPUT)
                       .add_tensor(Tensor::without_storage<int64_t>({8}), OUTPUT)
                       .add_scalar(int64_t{10});
  orch.submit_sub(orch.inner_handle<copy_add>(), first);
  orch.submit_sub(orch.inner_handle<copy_add>(), TaskArgs()
                                                     .add_tensor(first.tensor(1), INPUT)
                                                     .add_tensor(call.ref(1), OUTPUT)
                                                     .add_scalar(int64_t{10}));
}

TEST_P(Inner, OutputWithoutStorageGetsSome) {
  worker_->register_inner(local_function<copy_add>("copy_add")).value();
  worker_->init().value();
  const Buffer x = worker_->create_buffer(2 * 64).value();
  x.as<int64_t>()[3] = 5;
  run<by_automatic_storage>(TaskArgs()
                                .add_tensor(x.tensor<int64_t>({8}), INPUT)
                                .add_tensor(x.tensor<int64_t>({8}, 64), OUTPUT))
      .value();
  EXPECT_EQ(x.as<int64_t>()[11], 25);
}

void wait_for_failure(Call& call) {
  InnerOrchestrator orch = call.orchestrator();
  const TaskRef task =
      orch.submit_sub(orch.inner_handle<throw_text>(), TaskArgs().set_inline(bytes_of("burnt")));
  try {
    orch.wait(task);
  } catch (const InnerError& e) {
    const std::string text = e.what();
    call.set_result(static_cast<int64_t>(e.code() == Code::kTaskFailed &&
                                         text.find("burnt") != std::string::npos));
    return;
  }
  throw std::runtime_error("nothing was thrown");
}

TEST_P(Inner, WaitThrowsTheTasksErrorWhichIsTheRunsEvenWhereItIsCaught) {
  worker_->register_inner(local_function<throw_text>("throw_text")).value();
  worker_->init().value();
  expect_error(run<wait_for_failure>(TaskArgs()), Code::kTaskFailed, "burnt");
}

void throw_after_submit(Call& call) {
  InnerOrchestrator orch = call.orchestrator();
  orch.submit_sub(orch.inner_handle<fill>(),
                  TaskArgs().add_tensor(call.ref(0), OUTPUT).add_scalar(int64_t{9}));
  throw std::runtime_error("by the function itself");
}

TEST_P(Inner, WhatTheFunctionThrowsIsTheFailureAndWhatItSubmittedRuns) {
  worker_->register_inner(local_function<fill>("fill")).value();
  worker_->init().value();
  const Buffer x = worker_->create_buffer(64).value();
  expect_error(run<throw_after_submit>(TaskArgs().add_tensor(x.tensor<int64_t>({8}), OUTPUT)),
               Code::kTaskFailed, "by the function itself");
  EXPECT_EQ(x.as<int64_t>()[7], 9);
}

void outside(Call& call) {
  call.orchestrator();
}
void ref_outside(Call& call) {
  call.ref(0);
}

TEST_P(Inner, SubTasksHaveNoOrchestratorAndNoRefs) {
  worker_.reset();
  worker_ = Worker::create(spec_of(GetParam(), 1)).value();
  worker_->init().value();
  const Buffer x = worker_->create_buffer(64).value();
  const TaskArgs args = TaskArgs().add_tensor(x.tensor<int64_t>({8}), INPUT);
  const auto run_sub = [&](const CallableHandle& task) {
    return worker_->run([&](Orchestrator& orch) { orch.submit_sub(task, args).value(); });
  };
  expect_error(run_sub(registered<outside>(*worker_, "outside")), Code::kTaskFailed,
               "orchestrator() is for tasks of a child");
  expect_error(run_sub(registered<ref_outside>(*worker_, "ref_outside")), Code::kTaskFailed,
               "ref() is for tasks of a child Worker");
}

void wrong_calls(Call& call) {
  InnerOrchestrator orch = call.orchestrator();
  std::string text;
  const auto note = [&](auto&& fn) {
    try {
      fn();
      text += "nothing; ";
    } catch (const InnerError& e) {
      text += std::string(e.what()) + "; ";
    }
  };
  const InnerHandle none = orch.inner_handle<nothing>();
  note([&] { orch.wait({1u << 20, 0}); });
  note([&] { orch.temporary(static_cast<DType>(99), std::array<uint64_t, 1>{4}); });
  note([&] { orch.temporary(DType::kU8, std::vector<uint64_t>(9, 1)); });
  note([&] { orch.submit_sub(none, TaskArgs().add_tensor(Tensor(), INPUT)); });
  note([&] { orch.submit_sub(none, TaskArgs().set_inline(std::vector<std::byte>(65 * 1024))); });
  note([&] { orch.inner_handle("sha256:00"); });
  note([&] { orch.inner_handle("no/plain.name", "f"); });
  note([&] { orch.inner_handle<fill>(); });
  call.set_result(std::as_bytes(std::span(text)));
}

TEST_P(Inner, WrongCallsThrowWithTheReason) {
  worker_->register_inner(local_function<nothing>("nothing")).value();
  worker_->init().value();
  const auto handle = registered<wrong_calls>(*worker_, "wrong_calls");
  TaskRef task;
  auto run = worker_
                 ->submit([&](Orchestrator& orch) {
                   task = submit_next(orch, handle, TaskArgs()).value();
                 })
                 .value();
  run.wait().value();
  const std::vector<std::byte> bytes = run.result(task).value();
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const char* piece :
       {"has no task 0", "unknown dtype 99", "at most 8 dimensions", "a tensor without a buffer",
        "65536 inline bytes", "sha256:00 is not registered with the Worker L4/0", "plain"}) {
    EXPECT_NE(text.find(piece), std::string::npos) << piece << " in: " << text;
  }
  EXPECT_EQ(text.find("nothing; "), std::string::npos) << text;
}

// ---------------------------------------------------------------- groups and directed tasks

// Both members of a group of two are in their tasks before either ends: tensor 0 counts them.
void meet(Call& call) {
  const auto count = call.tensor<uint32_t>(0);
  ++word(count, 0);
  while (word(count, 0) < 2) {
    if (call.cancelled()) throw std::runtime_error("alone");
    ::poll(nullptr, 0, 1);
  }
  call.tensor<int64_t>(1)(0) = ::getpid();
}

void meet_in_subs(Call& call) {
  InnerOrchestrator orch = call.orchestrator();
  const TaskArgs members[] = {
      TaskArgs().add_tensor(call.ref(0), NO_DEP).add_tensor(call.ref(1), OUTPUT),
      TaskArgs().add_tensor(call.ref(0), NO_DEP).add_tensor(call.ref(2), OUTPUT)};
  orch.submit_sub_group(orch.inner_handle<meet>(), members);
}

void meet_in_hosts(Call& call) {
  InnerOrchestrator orch = call.orchestrator();
  const TaskArgs members[] = {
      TaskArgs().add_tensor(call.ref(0), NO_DEP).add_tensor(call.ref(1), OUTPUT),
      TaskArgs().add_tensor(call.ref(0), NO_DEP).add_tensor(call.ref(2), OUTPUT)};
  const int workers[] = {1, 0};
  orch.submit_next_level_group(orch.inner_handle<meet>(), members, {}, workers);
}

// The pids of the two that met.
std::pair<int64_t, int64_t> met(Worker& worker, const CallableHandle& task) {
  const Buffer count = worker.create_buffer(8).value();
  const Buffer pids = worker.create_buffer(16).value();
  run_one(worker, task,
          TaskArgs()
              .add_tensor(count.tensor<uint32_t>({1}), NO_DEP)
              .add_tensor(pids.tensor<int64_t>({1}), OUTPUT)
              .add_tensor(pids.tensor<int64_t>({1}, 8), OUTPUT))
      .value();
  return {pids.as<int64_t>()[0], pids.as<int64_t>()[1]};
}

TEST(InnerGroup, MembersOfAnInnerGroupRunAtTheSameTimeInHelpersOfTheirOwn) {
  auto worker = Worker::create(pod(StartMethod::kFork, 1, 2)).value();
  const auto task = registered<meet_in_subs>(*worker, "meet_in_subs");
  worker->register_inner(local_function<meet>("meet")).value();
  worker->init().value();
  const auto [first, second] = met(*worker, task);
  EXPECT_NE(first, second);
  worker->close().value();
}

TEST(InnerGroup, MembersOfANextLevelGroupGoToTheWorkersNamed) {
  auto worker =
      Worker::create(level(5, StartMethod::kFork, 0, {pod(StartMethod::kFork, 2, 0)})).value();
  const auto task = registered<meet_in_hosts>(*worker, "meet_in_hosts");
  worker->register_inner(local_function<meet>("meet")).value();
  worker->init().value();
  const auto [first, second] = met(*worker, task);
  const std::set<int> rack = descendants(worker->next_level_children()[0].pid);
  EXPECT_TRUE(rack.contains(static_cast<int>(first)));
  EXPECT_TRUE(rack.contains(static_cast<int>(second)));
  EXPECT_NE(first, second);
  worker->close().value();
}

TEST(InnerGroup, DirectedTasksGoToTheirHost) {
  auto worker = Worker::create(pod(StartMethod::kFork, 3, 0)).value();
  const auto task = registered<result_pid>(*worker, "result_pid");
  worker->init().value();
  const std::vector<Worker::Child> hosts = worker->next_level_children();
  TaskRef refs[3];
  auto handle = worker
                    ->submit([&](Orchestrator& orch) {
                      for (int i = 2; i >= 0; --i) {
                        refs[i] = orch.submit_next_level(task, TaskArgs(), {}, i).value();
                      }
                    })
                    .value();
  handle.wait().value();
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(handle.result_as<int64_t>(refs[i]).value(), hosts[i].pid);
  }
  worker->close().value();
}

}  // namespace
}  // namespace strata
