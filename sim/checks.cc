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

std::string name_of(Checks::Name name) {
  if (name.part == 0) return fmt::format("task {}", name.task);
  return fmt::format("task {}, member {}", name.task, name.part);
}

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

Checks::Started& Checks::started_at(Name name) {
  if (name.task >= started_.size()) started_.resize(name.task + 1);
  std::vector<Started>& parts = started_[name.task];
  if (name.part >= parts.size()) parts.resize(name.part + 1);
  return parts[name.part];
}

void Checks::on_start(uint32_t worker, Name name, Ranges reads, Ranges writes) {
  Started& started = started_at(name);
  if (++started.starts > 1) {
    fail(Verdict::kCorrectness, fmt::format("the code of {} was started twice", name_of(name)));
  }
  started.worker = worker;
  for (const Running& other : running_) {
    if (other.worker == worker) {
      fail(Verdict::kCorrectness, fmt::format("worker {} starts {} inside {}", worker,
                                              name_of(name), name_of(other.name)));
    }
    if (meet(writes, other.writes) || meet(writes, other.reads) || meet(reads, other.writes)) {
      fail(Verdict::kCorrectness,
           fmt::format("{} (worker {}) runs while {} (worker {}) touches the same bytes",
                       name_of(name), worker, name_of(other.name), other.worker));
    }
  }
  running_.push_back({worker, name, std::move(reads), std::move(writes)});
}

void Checks::on_end(uint32_t worker, Name name, uint64_t input_hash, bool failed) {
  Started& started = started_at(name);
  started.ended = true;
  started.failed = failed;
  started.input_hash = input_hash;
  drop(worker);
}

void Checks::on_death(uint32_t worker) {
  for (const Running& running : running_) {
    if (running.worker == worker) started_at(running.name).died = true;
  }
  drop(worker);
}

void Checks::drop(uint32_t worker) {
  std::erase_if(running_, [&](const Running& running) { return running.worker == worker; });
}

void Checks::on_reuse(uint64_t begin, uint64_t end, const char* by) {
  const Ranges reused = {{begin, end}};
  for (const Running& running : running_) {
    if (!meet(running.reads, reused) && !meet(running.writes, reused)) continue;
    fail(Verdict::kCorrectness, fmt::format("bytes [{}, {}) of the heap are taken by {} while {} "
                                            "(worker {}) touches them",
                                            begin, end, by, name_of(running.name), running.worker));
  }
}

const Checks::Started& Checks::started(Name name) const {
  static const Started kNever;
  if (name.task >= started_.size() || name.part >= started_[name.task].size()) return kNever;
  return started_[name.task][name.part];
}

bool Checks::runs_task(uint32_t worker) const {
  return std::any_of(running_.begin(), running_.end(),
                     [&](const Running& running) { return running.worker == worker; });
}

}  // namespace strata::sim
