// A library that never finishes loading: its child never gets ready.
#include <unistd.h>

#include "strata/callable.h"

__attribute__((constructor)) static void wait_for_ever() {
  for (;;) ::pause();
}

static void native_slow(strata::Call&) {}
STRATA_EXPORT(native_slow);
