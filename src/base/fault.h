// fault(): the number of the deliberate fault that is switched on, 0 for none.
//
// Not a feature: the faults exist only under STRATA_FAULTS, so that the simulator can prove that it
// finds them. Elsewhere fault() is the constant 0 and each `if (fault() == N)` compiles to nothing.
// set_fault() before the code under test runs; any thread may ask.
#pragma once

#include <atomic>

namespace strata::base {

// Two namespaces, because one program may hold objects built with and without the faults.
#ifdef STRATA_FAULTS
inline namespace faults_on {
inline std::atomic<int> active_fault{0};
inline int fault() {
  return active_fault.load(std::memory_order_relaxed);
}
inline void set_fault(int number) {
  active_fault.store(number, std::memory_order_relaxed);
}
}  // namespace faults_on
#else
inline namespace faults_off {
constexpr int fault() {
  return 0;
}
}  // namespace faults_off
#endif

}  // namespace strata::base
