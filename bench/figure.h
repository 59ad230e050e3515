// A clock, medians, and the line that every benchmark program prints for a figure:
//
//   name value unit
//
// For the programs of bench/ only; one thread of each uses it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

namespace strata::bench {

inline double now_us() {
  using Micros = std::chrono::duration<double, std::micro>;
  return Micros(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Fewer iterations, the same work in each.
inline bool quick() {
  return std::getenv("STRATA_BENCH_QUICK") != nullptr;
}
inline int scaled(int full, int few) {
  return quick() ? few : full;
}

// Zero where there is nothing to take it of.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(middle), values.end());
  return values[middle];
}

inline void figure(const std::string& name, double value, const char* unit) {
  std::printf("%s %.6g %s\n", name.c_str(), value, unit);
  std::fflush(stdout);
}

inline void sleep_us(int64_t us) {
  timespec left{us / 1'000'000, (us % 1'000'000) * 1'000};
  while (nanosleep(&left, &left) != 0) {
  }
}

// The median of `count` calls of `timed`, which returns what it took in microseconds; a tenth of
// the calls goes before, uncounted. Ends early, with what there is, after `limit_ms`.
template <class F>
double median_of(int count, double limit_ms, F&& timed) {
  std::vector<double> samples;
  samples.reserve(static_cast<size_t>(count));
  const double end = now_us() + limit_ms * 1e3;
  for (int i = 0; i < count / 10 && now_us() < end; ++i) timed();
  for (int i = 0; i < count && (i == 0 || now_us() < end); ++i) samples.push_back(timed());
  return median(std::move(samples));
}

}  // namespace strata::bench
