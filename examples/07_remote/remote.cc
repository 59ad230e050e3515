// A Worker on another host: the sum of a tensor, and a check of it by the helpers there.
//
//   strata serve --allow-library FOLDER      there, where FOLDER has libremote_far.so
//   07_remote [--key FILE] HOST:PORT         here
#include <strata/strata.h>

#include <cstdio>
#include <cstring>
#include <string>

using strata::TaskArgs;

// Runs both tasks on `values`; the sum, or what went wrong.
static strata::Result<double> run_there(strata::Worker& worker, const strata::CallableHandle& sum,
                                        const strata::CallableHandle& halves,
                                        const strata::Tensor& values) {
  strata::TaskRef total;
  auto run = worker.submit([&](strata::Orchestrator& orch) -> strata::Result<void> {
    auto checked = orch.submit_next_level(halves, TaskArgs().add_tensor(values, strata::INPUT));
    if (!checked) return checked.error();
    auto added = orch.submit_next_level(sum, TaskArgs().add_tensor(values, strata::INPUT));
    if (!added) return added.error();
    total = *added;
    return {};
  });
  if (!run) return run.error();
  if (auto outcome = run->wait(); !outcome) return outcome.error();
  return run->result_as<double>(total);
}

int main(int argc, char** argv) {
  strata::RemoteWorkerSpec far;
  far.num_sub_workers = 2;
  if (argc == 4 && std::strcmp(argv[1], "--key") == 0) {
    far.key_file = argv[2];
  } else if (argc != 2) {
    std::fprintf(stderr, "usage: 07_remote [--key FILE] HOST:PORT\n");
    return 2;
  }
  far.endpoint = argv[argc - 1];

  auto worker = strata::Worker::create({.level = 4}).value();
  if (auto added = worker->add_remote_worker(far); !added) {
    std::fprintf(stderr, "%s\n", added.error().to_string().c_str());
    return 1;
  }
  auto sum = worker->register_callable(strata::NativeImport{"libremote_far.so", "sum"}).value();
  auto halves =
      worker->register_callable(strata::NativeImport{"libremote_far.so", "halves"}).value();
  worker->register_inner(strata::NativeImport{"libremote_far.so", "positive"}).value();
  if (auto begun = worker->init(); !begun) {
    std::fprintf(stderr, "%s\n", begun.error().to_string().c_str());
    return 1;
  }

  auto x = worker->create_buffer(1000 * sizeof(double)).value();
  for (size_t i = 0; i < 1000; ++i) x.as<double>()[i] = static_cast<double>(i);
  const strata::Tensor values = x.tensor<double>({1000});
  const auto total = run_there(*worker, sum, halves, values);
  std::printf("sum %s\n",
              total ? std::to_string(*total).c_str() : total.error().to_string().c_str());

  x.as<double>()[700] = -1;
  const auto failed = run_there(*worker, sum, halves, values);
  std::printf("then %s\n", failed ? "no error" : failed.error().message().c_str());

  if (auto closed = worker->close(); !closed) {
    std::fprintf(stderr, "%s\n", closed.error().to_string().c_str());
    return 1;
  }
  return total && !failed ? 0 : 1;
}
