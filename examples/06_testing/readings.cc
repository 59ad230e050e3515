#include "readings.h"

#include <stdexcept>

namespace readings {
namespace {

// Tensor 0 [0] = the number in the inline bytes.
void parse(strata::Call& call) {
  const auto bytes = call.inline_bytes();
  const std::string line(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  size_t used = 0;
  const double value = std::stod(line, &used);
  if (used != line.size()) throw std::runtime_error("no number: " + line);
  call.tensor<double>(0)(0) = value;
}

void scale(strata::Call& call) {
  for (double& v : call.tensor<double>(0).span()) v *= call.scalar<double>(0);
}

void total(strata::Call& call) {
  double sum = 0;
  for (const double v : call.tensor<double>(0).span()) sum += v;
  call.set_result(sum);
}

// Looks for something that is not there, until it is told to stop.
void search(strata::Call& call) {
  while (!call.cancelled()) {
  }
  throw std::runtime_error("stopped before its end");
}

}  // namespace

strata::Result<Callables> register_all(strata::Worker& worker) {
  Callables out;
  const auto add = [&](const strata::Callable& callable,
                       strata::CallableHandle* handle) -> strata::Result<void> {
    const auto made = worker.register_callable(callable);
    if (!made) return made.error();
    *handle = *made;
    return {};
  };
  if (auto added = add(strata::local_function<parse>("parse"), &out.parse); !added) {
    return added.error();
  }
  if (auto added = add(strata::local_function<scale>("scale"), &out.scale); !added) {
    return added.error();
  }
  if (auto added = add(strata::local_function<total>("total"), &out.total); !added) {
    return added.error();
  }
  if (auto added = add(strata::local_function<search>("search"), &out.search); !added) {
    return added.error();
  }
  return out;
}

strata::Result<strata::TaskRef> build(strata::Orchestrator& orch, const Callables& callables,
                                      const std::vector<std::string>& lines, double factor,
                                      const strata::Buffer& values) {
  for (size_t i = 0; i < lines.size(); ++i) {
    const strata::Tensor place = values.tensor<double>({1}, i * sizeof(double));
    strata::TaskArgs args;
    args.add_tensor(place, strata::OUTPUT_EXISTING)
        .set_inline(std::as_bytes(std::span(lines[i].data(), lines[i].size())));
    if (auto task = orch.submit_sub(callables.parse, args); !task) return task.error();
    strata::TaskArgs scaled;
    scaled.add_tensor(place, strata::INOUT).add_scalar(factor);
    if (auto task = orch.submit_sub(callables.scale, scaled); !task) return task.error();
  }
  strata::TaskArgs all;
  all.add_tensor(values.tensor<double>({lines.size()}), strata::INPUT);
  return orch.submit_sub(callables.total, all);
}

}  // namespace readings
