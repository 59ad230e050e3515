// Registrations: what the simulation watches of callables on their way to the workers: that no
// worker is told to commit before all that were asked have prepared, that no task is given to a
// worker before it and all that were asked with it have committed, and that nothing of an
// incarnation counts for the next one.
//
// It has its own notion of all this from what passes the endpoints, and knows nothing of the
// registry. Not checked: workers whose PREPARE is not posted yet, inline workers, and whether a
// refusal is told to who asked. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "sim/checks.h"

namespace strata::sim {

class Registrations {
 public:
  explicit Registrations(Checks* checks) : checks_(*checks) {}

  // A control is posted to a worker, and: it has answered that one. Others than the four phases of
  // a registration are ignored.
  void on_control(uint32_t worker, uint32_t command, std::span<const std::byte> request);
  void on_reply(uint32_t worker, uint32_t code);
  void on_dispatch(uint32_t worker, uint32_t callable);
  // Its process is gone, whether another one follows or not.
  void on_lost(uint32_t worker);

 private:
  enum class Step : uint8_t { kAsked, kPrepared, kCommitting, kCommitted };
  struct Entry {
    uint64_t transaction = 0;
    uint32_t generation = 0;
    Step step = Step::kAsked;
  };
  struct Posted {
    uint32_t command = 0;
    uint64_t transaction = 0;
    uint32_t index = 0;
    uint32_t generation = 0;
  };
  using Key = std::pair<uint32_t, uint32_t>;  // worker, index

  void check_commit(uint32_t worker, const Posted& posted);

  Checks& checks_;
  std::map<Key, Entry> entries_;
  std::map<uint32_t, Posted> posted_;  // by worker
};

}  // namespace strata::sim
