#include "account.h"

#include <chrono>
#include <cinttypes>
#include <cstdarg>
#include <utility>

#include "problem.h"
#include "progress.h"
#include "verify.h"

namespace ridge {

void Account::fail(std::string why, int code) {
  if (report_.code != 0) return;
  report_.code = code;
  report_.error = std::move(why);
}

void Account::say(const char* format, ...) const {
  if (out_ == nullptr) return;
  va_list args;
  va_start(args, format);
  std::vfprintf(out_, format, args);
  va_end(args);
}

std::optional<Samples> Account::load() {
  const auto digits = load_digits(options_.data);
  if (!digits) {
    fail(digits.error(), kBadInput);
    return std::nullopt;
  }
  if (digits->size() < 3) {
    fail(options_.data + ": every third line is predicted, and it has fewer than three", kBadInput);
    return std::nullopt;
  }
  Samples samples = split(*digits, options_.augment);
  if (samples.size() > kLinesMax) {
    fail(options_.data + ": with what --augment adds it is more than " + std::to_string(kLinesMax) +
             " samples",
         kBadInput);
    return std::nullopt;
  }
  report_.digits = digits->size();
  report_.learned = samples.learned.size();
  report_.predicted = samples.predicted.size();
  report_.plain = samples.predicted_as_they_were;
  say("%zu digits%s: ", digits->size(),
      options_.augment ? ", each moved by a pixel to 4 sides too" : "");
  if (options_.augment) say("%zu samples, ", samples.size());
  say("%zu to learn from, %zu to predict\n", samples.learned.size(), samples.predicted.size());
  return samples;
}

strata::Result<StepReport> Account::run_step(strata::Worker& worker, const std::string& name,
                                             const Build& build) {
  const auto start = std::chrono::steady_clock::now();
  auto handle = worker.submit(build);
  if (!handle) return std::move(handle).error();
  if (auto outcome = Progress(options_.program, name).wait(*handle); !outcome) {
    return std::move(outcome).error();
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const strata::RunStats stats = handle->stats();
  StepReport step;
  step.name = name;
  step.tasks = stats.progress.succeeded;
  step.dependencies = stats.dependencies;
  step.seconds = seconds.count();
  return step;
}

void Account::tell_head(size_t hosts) const {
  say("%-8s %8s %13s", "step", hosts > 0 ? "L4 tasks" : "tasks", "dependencies");
  for (size_t host = 0; host < hosts; ++host) {
    say(" %8s", ("in L4/" + std::to_string(host)).c_str());
  }
  say(" %8s %8s\n", "seconds", "Gflop/s");
}

void Account::tell(StepReport step) {
  say("%-8s %8" PRIu64 " %13" PRIu64, step.name.c_str(), step.tasks, step.dependencies);
  for (const uint64_t leaves : step.leaves) say(" %8" PRIu64, leaves);
  say(" %8.3f", step.seconds);
  if (step.flops > 0.0) say(" %8.2f", step.flops / step.seconds * 1e-9);
  say("\n");
  report_.seconds += step.seconds;
  report_.steps.push_back(std::move(step));
}

void Account::close(strata::Worker& worker) {
  if (const auto closed = worker.close(); !closed) return fail(closed.error().to_string());
  if (!options_.timeline.empty()) {
    say("timeline: %s, for ui.perfetto.dev\n", options_.timeline.c_str());
  }
}

void Account::end(int signal_number) {
  if (signal_number == 0) return;
  if (report_.error.empty()) report_.error = "ended by a signal";
  report_.code = 128 + signal_number;
}

void Account::judge(const Matrices& matrices) {
  const std::vector<uint8_t> predictions = matrices.predictions();
  for (size_t i = 0; i < predictions.size(); ++i) {
    const bool right = predictions[i] == matrices.labels()[i];
    report_.right += right;
    report_.plain_right += right && i < report_.plain;
  }
  say("accuracy %.4f (%zu of %zu)", report_.accuracy(), report_.right, predictions.size());
  if (report_.plain < predictions.size()) {
    say("; of the images as they were %.4f (%zu of %zu)", report_.plain_accuracy(),
        report_.plain_right, report_.plain);
  }
  say("\n");

  const auto reference = run_reference(options_.reference, options_.data, options_.augment,
                                       matrices.learned(), matrices.predicted());
  if (!reference) return fail("no reference: " + reference.error());
  report_.compared = true;
  for (size_t i = 0; i < predictions.size(); ++i) {
    report_.different += predictions[i] != reference->predictions[i];
  }
  report_.factor_error = factor_error(matrices.factor(), matrices.learned(), *reference);
  say("reference: %zu of %zu predictions differ, factor differs by %.1e (limit %.0e)\n",
      report_.different, predictions.size(), report_.factor_error, kFactorErrorMax);

  if (report_.different > 0) return fail("the predictions are not those of the reference");
  if (!(report_.factor_error <= kFactorErrorMax)) {
    return fail("the factor is not that of the reference");
  }
  if (report_.plain_accuracy() < kAccuracyMin) {
    fail("the accuracy is below " + std::to_string(kAccuracyMin));
  }
}

double factor_flops(size_t rows) {
  const auto n = static_cast<double>(rows);
  return n * n * n / 3 + n * n / 2 + n / 6;
}

}  // namespace ridge
