#include "sim/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/mark.h"

namespace strata::sim {
namespace {

template <class Get>
std::string percentiles(std::string_view name, const std::vector<SeedRecord>& records, Get&& get) {
  std::vector<uint64_t> values;
  for (const SeedRecord& record : records) values.push_back(get(record));
  std::sort(values.begin(), values.end());
  const auto at = [&](uint64_t percent) { return values[(values.size() - 1) * percent / 100]; };
  return fmt::format("  {:<22}{:>12}{:>12}{:>12}{:>12}{:>12}\n", name, at(1), at(10), at(50),
                     at(90), at(99));
}

}  // namespace

SeedRecord record_of(const SeedResult& result) {
  SeedRecord record;
  record.seed = result.options.seed;
  record.events = result.events;
  record.tasks = result.tasks;
  record.runs = result.runs;
  record.steps = result.steps;
  record.virtual_ns = result.virtual_ns;
  record.succeeded = result.succeeded;
  record.failed = result.failed;
  record.skipped = result.skipped;
  record.faults = result.faults;
  record.verdict = static_cast<uint32_t>(result.verdict);
  record.counts = result.counts();
  return record;
}

void Report::add(const SeedRecord& record) {
  ++seeds_;
  failing_ += record.verdict != 0;
  if (!record.counts) return;
  ++counting_;
  records_.push_back(record);
}

void Report::add_marks(const std::vector<uint64_t>& hits) {
  mark_hits_.resize(std::max(mark_hits_.size(), hits.size()));
  for (size_t i = 0; i < hits.size(); ++i) mark_hits_[i] += hits[i];
}

double Report::with_faults(uint32_t kinds) const {
  if (records_.empty()) return 0;
  const auto with = std::count_if(records_.begin(), records_.end(), [&](const SeedRecord& record) {
    return record.faults.kinds() >= kinds;
  });
  return 100.0 * static_cast<double>(with) / static_cast<double>(records_.size());
}

std::vector<std::string_view> Report::marks_missed() const {
  std::vector<std::string_view> missed;
  const std::vector<std::string_view> names = mark_names();
  for (size_t i = 0; i < names.size(); ++i) {
    if (i >= mark_hits_.size() || mark_hits_[i] == 0) missed.push_back(names[i]);
  }
  std::sort(missed.begin(), missed.end());
  return missed;
}

std::string Report::to_string() const {
  std::string out =
      fmt::format("{} seeds, of which {} count and {} fail\n", seeds_, counting_, failing_);
  if (records_.empty()) return out;
  out += fmt::format("of each counting seed{:>15}{:>12}{:>12}{:>12}{:>12}\n", "p1", "p10", "p50",
                     "p90", "p99");
  out += percentiles("engine events", records_, [](const SeedRecord& r) { return r.events; });
  out += percentiles("tasks", records_, [](const SeedRecord& r) { return r.tasks; });
  out += percentiles("  succeeded", records_, [](const SeedRecord& r) { return r.succeeded; });
  out += percentiles("  failed", records_, [](const SeedRecord& r) { return r.failed; });
  out += percentiles("  skipped", records_, [](const SeedRecord& r) { return r.skipped; });
  out += percentiles("runs", records_, [](const SeedRecord& r) { return r.runs; });
  out += percentiles("steps", records_, [](const SeedRecord& r) { return r.steps; });
  out += percentiles("virtual us", records_, [](const SeedRecord& r) {
    return static_cast<uint64_t>(r.virtual_ns / 1000);
  });
  out += percentiles("kinds of faults fired", records_,
                     [](const SeedRecord& r) { return uint64_t{r.faults.kinds()}; });
  out += fmt::format("faults: {:.1f} % have one, {:.1f} % have three\n", with_faults(1),
                     with_faults(3));
  const auto fired = [&](std::string_view name, auto&& get) {
    const auto with = std::count_if(records_.begin(), records_.end(), get);
    out += fmt::format("  {:<14}{:>6.1f} %\n", name,
                       100.0 * static_cast<double>(with) / static_cast<double>(records_.size()));
  };
  fired("kill", [](const SeedRecord& r) { return r.faults.kills > 0; });
  fired("task failure", [](const SeedRecord& r) { return r.faults.task_failures > 0; });
  fired("refusal", [](const SeedRecord& r) { return r.faults.refusals > 0; });
  fired("limit", [](const SeedRecord& r) { return r.faults.full > 0; });
  fired("deadline", [](const SeedRecord& r) { return r.faults.deadlines > 0; });
  fired("cancel", [](const SeedRecord& r) { return r.faults.cancels > 0; });
  const std::vector<std::string_view> missed = marks_missed();
  const size_t marks = mark_names().size();
  out += fmt::format("marks: {} of {} reached\n", marks - missed.size(), marks);
  for (const std::string_view name : missed) out += fmt::format("  not reached: {}\n", name);
  return out;
}

#ifdef STRATA_MARKS_ON
std::vector<std::string_view> mark_names() {
  std::vector<std::string_view> names;
  base::marks([&](const base::Mark& mark) { names.push_back(mark.name()); });
  return names;
}

std::vector<uint64_t> mark_hits() {
  std::vector<uint64_t> hits;
  base::marks([&](const base::Mark& mark) { hits.push_back(mark.hits()); });
  return hits;
}
#else
std::vector<std::string_view> mark_names() {
  return {};
}
std::vector<uint64_t> mark_hits() {
  return {};
}
#endif

}  // namespace strata::sim
