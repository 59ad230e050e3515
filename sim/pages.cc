#include "sim/pages.h"

#include <sys/mman.h>

#include "base/check.h"

namespace strata::sim {

Pages::Pages(size_t bytes)
    : data_(static_cast<std::byte*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))),
      bytes_(bytes) {
  STRATA_CHECK(data_ != MAP_FAILED);
}
Pages::~Pages() {
  munmap(data_, bytes_);
}

}  // namespace strata::sim
