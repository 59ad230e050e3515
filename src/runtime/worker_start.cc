// The part of WorkerCore that is about how its children come to be.
#include <fmt/format.h>

#include <algorithm>

#include "base/result.h"
#include "runtime/child_server.h"
#include "runtime/context.h"
#include "runtime/worker_core.h"

namespace strata {

void WorkerCore::set_start_report(StartReport report) {
  // Who asked for a method knows it; who let Strata decide may wonder.
  if (spec_.start == StartMethod::kAuto && report.method == StartMethod::kExec) {
    fmt::print(stderr, "strata: {}: children start by exec of {}: {}\n", path_, report.program,
               report.reason);
  }
  const std::lock_guard lock(start_mutex_);
  start_ = std::move(report);
}

StartReport WorkerCore::start_report() const {
  const std::lock_guard lock(start_mutex_);
  if (start_.reason.empty()) return {spec_.start, "init() has not started it", 0, {}, true};
  return start_;
}

// ---------------------------------------------------------------- LocalFunction

Error WorkerCore::no_local_function(const std::string& name) const {
  const StartReport start = start_report();
  const std::string why =
      start.method == StartMethod::kExec
          ? fmt::format("they come from {} by exec ({})", start.program, start.reason)
          : "they start by exec: WorkerSpec::start asks for it";
  return Error(Code::kUnsupported, Scope::kCall,
               fmt::format("'{}' is a LocalFunction, and the children do not have the program's "
                           "functions: {}. Begin main with strata::child_entry(argc, argv) and "
                           "leave WorkerSpec::child_server empty, or make it a NativeImport, or "
                           "fork (StartMethod::kFork, before the program has other threads)",
                           name, why),
               path_);
}

// What is refused here would be refused by every child, in other words.
Result<void> WorkerCore::may_register(const registry::PreparePayload& payload) const {
  if (!std::holds_alternative<model::LocalFunctionDescriptor>(payload.descriptor)) return {};
  const bool started = life_.load(std::memory_order_acquire) == Life::kRunning;
  const bool certain_exec = spec_.start == StartMethod::kExec && spec_.child_server.empty();
  const bool possible =
      started ? start_report().local_functions : !certain_exec || runtime::child_entry_noted();
  if (possible) return {};
  return no_local_function(payload.name);
}

void WorkerCore::note_local_function(const registry::PreparePayload& payload,
                                     registry::EntryRef entry) {
  if (life_ != Life::kCreated ||
      !std::holds_alternative<model::LocalFunctionDescriptor>(payload.descriptor)) {
    return;
  }
  front_->call([&](engine::Core&) { early_local_functions_.emplace_back(entry, payload.name); });
}

Result<void> WorkerCore::check_local_functions() {
  if (start_report().local_functions) return {};
  std::string first;
  front_->call([&](engine::Core& core) {
    const auto found =
        std::find_if(early_local_functions_.begin(), early_local_functions_.end(),
                     [&](const auto& each) { return !core.registry().gone(each.first); });
    if (found != early_local_functions_.end()) first = found->second;
  });
  if (first.empty()) return {};
  return no_local_function(first);
}

}  // namespace strata
