// A graph: two halves of a buffer are filled side by side, then summed. Nothing says in which
// order: tasks that name the same bytes are ordered by what they do with them.
#include <strata/strata.h>

#include <cstdio>

static void fill(strata::Call& call) {
  for (double& v : call.tensor<double>(0).span()) v = call.scalar<double>(0);
}

static void sum(strata::Call& call) {
  double total = 0;
  for (const double v : call.tensor<const double>(0).span()) total += v;
  call.set_result(total);
}

int main() {
  using strata::TaskArgs;
  strata::WorkerSpec spec;
  spec.sub_workers = 2;  // two helper processes
  auto worker = strata::Worker::create(spec).value();
  auto fill_task = worker->register_callable(strata::local_function<fill>("fill")).value();
  auto sum_task = worker->register_callable(strata::local_function<sum>("sum")).value();
  worker->init().value();

  auto x = worker->create_buffer(2000 * sizeof(double)).value();  // memory that all of them see
  auto left = x.tensor<double>({1000});
  auto right = x.tensor<double>({1000}, 1000 * sizeof(double));

  strata::TaskRef total;
  auto build = [&](strata::Orchestrator& orch) {
    orch.submit_sub(fill_task, TaskArgs().add_tensor(left, strata::OUTPUT).add_scalar(1.0)).value();
    orch.submit_sub(fill_task, TaskArgs().add_tensor(right, strata::OUTPUT).add_scalar(2.0))
        .value();
    auto all = TaskArgs().add_tensor(x.tensor<double>({2000}), strata::INPUT);
    total = orch.submit_sub(sum_task, all).value();
  };
  auto run = worker->submit(build).value();
  run.wait().value();

  std::printf("total %g by %llu tasks\n", run.result_as<double>(total).value(),
              static_cast<unsigned long long>(run.progress().succeeded));
  worker->close().value();
}
