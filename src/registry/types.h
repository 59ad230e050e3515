// The values that the registry gives and takes. No behaviour.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "strata/result.h"

namespace strata::registry {

inline constexpr uint32_t kWorkersMax = 65'536;  // worker numbers are below
inline constexpr uint32_t kPools = 2;            // kinds of children: helpers, and the next level

enum class Phase : uint8_t { kPrepare = 1, kCommit = 2, kAbort = 3, kUnregister = 4 };
std::string_view name_of(Phase phase);

// Names one registration of one callable. A reused index has a larger generation; 0 is none.
struct EntryRef {
  uint32_t index = 0;
  uint32_t generation = 0;
  friend bool operator==(const EntryRef&, const EntryRef&) = default;
};

struct Action {
  uint32_t worker = 0;
  Phase phase = Phase::kPrepare;
  uint64_t transaction = 0;
  EntryRef entry;
  // Null unless PREPARE. Shared: one copy for the actions of all workers, until the last is sent.
  std::shared_ptr<const std::vector<std::byte>> payload;
};

struct Reply {
  uint32_t worker = 0;
  uint64_t transaction = 0;
  Phase phase = Phase::kPrepare;
  std::optional<Code> failure;  // none: done
  std::string text;
};

// How a worker's replay ended: it may be used now, or why not (the caller ends it).
struct WorkerReady {
  uint32_t worker = 0;
  std::optional<Error> error;
};

}  // namespace strata::registry
