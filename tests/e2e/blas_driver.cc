// A program as a user writes it, linked with OpenBLAS, which starts threads before main.
//
//   blas_driver entry    its main begins with child_entry; its own function runs in the children
//   blas_driver plain    it does not; NativeImport of the library argv[2]
//
// Prints how its children started and what two of them made of a product.
#include <cblas.h>
#include <strata/strata.h>

#include <cstdio>
#include <cstring>

namespace {

// Two by two, by the library that has the threads.
void multiply(strata::Call& call) {
  const double a[] = {1, 2, 3, 4};
  double c[4] = {};
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 2, 2, 2, 1.0, a, 2, a, 2, 0.0, c, 2);
  const auto out = call.tensor<int64_t>(0);
  for (uint64_t i = 0; i < 4; ++i) out(i) += static_cast<int64_t>(c[i]);
}

int run(strata::Worker& worker, const strata::CallableHandle& task, bool native) {
  strata::Buffer buffer = worker.create_buffer(4 * sizeof(int64_t)).value();
  const auto outcome = worker.run([&](strata::Orchestrator& orch) {
    for (int i = 0; i < 2; ++i) {
      strata::TaskArgs args;
      args.add_tensor(buffer.tensor<int64_t>({4}), strata::INOUT);
      if (native) args.add_scalar(int64_t{7});
      orch.submit_sub(task, args).value();
    }
  });
  if (!outcome) {
    std::printf("%s\n", outcome.error().to_string().c_str());
    return 1;
  }
  for (size_t i = 0; i < 4; ++i) {
    std::printf("%lld ", static_cast<long long>(buffer.as<int64_t>()[i]));
  }
  return worker.close().ok() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const bool plain = argc > 2 && std::strcmp(argv[1], "plain") == 0;
  if (!plain) strata::child_entry(argc, argv);
  strata::WorkerSpec spec;
  spec.sub_workers = 2;
  if (plain) spec.library_path = {argv[2]};
  auto worker = strata::Worker::create(spec).value();
  const strata::Result<void> started = worker->init();
  if (!started) {
    std::printf("%s\n", started.error().to_string().c_str());
    return 1;
  }
  const strata::StartReport report = worker->start_report();
  std::printf("%s: %s\n", report.method == strata::StartMethod::kExec ? "exec" : "fork",
              report.reason.c_str());
  if (plain) {
    const auto local = worker->register_callable(strata::local_function<multiply>("multiply"));
    std::printf("%s\n", local ? "registered" : local.error().to_string().c_str());
    const auto task =
        worker->register_callable(strata::NativeImport{"libnative_good.so", "native_add"});
    return run(*worker, task.value(), true);
  }
  const auto task = worker->register_callable(strata::local_function<multiply>("multiply"));
  return run(*worker, task.value(), false);
}
