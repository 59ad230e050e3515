// BuildInfo: what this program was built from and how. A value; any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace strata::tools {

struct BuildInfo {
  std::string version;
  std::string git;              // `git describe`, empty where it was not built from a clone
  std::string compiler;         // "gcc 12.2.0"
  std::string build_type;       // "Release"
  std::string sanitizers;       // as in -fsanitize=, or empty
  bool faults = false;          // deliberate faults compiled in
  bool simulator = false;       // has `strata sim`
  bool demo = false;            // has `strata demo`
  bool chips = false;           // has the chip backend cpu
  uint32_t abi = 0;             // of callables, STRATA_ABI
  uint32_t layout_version = 0;  // of the memory between parent and child
  uint64_t layout_id = 0;
};
BuildInfo build_info();

// "0x0123456789abcdef"
std::string layout_id_text(const BuildInfo& build);
nlohmann::ordered_json to_json(const BuildInfo& build);
std::string to_text(const BuildInfo& build);

}  // namespace strata::tools
