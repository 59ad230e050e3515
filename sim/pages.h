// Pages: zeroed pages that cost nothing until touched. One owner.
#pragma once

#include <cstddef>

namespace strata::sim {

class Pages {
 public:
  explicit Pages(size_t bytes);
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* data() { return data_; }
  size_t size() const { return bytes_; }

 private:
  std::byte* data_;
  size_t bytes_;
};

}  // namespace strata::sim
