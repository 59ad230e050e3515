// A library that ends the process which loads it. It has the name of another one.
#include <csignal>

#include "strata/callable.h"

__attribute__((constructor)) static void die() {
  raise(SIGKILL);
}

static void native_add(strata::Call&) {}
STRATA_EXPORT(native_add);
