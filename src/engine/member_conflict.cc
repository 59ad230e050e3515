#include "engine/member_conflict.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace strata::engine {

// By begin of the covers, buffer after buffer; each access meets those before it that have not
// ended. Reads meet writes alone, so that a table that all members read costs nothing.
std::optional<MemberConflict> find_member_conflict(std::span<const sched::Access> accesses,
                                                   std::span<const uint32_t> member_of) {
  std::vector<uint32_t> order(accesses.size());
  std::iota(order.begin(), order.end(), 0u);
  std::erase_if(order, [&](uint32_t i) {
    return (!accesses[i].reads && !accesses[i].writes) || accesses[i].region.empty();
  });
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const sched::Access& x = accesses[a];
    const sched::Access& y = accesses[b];
    if (x.buffer != y.buffer) return x.buffer < y.buffer;
    if (x.region.begin != y.region.begin) return x.region.begin < y.region.begin;
    return a < b;
  });
  std::vector<uint32_t> readers;
  std::vector<uint32_t> writers;
  uint32_t buffer = 0;
  for (const uint32_t i : order) {
    const sched::Access& access = accesses[i];
    if (access.buffer != buffer) readers.clear(), writers.clear();
    buffer = access.buffer;
    const auto ended = [&](uint32_t j) { return accesses[j].region.end() <= access.region.begin; };
    const auto meets = [&](uint32_t j) {
      return member_of[i] != member_of[j] && graph::overlap(access.region, accesses[j].region);
    };
    const auto conflict = [&](uint32_t j) {
      const auto [low, high] = std::minmax(member_of[i], member_of[j]);
      return MemberConflict{low, high, buffer, access.region.begin};
    };
    std::erase_if(writers, ended);
    for (const uint32_t j : writers) {
      if (meets(j)) return conflict(j);
    }
    if (!access.writes) {
      readers.push_back(i);
      continue;
    }
    std::erase_if(readers, ended);
    for (const uint32_t j : readers) {
      if (meets(j)) return conflict(j);
    }
    writers.push_back(i);
  }
  return std::nullopt;
}

}  // namespace strata::engine
