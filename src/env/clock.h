// Clock: where now() comes from. The product reads the machine (os/clock.h), the simulator its own
// virtual time. An interface only; which clock an Instant belongs to is the implementation's word.
// Any thread.
#pragma once

#include "base/time.h"

namespace strata::env {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual base::Instant now() = 0;
};

}  // namespace strata::env
