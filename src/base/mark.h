// STRATA_MARK("name"): counts that a rare branch was reached, so that tests can prove that they
// reach it and a nightly run can list the marks that no seed ever reached.
//
// Not a log and not a metric: it exists in builds with STRATA_FAULTS or without NDEBUG, elsewhere
// it compiles to nothing. A mark is listed from the start of the program on, reached or not; one
// name at several places is one mark. Any thread.
#pragma once

#if defined(STRATA_FAULTS) || !defined(NDEBUG)
#define STRATA_MARKS_ON 1

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace strata::base {

class Mark {
 public:
  explicit Mark(const char* name) : name_(name), next_(head_.load()) {
    while (!head_.compare_exchange_weak(next_, this)) {
    }
  }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

  void reach() { hits_.fetch_add(1, std::memory_order_relaxed); }
  std::string_view name() const { return name_; }
  uint64_t hits() const { return hits_.load(std::memory_order_relaxed); }
  const Mark* next() const { return next_; }
  // The newest in the list of all; follow next().
  static const Mark* first() { return head_.load(); }

 private:
  static inline constinit std::atomic<Mark*> head_{nullptr};
  const char* name_;
  Mark* next_;
  std::atomic<uint64_t> hits_{0};
};

template <size_t N>
struct MarkName {
  char text[N]{};
  constexpr MarkName(const char (&name)[N]) { std::copy_n(name, N, text); }
};

// The static member is made before main for each name that any instantiated code holds.
template <MarkName Name>
struct MarkSite {
  static inline Mark mark{Name.text};
};

// Calls visit(const Mark&) for each mark of the program, in no promised order.
template <class Visit>
void marks(Visit&& visit) {
  for (const Mark* mark = Mark::first(); mark != nullptr; mark = mark->next()) visit(*mark);
}

// How often the mark was reached; 0 for a name that nobody marks.
inline uint64_t mark_hits(std::string_view name) {
  uint64_t hits = 0;
  marks([&](const Mark& mark) {
    if (mark.name() == name) hits += mark.hits();
  });
  return hits;
}

}  // namespace strata::base

#define STRATA_MARK(name) ::strata::base::MarkSite<name>::mark.reach()
#else
#define STRATA_MARK(name) static_cast<void>(0)
#endif
