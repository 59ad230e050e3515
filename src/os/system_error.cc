#include "os/system_error.h"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

namespace strata::os {

Error system_error(std::string_view what, int error_number) {
  Code code = Code::kSystem;
  switch (error_number) {
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOSPC:
    case ENOBUFS:
    case EAGAIN:
    case EFBIG:
    case EDQUOT:
    case ETOOMANYREFS:
      code = Code::kResourceExhausted;
      break;
    default:
      break;
  }
  return Error(code, Scope::kCall,
               fmt::format("{}: {} (errno {})", what, std::generic_category().message(error_number),
                           error_number));
}

}  // namespace strata::os
