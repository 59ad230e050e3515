// A graph on two helper processes, by an installed Strata: one local function, one library.
#include <strata/strata.h>

#include <cstdio>
#include <filesystem>

namespace {

void add_one(strata::Call& call) {
  auto x = call.tensor<double>(0);
  for (double& v : x.span()) v += 1;
}

strata::Result<void> run(strata::Worker& worker, const strata::Buffer& x) {
  auto add = worker.register_callable(strata::local_function<add_one>("add_one"));
  if (!add) return add.error();
  const std::filesystem::path library = CALLABLE_CC;
  auto scale = worker.register_callable(strata::NativeImport{library.filename(), "scale"});
  if (!scale) return scale.error();
  if (auto started = worker.init(); !started) return started.error();
  const strata::Tensor tensor = x.tensor<double>({3});
  return worker.run([&](strata::Orchestrator& orch) -> strata::Result<void> {
    for (const strata::CallableHandle& callable : {*add, *scale}) {
      strata::TaskArgs args;
      args.add_tensor(tensor, strata::INOUT).add_scalar(2.0);
      if (auto task = orch.submit_sub(callable, args); !task) return task.error();
    }
    return {};
  });
}

}  // namespace

int main() {
  strata::WorkerSpec spec;
  spec.sub_workers = 2;
  spec.library_path = {std::filesystem::path(CALLABLE_CC).parent_path()};
  auto worker = strata::Worker::create(spec).value();
  const strata::Buffer x = worker->create_buffer(3 * sizeof(double)).value();
  const auto outcome = run(*worker, x);
  if (!outcome) std::fprintf(stderr, "%s\n", outcome.error().to_string().c_str());
  const auto values = x.as<double>();
  const bool right = values[0] == 2 && values[1] == 2 && values[2] == 2;
  if (!right) std::fprintf(stderr, "not (0 + 1) * 2: %g\n", values[0]);
  worker->close().value();
  return outcome.ok() && right ? 0 : 1;
}
