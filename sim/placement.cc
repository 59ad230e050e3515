#include "sim/placement.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "sim/strided.h"

namespace strata::sim {

void Placement::add_worker(uint32_t worker, uint32_t pool, bool is_inline) {
  STRATA_CHECK(worker == workers_.size() && worker < 64);
  workers_.push_back({pool, {}});
  sees_all_ = sees_all_ && !is_inline;
}

void Placement::add_task(const Oracle::Task& task, PlaceRule rule) {
  Task& mine = tasks_.emplace_back();
  mine.run = task.run;
  mine.is_group = task.is_group;
  mine.at.assign(task.parts.size(), -1);
  if (rule.workers.empty()) rule.workers.assign(task.parts.size(), -1);
  mine.rule = std::move(rule);
  for (const Oracle::Part& part : task.parts) {
    for (const Oracle::Access& access : part.accesses) {
      if (!access.reads && !access.writes) continue;
      Cover cover{access.buffer, ~uint64_t{0}, 0, access.reads, access.writes};
      for_each_byte(access.shape, access.stride, access.element_bytes, [&](int64_t at) {
        const uint64_t byte = access.offset + static_cast<uint64_t>(at);
        cover.begin = std::min(cover.begin, byte);
        cover.end = std::max(cover.end, byte + 1);
      });
      if (cover.begin < cover.end) mine.covers.push_back(cover);
    }
  }
  live_.push_back(static_cast<uint32_t>(tasks_.size() - 1));
}

void Placement::withdraw_task() {
  STRATA_CHECK(!live_.empty() && live_.back() == tasks_.size() - 1);
  tasks_.pop_back();
  live_.pop_back();
}

// ---------------------------------------------------------------- what is allowed

bool Placement::may_take(const Task& task, uint32_t part, uint32_t worker) const {
  if (workers_[worker].pool != task.rule.pool) return false;
  const int32_t wanted = task.rule.workers[part];
  if (wanted >= 0 && static_cast<uint32_t>(wanted) != worker) return false;
  return task.rule.everywhere || (task.rule.callable_on >> worker & 1) != 0;
}

void Placement::check_allowed(uint32_t worker, Name name) {
  const Task& task = tasks_[name.task];
  if (may_take(task, name.part, worker)) return;
  fail(fmt::format("{} is given to worker {} of pool {}, which may not take it: pool {}, worker {}",
                   name_of(name), worker, workers_[worker].pool, task.rule.pool,
                   task.rule.workers[name.part]));
}

void Placement::check_distinct(uint32_t worker, Name name) {
  const std::vector<int32_t>& at = tasks_[name.task].at;
  for (uint32_t part = 0; part < at.size(); ++part) {
    if (part == name.part || at[part] != static_cast<int32_t>(worker)) continue;
    fail(fmt::format("members {} and {} of group {} are both given to worker {}", part, name.part,
                     name.task, worker));
  }
}

// A member has its worker to itself.
void Placement::check_queue(uint32_t worker, Name name) {
  const bool member = tasks_[name.task].is_group;
  for (const Entry& entry : workers_[worker].queue) {
    if (!member && !tasks_[entry.name.task].is_group) continue;
    fail(fmt::format("{}{} is given to worker {} beside {}{}", name_of(name),
                     member ? " of a group" : "", worker, name_of(entry.name),
                     tasks_[entry.name.task].is_group ? " of a group" : ""));
  }
}

// ---------------------------------------------------------------- the oldest

bool Placement::meet(const Task& a, const Task& b) {
  for (const Cover& x : a.covers) {
    for (const Cover& y : b.covers) {
      if (x.buffer == y.buffer && (x.writes || y.writes) && x.begin < y.end && y.begin < x.end) {
        return true;
      }
    }
  }
  return false;
}

bool Placement::surely_ready(uint32_t task) const {
  const Task& mine = tasks_[task];
  for (const Cover& cover : mine.covers) {
    if (cover.reads && cover.buffer < may_be_bad_.size() && may_be_bad_[cover.buffer]) return false;
  }
  for (const uint32_t other : live_) {
    if (other >= task) break;
    if (meet(tasks_[other], mine)) return false;
  }
  return true;
}

void Placement::forget_ended() {
  std::erase_if(live_, [this](uint32_t task) {
    const Known known = known_(task);
    if (known != Known::kOk && known != Known::kBad) return false;
    if (known == Known::kOk) return true;
    for (const Cover& cover : tasks_[task].covers) {
      if (!cover.writes) continue;
      if (cover.buffer >= may_be_bad_.size()) may_be_bad_.resize(cover.buffer + 1);
      may_be_bad_[cover.buffer] = true;
    }
    return true;
  });
}

void Placement::check_oldest(uint32_t worker, Name name) {
  const Task& task = tasks_[name.task];
  for (const uint32_t older : live_) {
    if (older >= name.task) break;
    const Task& other = tasks_[older];
    if (other.run != task.run) {
      fail(fmt::format("{} of run {} is given to worker {} while task {} of run {} has not ended",
                       name_of(name), task.run, worker, older, other.run));
      return;
    }
    if (!sees_all_ || other.is_group || other.at[0] >= 0) continue;
    if (known_(older) != Known::kLive) continue;
    const bool takes =
        may_take(other, 0, worker) && (other.rule.everywhere || other.rule.workers[0] >= 0);
    if (!takes || !surely_ready(older)) continue;
    fail(fmt::format("worker {} is given {}{} although task {} is older, is ready and may go there",
                     worker, name_of(name), task.is_group ? " of a group" : "", older));
    return;
  }
}

// All members are placed: no older group that was ready could have had these workers.
void Placement::check_group_order(uint32_t number) {
  const Task& task = tasks_[number];
  for (const uint32_t older : live_) {
    if (older >= number) break;
    const Task& other = tasks_[older];
    if (!sees_all_ || !other.is_group || !other.rule.everywhere) continue;
    if (known_(older) != Known::kLive || other.at.size() > task.at.size()) continue;
    if (other.rule.pool != task.rule.pool) continue;
    if (other.launched) continue;
    const bool have_all =
        std::all_of(other.rule.workers.begin(), other.rule.workers.end(), [&](int32_t worker) {
          return worker < 0 || std::find(task.at.begin(), task.at.end(), worker) != task.at.end();
        });
    if (!have_all || !surely_ready(older)) continue;
    fail(fmt::format("group {} starts although group {} is older, is ready and could have started",
                     number, older));
    return;
  }
}

// ---------------------------------------------------------------- events

void Placement::on_dispatch(uint32_t worker, Name name) {
  if (!knows(name)) return;
  forget_ended();
  check_allowed(worker, name);
  check_distinct(worker, name);
  check_queue(worker, name);
  Task& task = tasks_[name.task];
  // A member that waited for room was placed earlier.
  const bool waited = task.was_refused || (task.is_group && workers_[worker].was_full);
  if (!waited) check_oldest(worker, name);
  task.at[name.part] = static_cast<int32_t>(worker);
  task.launched = true;
  workers_[worker].queue.push_back({name, 0});
  const bool all = std::all_of(task.at.begin(), task.at.end(), [](int32_t at) { return at >= 0; });
  if (task.is_group && all && !task.was_refused) check_group_order(name.task);
}

void Placement::on_taken(uint32_t worker, Name name, uint64_t ticket) {
  workers_[worker].was_full = false;
  for (Entry& entry : workers_[worker].queue) {
    if (entry.name == name) entry.ticket = ticket;
  }
}

void Placement::on_refused(uint32_t worker, Name name) {
  if (!knows(name)) return;
  std::erase_if(workers_[worker].queue, [&](const Entry& entry) { return entry.name == name; });
  tasks_[name.task].at[name.part] = -1;
  tasks_[name.task].was_refused = true;
  workers_[worker].was_full = true;
}

void Placement::on_back(uint32_t worker, uint64_t ticket, bool started) {
  std::erase_if(workers_[worker].queue, [&](const Entry& entry) {
    if (entry.ticket != ticket) return false;
    if (!started) tasks_[entry.name.task].at[entry.name.part] = -1;
    return true;
  });
}

void Placement::on_start(uint32_t worker, Name name) {
  if (!knows(name)) return;
  check_allowed(worker, name);
  check_distinct(worker, name);
  tasks_[name.task].at[name.part] = static_cast<int32_t>(worker);
}

void Placement::on_end(uint32_t worker, Name name) {
  if (!knows(name)) return;
  std::erase_if(workers_[worker].queue, [&](const Entry& entry) { return entry.name == name; });
  const Known known = known_(name.task);
  if (known == Known::kOk || known == Known::kBad) {
    fail(fmt::format("{} ends after the engine has said how", name_of(name)));
  }
}

}  // namespace strata::sim
