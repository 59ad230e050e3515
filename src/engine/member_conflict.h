// find_member_conflict: whether two members of a group name the same bytes in a way that needs an
// order. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "sched/types.h"

namespace strata::engine {

// Tensors of all members of one group.
inline constexpr size_t kGroupTensorsMax = 65'536;

struct MemberConflict {
  uint32_t first;
  uint32_t second;
  uint32_t buffer;
  uint64_t byte;  // where the two begin to overlap, or their covers do
};

// `member_of[i]` is the member that `accesses[i]` belongs to. Two accesses conflict when they are
// of different members, overlap (by covers where nothing better is known), and one of them writes.
// Accesses that neither read nor write conflict with nothing.
std::optional<MemberConflict> find_member_conflict(std::span<const sched::Access> accesses,
                                                   std::span<const uint32_t> member_of);

}  // namespace strata::engine
