// CauseTable: the texts behind the cause numbers that poison and terminal tasks carry. Bounded:
// when it is full the causes that are in no use any more are dropped, and if none can be, a new one
// is told in general words. The caller locks.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "strata/error.h"

namespace strata::engine {

class CauseTable {
 public:
  static constexpr uint32_t kCausesMax = 4096;

  CauseTable() {
    causes_.emplace_back(
        Error(Code::kTaskFailed, Scope::kTask,
              "an earlier task failed; too many causes were open to keep its text"));
  }

  // for_each_used(visit) calls visit(cause) for every cause that something carries, where asked.
  template <class ForEachUsed>
  uint32_t add(Error error, ForEachUsed&& for_each_used) {
    if (free_.empty() && causes_.size() > kCausesMax) sweep(for_each_used);
    if (free_.empty() && causes_.size() > kCausesMax) return 0;
    if (free_.empty()) {
      causes_.emplace_back(std::move(error));
      return static_cast<uint32_t>(causes_.size() - 1);
    }
    const uint32_t cause = free_.back();
    free_.pop_back();
    causes_[cause] = std::move(error);
    return cause;
  }
  const Error& at(uint32_t cause) const { return *causes_[cause]; }
  // Keeps a cause that tasks may still be given although nothing carries it yet.
  void pin(uint32_t cause) { pinned_.push_back(cause); }
  void unpin(uint32_t cause) { std::erase(pinned_, cause); }

 private:
  template <class ForEachUsed>
  void sweep(ForEachUsed&& for_each_used) {
    std::vector<bool> used(causes_.size(), false);
    used[0] = true;
    for (const uint32_t cause : pinned_) used[cause] = true;
    for_each_used([&](uint32_t cause) { used[cause] = true; });
    for (uint32_t cause = 0; cause < causes_.size(); ++cause) {
      if (used[cause] || !causes_[cause]) continue;
      causes_[cause].reset();
      free_.push_back(cause);
    }
  }

  std::vector<std::optional<Error>> causes_;
  std::vector<uint32_t> free_;
  std::vector<uint32_t> pinned_;
};

}  // namespace strata::engine
