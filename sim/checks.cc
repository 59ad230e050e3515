#include "sim/checks.h"

#include <fmt/format.h>

#include <algorithm>

namespace strata::sim {
namespace {

bool meet(const Checks::Ranges& a, const Checks::Ranges& b) {
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (a[i].first < b[j].second && b[j].first < a[i].second) return true;
    if (a[i].second <= b[j].second) {
      ++i;
    } else {
      ++j;
    }
  }
  return false;
}

}  // namespace

Checks::Ranges joined(Checks::Ranges ranges) {
  if (!std::is_sorted(ranges.begin(), ranges.end())) std::sort(ranges.begin(), ranges.end());
  Checks::Ranges out;
  for (const auto& range : ranges) {
    if (!out.empty() && range.first <= out.back().second) {
      out.back().second = std::max(out.back().second, range.second);
    } else {
      out.push_back(range);
    }
  }
  return out;
}

void Checks::on_start(uint32_t worker, uint32_t task, Ranges reads, Ranges writes) {
  if (task >= started_.size()) started_.resize(task + 1);
  if (++started_[task].starts > 1) {
    fail(Verdict::kCorrectness, fmt::format("the code of task {} was started twice", task));
  }
  started_[task].worker = worker;
  for (const Running& other : running_) {
    if (other.worker == worker) {
      fail(Verdict::kCorrectness,
           fmt::format("worker {} starts task {} inside task {}", worker, task, other.task));
    }
    if (meet(writes, other.writes) || meet(writes, other.reads) || meet(reads, other.writes)) {
      fail(Verdict::kCorrectness,
           fmt::format("task {} (worker {}) runs while task {} (worker {}) touches the same bytes",
                       task, worker, other.task, other.worker));
    }
  }
  running_.push_back({worker, task, std::move(reads), std::move(writes)});
}

void Checks::on_end(uint32_t worker, uint32_t task, uint64_t input_hash) {
  started_[task].ended = true;
  started_[task].input_hash = input_hash;
  on_death(worker);
}

void Checks::on_death(uint32_t worker) {
  std::erase_if(running_, [&](const Running& running) { return running.worker == worker; });
}

void Checks::on_reuse(uint64_t begin, uint64_t end, const char* by) {
  const Ranges reused = {{begin, end}};
  for (const Running& running : running_) {
    if (!meet(running.reads, reused) && !meet(running.writes, reused)) continue;
    fail(Verdict::kCorrectness, fmt::format("bytes [{}, {}) of the heap are taken by {} while task "
                                            "{} (worker {}) touches them",
                                            begin, end, by, running.task, running.worker));
  }
}

const Checks::Started& Checks::started(uint32_t task) const {
  static const Started kNever;
  return task < started_.size() ? started_[task] : kNever;
}

bool Checks::runs_task(uint32_t worker) const {
  return std::any_of(running_.begin(), running_.end(),
                     [&](const Running& running) { return running.worker == worker; });
}

}  // namespace strata::sim
