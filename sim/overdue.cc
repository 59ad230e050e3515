#include "sim/overdue.h"

#include <fmt/format.h>

#include <algorithm>

namespace strata::sim {

void Overdue::on_given(uint32_t worker, Checks::Name name, uint64_t ticket, base::Instant now) {
  if (deadline_ms(name.task) == 0) return;
  Part& part = parts_[{name.task, name.part}];
  // Its child may have begun it already.
  const int64_t began_ns = part.worker == worker && part.ticket == 0 ? part.began_ns : 0;
  const int64_t ended_ns = began_ns != 0 ? part.ended_ns : 0;
  const int64_t free_ns = began_ns != 0 ? part.free_ns : 0;
  part = {.worker = worker, .ticket = ticket, .given = now};
  part.began_ns = began_ns;
  part.ended_ns = ended_ns;
  part.free_ns = free_ns;
}

void Overdue::on_back(uint32_t worker, uint64_t ticket) {
  // A worker that is replaced counts its tickets anew: what the one before had is dead.
  std::erase_if(parts_, [&](const auto& entry) {
    const Part& part = entry.second;
    return part.worker == worker && part.ticket == ticket && !part.seen && !part.dead &&
           !part.condemned;
  });
}

void Overdue::on_seen(uint32_t worker, uint64_t ticket) {
  for (auto& [key, part] : parts_) {
    if (part.worker == worker && part.ticket == ticket) part.seen = true;
  }
}

void Overdue::on_start(uint32_t worker, Checks::Name name, int64_t told_ns) {
  if (deadline_ms(name.task) == 0) return;
  Part& part = parts_[{name.task, name.part}];
  if (part.worker != worker || part.seen || part.dead) part = {.worker = worker};
  part.began_ns = told_ns;
  part.free_ns = free_[worker];
}

void Overdue::on_end(uint32_t worker, Checks::Name name, int64_t ended_ns) {
  free_[worker] = ended_ns;
  const auto part = parts_.find({name.task, name.part});
  // An inline worker tells no start.
  if (part == parts_.end() || part->second.worker != worker || part->second.began_ns == 0) return;
  part->second.ended_ns = ended_ns;
}

void Overdue::on_death(uint32_t worker) {
  for (auto& [key, part] : parts_) {
    if (part.worker == worker) part.dead = true;
  }
}

// At least one task in its queue may have been there, and run, for so long.
std::string Overdue::why_not(uint32_t worker, bool alive, base::Instant now) {
  bool any = false;
  std::string why = "it has no task with a deadline";
  for (auto& [key, part] : parts_) {
    if (part.worker != worker || part.seen || part.ticket == 0 || (part.dead && alive)) continue;
    const int64_t free_ns = part.began_ns != 0 ? part.free_ns : free_[worker];
    const int64_t since = std::max(part.given.ns, free_ns);
    const base::Instant end =
        base::Instant{since} + base::Duration::from_ms(deadline_ms(key.first)) + grace_;
    if (now < end) {
      why = fmt::format("task {} has {} ns left", key.first, (end - now).ns);
      continue;
    }
    part.condemned = true;
    any = true;
  }
  return any ? std::string() : why;
}

bool Overdue::ended_late(uint32_t task) const {
  const int64_t limit_ns = int64_t{deadline_ms(task)} * 1'000'000;
  for (auto it = parts_.lower_bound({task, 0}); it != parts_.end() && it->first.first == task;
       ++it) {
    const Part& part = it->second;
    if (part.ended_ns != 0 && part.ended_ns - part.began_ns >= limit_ns) return true;
  }
  return false;
}

bool Overdue::is_overdue(uint32_t task) const {
  for (auto it = parts_.lower_bound({task, 0}); it != parts_.end() && it->first.first == task;
       ++it) {
    if (it->second.condemned) return true;
  }
  return ended_late(task);
}

}  // namespace strata::sim
