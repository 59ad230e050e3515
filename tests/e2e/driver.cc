// A program as a user writes it, over libstrata: the tests start it, watch it and end it.
//
//   driver print <children>     prints without a newline before init and after close
//   driver die <children>       runs tasks that stay; prints the pids of its children, then waits
//   driver exit <children>      ends by exit() inside a run, without close
//   driver pod <children>       an L5 over two L4s, each over an L3 with children, which run tasks
//                               that stay; prints the pids of the two, then waits
#include <strata/strata.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

namespace {

void print_line(strata::Call& call) {
  std::printf("task %d\n", call.scalar<int>(0));
  std::cout << "stream " << call.scalar<int>(0) << "\n";
}

void stay(strata::Call& call) {
  const auto started = call.tensor<uint32_t>(0);
  __atomic_fetch_add(started.data(), 1, __ATOMIC_SEQ_CST);
  for (;;) ::pause();
}

std::unique_ptr<strata::Worker> worker_with(int children) {
  strata::WorkerSpec spec;
  spec.sub_workers = children;
  spec.allow_threads = std::getenv("STRATA_TEST_ALLOW_THREADS") != nullptr;
  auto worker = strata::Worker::create(spec).value();
  worker->init().value();
  return worker;
}

int print(int children) {
  std::printf("before init;");  // still in the buffer when children are forked
  std::cout << "stream before init;";
  auto worker = worker_with(children);
  const auto line =
      worker->register_callable(strata::local_function<print_line>("print_line")).value();
  worker
      ->run([&](strata::Orchestrator& orch) {
        for (int i = 0; i < 10; ++i) {
          orch.submit_sub(line, strata::TaskArgs().add_scalar(i)).value();
        }
      })
      .value();
  std::printf("before close;");
  worker->close().value();
  std::printf("after close\n");
  return 0;
}

void stay_below(strata::Call& call) {
  strata::InnerOrchestrator orch = call.orchestrator();
  orch.submit_sub(orch.inner_handle<stay>(),
                  strata::TaskArgs().add_tensor(call.ref(0), strata::NO_DEP));
}

void stay_two_below(strata::Call& call) {
  strata::InnerOrchestrator orch = call.orchestrator();
  orch.submit_next_level(orch.inner_handle<stay_below>(),
                         strata::TaskArgs().add_tensor(call.ref(0), strata::NO_DEP));
}

int pod_until_killed(int children) {
  strata::WorkerSpec spec;
  spec.level = 5;
  spec.allow_threads = std::getenv("STRATA_TEST_ALLOW_THREADS") != nullptr;
  strata::WorkerSpec host = spec, rack = spec;
  host.level = 3;
  host.sub_workers = children;
  rack.level = 4;
  rack.workers = {host};
  auto worker = strata::Worker::create(spec).value();
  for (int i = 0; i < 2; ++i) worker->add_worker(rack).value();
  worker->init().value();
  const auto task =
      worker->register_callable(strata::local_function<stay_two_below>("stay_two_below")).value();
  worker->register_inner(strata::local_function<stay_below>("stay_below")).value();
  worker->register_inner(strata::local_function<stay>("stay")).value();
  strata::Buffer started = worker->create_buffer(4).value();
  auto handle = worker->submit([&](strata::Orchestrator& orch) {
    for (int i = 0; i < 2; ++i) {
      orch.submit_next_level(
              task, strata::TaskArgs().add_tensor(started.tensor<uint32_t>({1}), strata::NO_DEP))
          .value();
    }
  });
  while (__atomic_load_n(started.as<uint32_t>().data(), __ATOMIC_SEQ_CST) < 2) {
    static_cast<void>(handle->wait_for(1));
  }
  for (const auto& child : worker->next_level_children()) std::printf("%d\n", child.pid);
  std::printf("ready\n");
  std::fflush(stdout);
  for (;;) ::pause();
}

int stay_until_killed(int children, bool leave) {
  auto worker = worker_with(children);
  const auto task = worker->register_callable(strata::local_function<stay>("stay")).value();
  strata::Buffer started = worker->create_buffer(4).value();
  auto handle = worker->submit([&](strata::Orchestrator& orch) {
    // One child stays idle.
    for (int i = 0; i + 1 < children; ++i) {
      orch.submit_sub(task,
                      strata::TaskArgs().add_tensor(started.tensor<uint32_t>({1}), strata::NO_DEP))
          .value();
    }
  });
  while (__atomic_load_n(started.as<uint32_t>().data(), __ATOMIC_SEQ_CST) + 1 <
         static_cast<uint32_t>(children)) {
    static_cast<void>(handle->wait_for(1));
  }
  for (const auto& child : worker->sub_children()) std::printf("%d\n", child.pid);
  std::printf("ready\n");
  std::fflush(stdout);
  if (leave) std::exit(7);
  for (;;) ::pause();
}

}  // namespace

int main(int argc, char** argv) {
  const int children = argc > 2 ? std::atoi(argv[2]) : 2;
  if (argc > 1 && std::strcmp(argv[1], "print") == 0) return print(children);
  if (argc > 1 && std::strcmp(argv[1], "die") == 0) return stay_until_killed(children, false);
  if (argc > 1 && std::strcmp(argv[1], "exit") == 0) return stay_until_killed(children, true);
  if (argc > 1 && std::strcmp(argv[1], "pod") == 0) return pod_until_killed(children);
  return 2;
}
