// Checks: what the simulation watches while it runs: that tasks which touch the same bytes do not
// run at the same time, that a task's code starts once, that runs keep their order; and the first
// thing that was found wrong.
//
// It sees the bytes by their place in the heap, as the children do; that the results are right is
// the oracle's to say. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace strata::sim {

enum class Verdict : int { kOk = 0, kCorrectness = 3, kLiveness = 4, kCrash = 5, kDeterminism = 6 };

class Checks {
 public:
  // Half-open, of the heap; sorted.
  using Ranges = std::vector<std::pair<uint64_t, uint64_t>>;
  struct Started {
    uint32_t starts = 0;
    bool ended = false;
    bool failed = false;
    bool died = false;  // its process ended while it ran
    uint64_t input_hash = 0;
    uint32_t worker = 0;
  };
  // A task, or a member of a group.
  struct Name {
    uint32_t task = 0;
    uint32_t part = 0;
    friend bool operator==(const Name&, const Name&) = default;
  };

  // The first finding is kept.
  void fail(Verdict verdict, std::string what) {
    if (failed()) return;
    verdict_ = verdict;
    what_ = std::move(what);
  }
  bool failed() const { return verdict_ != Verdict::kOk; }
  Verdict verdict() const { return verdict_; }
  const std::string& what() const { return what_; }

  void on_start(uint32_t worker, Name name, Ranges reads, Ranges writes);
  void on_end(uint32_t worker, Name name, uint64_t input_hash, bool failed);
  // The process is gone, in the middle of a task perhaps.
  void on_death(uint32_t worker);
  // Bytes are given to a new buffer, or back to the system.
  void on_reuse(uint64_t begin, uint64_t end, const char* by);
  const Started& started(Name name) const;
  bool runs_task(uint32_t worker) const;

 private:
  struct Running {
    uint32_t worker;
    Name name;
    Ranges reads;
    Ranges writes;
  };

  Started& started_at(Name name);
  void drop(uint32_t worker);

  Verdict verdict_ = Verdict::kOk;
  std::string what_;
  std::vector<Running> running_;
  std::vector<std::vector<Started>> started_;  // by task, part
};

std::string name_of(Checks::Name name);
// Sorts, and joins what touches.
Checks::Ranges joined(Checks::Ranges ranges);

}  // namespace strata::sim
