// system_error: an errno as an Error, with the call, the reason and, where a limit was reached, the
// code kResourceExhausted. Not an exception. Any thread.
#pragma once

#include <string_view>

#include "strata/error.h"

namespace strata::os {

// "memfd_create: Too many open files (errno 24)". Descriptors, memory and disk that ran out are
// kResourceExhausted, all else is kSystem.
Error system_error(std::string_view what, int error_number);

}  // namespace strata::os
