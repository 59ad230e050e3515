// How both sides of a session word what they refuse. Values; any thread.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "strata/result.h"
#include "wire/frame.h"

namespace strata::session {

inline Error broken(std::string text) {
  return Error(Code::kCorrupt, Scope::kSession, std::move(text));
}

inline Error not_here(const wire::Frame& frame, std::string_view what) {
  return broken(fmt::format("{} {} is not what {}", wire_name(frame.header.type),
                            frame.header.sequence, what));
}

// The frames of a lane count up by one.
inline Result<void> check_count(const wire::Frame& frame, uint64_t expected) {
  const uint64_t sequence = frame.header.sequence;
  if (sequence == expected) return {};
  return broken(fmt::format("{} {} {}: {} must come next", wire_name(frame.header.type), sequence,
                            sequence < expected ? "came again" : "leaves a gap", expected));
}

}  // namespace strata::session
