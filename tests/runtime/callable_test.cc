// Registration: local functions and native imports, on all children or on none.
#include <sys/stat.h>

#include <filesystem>
#include <thread>

#include "tests/runtime/worker_test_util.h"

namespace strata {
namespace {

using namespace test;  // NOLINT

constexpr const char* kGood = "libnative_good.so";

class Callables : public ::testing::TestWithParam<StartMethod> {
 protected:
  void open(int children, std::vector<std::string> folders = {STRATA_TEST_LIBRARIES}) {
    auto spec = spec_of(GetParam(), children);
    spec.library_path = std::move(folders);
    worker_ = started(spec);
  }
  Result<void> run_one(const CallableHandle& callable, const TaskArgs& args) {
    return worker_->run([&](Orchestrator& orch) -> Result<void> {
      auto task = orch.submit_sub(callable, args);
      return task.ok() ? Result<void>() : task.error();
    });
  }
  std::unique_ptr<Worker> worker_;
};
INSTANTIATE_TEST_SUITE_P(Both, Callables,
                         ::testing::Values(StartMethod::kFork, StartMethod::kInline),
                         [](const auto& instance) {
                           return instance.param == StartMethod::kFork ? "Fork" : "Inline";
                         });

TEST_P(Callables, NativeImportRunsAndItsExceptionIsTold) {
  open(2);
  const auto add = worker_->register_callable(NativeImport{kGood, "native_add"});
  ASSERT_TRUE(add.ok()) << add.error().to_string();
  EXPECT_EQ(add->kind, CallableKind::kNativeImport);
  EXPECT_TRUE(add->hashid.starts_with("sha256:"));
  EXPECT_EQ(add->hashid.size(), 7u + 64u);
  Buffer x = worker_->create_buffer(64).value();
  EXPECT_TRUE(
      run_one(*add, TaskArgs().add_tensor(x.tensor<int64_t>({8}), INOUT).add_scalar(int64_t{5}))
          .ok());
  for (const int64_t v : x.as<int64_t>()) EXPECT_EQ(v, 5);
  const auto throws = worker_->register_callable(NativeImport{kGood, "native_throw"}).value();
  expect_error(run_one(throws, {}), Code::kTaskFailed, "thrown inside the library");
}

TEST_P(Callables, LibraryInCRuns) {
  open(1);
  const auto entry = worker_->register_callable(NativeImport{"libnative_c.so", "c_entry"}).value();
  EXPECT_TRUE(run_one(entry, TaskArgs().add_scalar(int32_t{0})).ok());
  expect_error(run_one(entry, TaskArgs().add_scalar(int32_t{17})), Code::kTaskFailed, "17");
}

TEST_P(Callables, EveryBadLibraryIsRefusedByNameAndNothingIsRegistered) {
  open(2);
  const auto refuse = [&](const NativeImport& import, Code code,
                          std::initializer_list<std::string_view> pieces) {
    const auto result = worker_->register_callable(import);
    for (const std::string_view piece : pieces) expect_error(result, code, piece);
    // Nothing stays: the same again is refused in the same way, and a good one goes.
    expect_error(worker_->register_callable(import), code, *pieces.begin());
  };
  refuse({"libno_such_thing.so", "f"}, Code::kNotFound,
         {"libno_such_thing.so", "WorkerSpec::library_path", STRATA_TEST_LIBRARIES});
  refuse({"libnative_without_abi.so", "c_entry"}, Code::kAbiMismatch,
         {"libnative_without_abi.so", "strata_abi"});
  refuse({"libnative_of_another_abi.so", "c_entry"}, Code::kAbiMismatch,
         {"libnative_of_another_abi.so", "999", std::to_string(STRATA_ABI)});
  refuse({kGood, "no_such_entry"}, Code::kNotFound, {"no_such_entry", kGood});
  refuse({"libnative_unresolved.so", "c_entry"}, Code::kNotFound,
         {"libnative_unresolved.so", "function_that_nobody_has"});
  refuse({"folder/libnative_good.so", "native_add"}, Code::kInvalidArgument, {"folder/"});
  refuse({"../libnative_good.so", "native_add"}, Code::kInvalidArgument, {"../"});
  refuse({"", "native_add"}, Code::kInvalidArgument, {"library"});
  refuse({kGood, ""}, Code::kInvalidArgument, {"symbol"});
  Buffer x = worker_->create_buffer(8).value();
  const auto good = worker_->register_callable(NativeImport{kGood, "native_add"}).value();
  EXPECT_TRUE(
      run_one(good, TaskArgs().add_tensor(x.tensor<int64_t>({1}), INOUT).add_scalar(int64_t{1}))
          .ok());
}

TEST_P(Callables, WithoutALibraryPathTheTextSaysSo) {
  open(1, {});
  expect_error(worker_->register_callable(NativeImport{kGood, "native_add"}), Code::kNotFound,
               "library_path");
}

TEST_P(Callables, FirstFolderThatHasTheLibraryIsTaken) {
  open(1, {"/no/such/folder", STRATA_TEST_LIBRARIES});
  EXPECT_TRUE(worker_->register_callable(NativeImport{kGood, "native_add"}).ok());
}

TEST_P(Callables, FileThatIsNoLibraryIsRefusedInTheLoadersWords) {
  const std::string folder =
      ::testing::TempDir() + "test_bad_library_" + std::to_string(::getpid());
  std::filesystem::create_directory(folder);
  std::ofstream(folder + "/libbroken.so") << "this is no ELF file";
  open(1, {folder});
  expect_error(worker_->register_callable(NativeImport{"libbroken.so", "f"}), Code::kNotFound,
               "libbroken.so");
  // Once it is there in a good state, the same call goes.
  std::filesystem::copy_file(std::string(STRATA_TEST_LIBRARIES) + "/" + kGood,
                             folder + "/libbroken.so",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_TRUE(worker_->register_callable(NativeImport{"libbroken.so", "native_add"}).ok());
  std::filesystem::remove_all(folder);
}

TEST_P(Callables, SameCallableTwiceIsOneAndCountsItsHandles) {
  open(2);
  const auto a = registered<nothing>(*worker_, "nothing");
  const auto b = registered<nothing>(*worker_, "another name");
  EXPECT_EQ(a.hashid, b.hashid);
  ASSERT_TRUE(worker_->unregister_callable(a).ok());
  EXPECT_TRUE(run_one(b, {}).ok());
  ASSERT_TRUE(worker_->unregister_callable(b).ok());
  expect_error(run_one(b, {}), Code::kNotFound, "");
  expect_error(worker_->unregister_callable(b), Code::kNotFound, "");
}

TEST_P(Callables, RegisteredBeforeInitIsThereAfterIt) {
  auto spec = spec_of(GetParam(), 2);
  spec.library_path = {STRATA_TEST_LIBRARIES};
  worker_ = Worker::create(spec).value();
  const auto none = registered<nothing>(*worker_, "nothing");
  const auto gone = registered<fill>(*worker_, "fill");
  const auto native = worker_->register_callable(NativeImport{kGood, "native_add"}).value();
  ASSERT_TRUE(worker_->unregister_callable(gone).ok());
  Buffer x = worker_->create_buffer(8).value();
  x.as<int64_t>()[0] = 3;  // made before the children
  ASSERT_TRUE(worker_->init().ok());
  EXPECT_TRUE(run_one(none, {}).ok());
  EXPECT_TRUE(
      run_one(native, TaskArgs().add_tensor(x.tensor<int64_t>({1}), INOUT).add_scalar(int64_t{4}))
          .ok());
  EXPECT_EQ(x.as<int64_t>()[0], 7);
  expect_error(run_one(gone, {}), Code::kNotFound, "");
}

TEST_P(Callables, BadOneBeforeInitIsRefusedByInitByName) {
  auto spec = spec_of(GetParam(), 2);
  spec.library_path = {STRATA_TEST_LIBRARIES};
  worker_ = Worker::create(spec).value();
  ASSERT_TRUE(worker_->register_callable(NativeImport{"libno_such_thing.so", "f"}).ok());
  const auto begun = worker_->init();
  ASSERT_FALSE(begun.ok());
  EXPECT_NE(begun.error().to_string().find("libno_such_thing.so"), std::string::npos)
      << begun.error().to_string();
}

TEST_P(Callables, UnregisterAndRegisterAgainAtOnceGoes) {
  open(2);
  for (int i = 0; i < 200; ++i) {
    const auto none = worker_->register_callable(local_function<nothing>("nothing"));
    ASSERT_TRUE(none.ok()) << i << ": " << none.error().to_string();
    ASSERT_TRUE(run_one(*none, {}).ok());
    ASSERT_TRUE(worker_->unregister_callable(*none).ok());
  }
}

TEST_P(Callables, NullEntryIsRefused) {
  open(1);
  expect_error(worker_->register_callable(LocalFunction{}), Code::kInvalidArgument, "entry");
  int on_the_stack = 0;
  expect_error(worker_->register_callable(
                   LocalFunction{reinterpret_cast<strata_entry>(&on_the_stack), "data"}),
               Code::kNotFound, "");
}

// ---------------------------------------------------------------- with processes alone

TEST(CallablesOfChildren, QueuedTasksOfAnUnregisteredCallableRun) {
  const auto worker = started(StartMethod::kFork, 2);
  const auto stand = registered<stand_at_gate>(*worker, "stand");
  const auto count = registered<count_call>(*worker, "count");
  Gate gate(*worker);
  Gate counts(*worker);
  auto handle = worker->submit([&](Orchestrator& orch) {
    orch.submit_sub(stand, gate.args()).value();
    orch.submit_sub(stand, gate.args()).value();
    gate.await_started(2);  // at one child each, before anything stands behind
    for (int i = 0; i < 50; ++i) {
      orch.submit_sub(count, counts.args().add_scalar(kFirstFree)).value();
    }
  });
  ASSERT_TRUE(gate.await_started(2));
  ASSERT_TRUE(worker->unregister_callable(count).ok());
  expect_error(worker->run([&](Orchestrator& orch) -> Result<void> {
    auto task = orch.submit_sub(count, counts.args().add_scalar(kFirstFree));
    gate.open();
    return task.ok() ? Result<void>() : task.error();
  }),
               Code::kNotFound, "");
  EXPECT_TRUE(handle->wait().ok());
  EXPECT_EQ(counts.get(kFirstFree), 50u);
}

TEST(CallablesOfChildren, RegistrationWaitsBehindTheTasksThatRun) {
  const auto worker = started(StartMethod::kFork, 2);
  const auto stand = registered<stand_at_gate>(*worker, "stand");
  Gate gate(*worker);
  auto handle =
      worker->submit([&](Orchestrator& orch) { orch.submit_sub(stand, gate.args()).value(); });
  ASSERT_TRUE(gate.await_started(1));
  std::atomic<bool> registered_late = false;
  std::thread other([&] {
    const auto late = worker->register_callable(local_function<nothing>("nothing"));
    EXPECT_TRUE(late.ok());
    registered_late = true;
  });
  EXPECT_FALSE(registered_late);  // the child that stands at the gate has not answered
  gate.open();
  other.join();
  EXPECT_TRUE(handle->wait().ok());
}

TEST(CallablesOfChildren, ManyThreadsRegisterAtOnce) {
  const auto worker = started(StartMethod::kFork, 2);
  std::vector<std::thread> threads;
  std::atomic<int> failures = 0;
  const std::vector<Callable> all{local_function<nothing>("a"), local_function<fill>("b"),
                                  local_function<sum_all>("c"), local_function<scale_add>("d")};
  for (const Callable& callable : all) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        const auto handle = worker->register_callable(callable);
        if (!handle || !worker->unregister_callable(*handle)) ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
}

// Each child has a current folder of its own, so a relative path may exist for one of them alone.
void change_folder(Call& call) {
  const auto gate = call.tensor<uint32_t>(0);
  ++word(gate, kStarted);
  while (word(gate, kOpen) == 0 && !call.cancelled()) ::poll(nullptr, 0, 1);
  const auto to = call.inline_bytes();
  const std::string folder(reinterpret_cast<const char*>(to.data()), to.size());
  if (::chdir(folder.c_str()) != 0) throw std::runtime_error("chdir " + folder);
}

TEST(CallablesOfChildren, LibraryThatOneChildAloneCanLoadIsRegisteredOnNone) {
  auto spec = spec_of(StartMethod::kFork, 2);
  spec.library_path = {"."};
  const auto worker = started(spec);
  const auto change = registered<change_folder>(*worker, "change_folder");
  const auto change_both = [&](std::string_view first, std::string_view second) {
    Gate gate(*worker);
    auto handle = worker->submit([&](Orchestrator& orch) {
      orch.submit_sub(change, gate.args().set_inline(bytes_of(first))).value();
      orch.submit_sub(change, gate.args().set_inline(bytes_of(second))).value();
    });
    EXPECT_TRUE(gate.await_started(2));  // at one child each
    gate.open();
    EXPECT_TRUE(handle->wait().ok());
  };
  const NativeImport import{kGood, "native_add"};
  change_both(STRATA_TEST_LIBRARIES, "/");
  expect_error(worker->register_callable(import), Code::kNotFound, kGood);
  expect_error(worker->register_callable(import), Code::kNotFound, kGood);
  change_both(STRATA_TEST_LIBRARIES, STRATA_TEST_LIBRARIES);
  const auto add = worker->register_callable(import);
  ASSERT_TRUE(add.ok()) << add.error().to_string();
  Buffer x = worker->create_buffer(16 * 8).value();
  EXPECT_TRUE(worker
                  ->run([&](Orchestrator& orch) {
                    for (uint64_t i = 0; i < 16; ++i) {
                      orch.submit_sub(*add, TaskArgs()
                                                .add_tensor(x.tensor<int64_t>({1}, i * 8), INOUT)
                                                .add_scalar(int64_t{2}))
                          .value();
                    }
                  })
                  .ok());
  for (const int64_t v : x.as<int64_t>()) EXPECT_EQ(v, 2);
}

TEST(CallablesOfChildren, ChildThatDiesDuringARegistrationFailsItAndTheNextGoes) {
  const auto worker = started(StartMethod::kFork, 2);
  const auto stand = registered<stand_at_gate>(*worker, "stand");
  Gate gate(*worker);
  auto handle =
      worker->submit([&](Orchestrator& orch) { orch.submit_sub(stand, gate.args()).value(); });
  ASSERT_TRUE(gate.await_started(1));
  std::thread other([&] {
    const auto late = worker->register_callable(local_function<nothing>("nothing"));
    // Killed while it stood behind the task, or before it was asked at all.
    if (!late) expect_error(late, Code::kEndpointFailed, "lost");
  });
  ::kill(static_cast<int>(gate.get(kPid)), SIGKILL);
  other.join();
  expect_error(handle->wait(), Code::kEndpointFailed, "signal 9");
  const auto again = worker->register_callable(local_function<nothing>("nothing"));
  ASSERT_TRUE(again.ok()) << again.error().to_string();
  EXPECT_TRUE(worker->run([&](Orchestrator& orch) { orch.submit_sub(*again, {}).value(); }).ok());
}

}  // namespace
}  // namespace strata
