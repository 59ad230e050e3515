// drain_on_signals: a program that ends in order on Ctrl-C and on what a batch system sends.
//
//   auto worker = strata::Worker::create(spec).value();
//   auto signals = strata::drain_on_signals(*worker).value();
//   const auto done = worker->init() ? compute(*worker) : ...;   // Results, not value()
//   static_cast<void>(worker->close());
//   return signals.exit_code(done ? 0 : 1);
//
// The first SIGINT or SIGTERM: submit, run and init give Code::kCancelled from now on. Runs that
// were begun are built and executed to their end, and waits for them return as ever; the program
// closes its Worker and ends, with 130 (SIGINT) or 143 (SIGTERM). The second ends the program at
// once by _exit with that status; its children are killed.
//
// Nothing here happens unasked: a program that does not call this has the handlers that it had.
// Children ignore both signals always, so that one sent to the whole process group is the program's
// alone.
#pragma once

#include <memory>

#include "strata/export.h"
#include "strata/result.h"

namespace strata {

class Worker;
class WorkerCore;

// The handlers are there while one of these is; what was there before comes back with the last. A
// signal that is ignored (nohup, a shell's "&") stays ignored. Any thread.
class STRATA_PUBLIC SignalDrain {
 public:
  SignalDrain(SignalDrain&&) noexcept;
  SignalDrain& operator=(SignalDrain&&) noexcept;
  ~SignalDrain();

  // The first that came; 0: none.
  int signal_number() const;
  // 128 + signal_number(), or `otherwise` where none came: for main to return.
  int exit_code(int otherwise = 0) const;

 private:
  friend Result<SignalDrain> drain_on_signals(Worker& worker);
  struct Impl;
  static std::shared_ptr<WorkerCore> core_of(Worker& worker);
  explicit SignalDrain(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Before or after init. At most 64 at a time: kResourceExhausted.
STRATA_PUBLIC Result<SignalDrain> drain_on_signals(Worker& worker);

}  // namespace strata
