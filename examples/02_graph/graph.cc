// A graph: two halves of a buffer are filled side by side, then summed. Nothing says in which
// order: tasks that name the same bytes are ordered by what they do with them.
#include <strata/strata.h>

#include <cstdio>
#include <numeric>

static void fill(strata::Call& call) {
  for (double& v : call.tensor<double>(0).span()) v = call.scalar<double>(0);
}

static void sum(strata::Call& call) {
  const auto x = call.tensor<const double>(0).span();
  call.tensor<double>(1)(0) = std::accumulate(x.begin(), x.end(), 0.0);
}

int main() {
  strata::WorkerSpec spec;
  spec.sub_workers = 2;
  auto worker = strata::Worker::create(spec).value();
  const auto fill_task = worker->register_callable(strata::local_function<fill>("fill")).value();
  const auto sum_task = worker->register_callable(strata::local_function<sum>("sum")).value();
  worker->init().value();

  // Shared memory: helpers and this program see the same bytes.
  const strata::Buffer values = worker->create_buffer(2000 * sizeof(double)).value();
  const strata::Buffer total = worker->create_buffer(sizeof(double)).value();
  const strata::Tensor left = values.tensor<double>({1000});
  const strata::Tensor right = values.tensor<double>({1000}, 1000 * sizeof(double));
  const strata::Tensor all = values.tensor<double>({2000});

  const auto with = [](const strata::Tensor& t, strata::TensorArgType tag) {
    return strata::TaskArgs().add_tensor(t, tag);
  };
  auto run =
      worker
          ->submit([&](strata::Orchestrator& orch) {
            orch.submit_sub(fill_task, with(left, strata::OUTPUT).add_scalar(1.0)).value();
            orch.submit_sub(fill_task, with(right, strata::OUTPUT).add_scalar(2.0)).value();
            orch.submit_sub(
                    sum_task,
                    with(all, strata::INPUT).add_tensor(total.tensor<double>({1}), strata::OUTPUT))
                .value();
          })
          .value();
  run.wait().value();

  std::printf("total %g by %llu tasks\n", total.as<double>()[0],
              static_cast<unsigned long long>(run.progress().succeeded));
  worker->close().value();
}
