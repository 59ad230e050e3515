// lane_role: what a lane's TLS is for, in key mode. Each lane has keys of its own, so that what was
// meant for one is of no use on another, whatever its clear preamble says. Pure; any thread.
#pragma once

#include <string_view>

#include "wire/numbers.h"

namespace strata::runtime {

// Fixed for ever: part of what both ends derive their keys from.
constexpr std::string_view lane_role(wire::Lane lane) {
  switch (lane) {
    case wire::Lane::kBootstrap:
      return "bootstrap";
    case wire::Lane::kCommand:
      return "command";
    case wire::Lane::kData:
      return "data";
    case wire::Lane::kHealth:
      return "health";
    case wire::Lane::kPeer:
      return "peer";
  }
  return "";
}

}  // namespace strata::runtime
