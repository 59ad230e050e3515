// Report: what many seeds came to: how many count, how large they were, which faults fired, which
// marks none of them reached. Sums up SeedRecords, which are plain bytes: they travel between
// processes. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/simulation.h"

namespace strata::sim {

struct SeedRecord {
  uint64_t seed = 0;
  uint64_t events = 0;
  uint64_t tasks = 0;
  uint64_t runs = 0;
  uint64_t steps = 0;
  int64_t virtual_ns = 0;
  uint64_t succeeded = 0;
  uint64_t failed = 0;
  uint64_t skipped = 0;
  FaultCounts faults;
  uint32_t verdict = 0;
  bool counts = false;
};
SeedRecord record_of(const SeedResult& result);

class Report {
 public:
  void add(const SeedRecord& record);
  // Hits of each mark of this program, in the order of mark_names().
  void add_marks(const std::vector<uint64_t>& hits);

  uint64_t seeds() const { return seeds_; }
  uint64_t counting() const { return counting_; }
  uint64_t failing() const { return failing_; }
  // Of all counting seeds, in percent, with at least that many kinds of faults that fired.
  double with_faults(uint32_t kinds) const;
  std::vector<std::string_view> marks_missed() const;
  std::string to_string() const;

 private:
  uint64_t seeds_ = 0;
  uint64_t counting_ = 0;
  uint64_t failing_ = 0;
  std::vector<SeedRecord> records_;  // those that count
  std::vector<uint64_t> mark_hits_;
};

std::vector<std::string_view> mark_names();
std::vector<uint64_t> mark_hits();

}  // namespace strata::sim
