#include "os/fd.h"

#include <fcntl.h>

#include <cerrno>

#include "os/system_error.h"

namespace strata::os {

Result<Fd> Fd::duplicate() const {
  const int copy = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return system_error("duplicate a descriptor", errno);
  return Fd(copy);
}

}  // namespace strata::os
