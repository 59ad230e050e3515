// CPU time of this process and of all that it started, directly or not, to the nanosecond: by the
// kernel's per-process CPU clocks, where /proc/<pid>/stat counts in steps of 10 ms. Processes that
// ended are not in it. One thread at a time.
#pragma once

#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace strata::bench {

// The parent of a process; 0 where it is gone.
inline int parent_of(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');  // the name before it may hold anything
  if (name_end == std::string::npos) return 0;
  std::istringstream rest(text.substr(name_end + 1));
  char state = 0;
  int parent = 0;
  rest >> state >> parent;
  return parent;
}

// Every living process below `root`, and `root`.
inline std::set<int> tree_of(int root) {
  std::multimap<int, int> children;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    int pid = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (parsed.ec == std::errc() && *parsed.ptr == '\0') children.emplace(parent_of(pid), pid);
  }
  std::set<int> tree;
  std::vector<int> open{root};
  while (!open.empty()) {
    const int pid = open.back();
    open.pop_back();
    if (!tree.insert(pid).second) continue;
    const auto [first, last] = children.equal_range(pid);
    for (auto it = first; it != last; ++it) open.push_back(it->second);
  }
  return tree;
}

// Negative where the process is gone.
inline double cpu_seconds_of(int pid) {
  clockid_t clock{};
  timespec used{};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0) return -1;
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

// What a fixed set of processes has used since it was made, in percent of one core.
class CpuMeter {
 public:
  explicit CpuMeter(std::set<int> pids) : pids_(std::move(pids)), used_(used()), begun_(now()) {}

  // Negative where one of them has ended meanwhile.
  double percent() const {
    const double wall = now() - begun_;
    const double used_now = used();
    return used_ < 0 || used_now < 0 ? -1 : 100 * (used_now - used_) / wall;
  }
  size_t processes() const { return pids_.size(); }

 private:
  static double now() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  }
  double used() const {
    double sum = 0;
    for (const int pid : pids_) {
      const double seconds = cpu_seconds_of(pid);
      if (seconds < 0) return -1;
      sum += seconds;
    }
    return sum;
  }

  std::set<int> pids_;
  double used_;
  double begun_;
};

}  // namespace strata::bench
