// PlainMemory: the memory policy of the product. Each operation is one atomic instruction on the
// mapped memory; the object itself is empty.
//
// What a memory policy must offer is exactly this class's public interface: words by address (only
// u32, i32, u64 and i64), byte copies, the full fence, and STRATA's rule that every access to the
// mapping goes through it. Spans handed to callers are plain memory and are read only after the
// word that covers them was acquired. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstring>

namespace strata::mailbox {

class PlainMemory {
 public:
  template <class T>
  T load_relaxed(const T* at) const {
    return ref(at).load(std::memory_order_relaxed);
  }
  template <class T>
  T load_acquire(const T* at) const {
    return ref(at).load(std::memory_order_acquire);
  }
  template <class T>
  void store_relaxed(T* at, T value) const {
    ref(at).store(value, std::memory_order_relaxed);
  }
  template <class T>
  void store_release(T* at, T value) const {
    ref(at).store(value, std::memory_order_release);
  }
  // seq_cst, strong.
  template <class T>
  bool compare_exchange(T* at, T expected, T desired) const {
    return ref(at).compare_exchange_strong(expected, desired);
  }
  // seq_cst; gives the value before.
  template <class T>
  T fetch_add(T* at, T value) const {
    return ref(at).fetch_add(value);
  }
  void write_bytes(std::byte* to, const std::byte* from, size_t bytes) const {
    if (bytes != 0) std::memcpy(to, from, bytes);
  }
  // A hint: the line will be written here soon.
  template <class T>
  void prefetch_for_write(const T* at) const {
    __builtin_prefetch(at, 1);
  }
  // Whether compare_exchange and fetch_add order everything before them against everything after,
  // as fence() does.
#if defined(__x86_64__) || defined(__i386__)
  static constexpr bool kLockedIsFence = true;
#else
  static constexpr bool kLockedIsFence = false;
#endif
  void fence() const {
#ifdef __SANITIZE_THREAD__
    // ThreadSanitizer does not model fences; a locked instruction is one on the machines it runs
    // on.
    static std::atomic<int> word{0};
    word.fetch_add(1);
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  }

 private:
  template <class T>
  static std::atomic_ref<T> ref(const T* at) {
    static_assert(std::atomic_ref<T>::is_always_lock_free);
    return std::atomic_ref<T>(*const_cast<T*>(at));
  }
};

}  // namespace strata::mailbox
