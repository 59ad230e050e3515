// RemoteLink: what carries the session of one remote Worker, as its endpoint sees it. Sockets,
// locks and threads are the runtime's; so is the session's state machine.
//
// With the step token but for readable(), wakes_up(), unsent() and flush(), which come from any
// thread. None blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "wire/controls.h"
#include "wire/task.h"

namespace strata::engine {

class RemoteLink {
 public:
  struct Completed {
    uint64_t sequence = 0;
    wire::Completion completion;
  };
  using Event = std::variant<Completed, wire::ControlReply>;

  virtual ~RemoteLink() = default;

  virtual bool has_credit() const = 0;
  // Its sequence; none where there is no credit, or the session has ended.
  virtual std::optional<uint64_t> send(const wire::Task& task) = 0;
  // The answer is an Event. An Error: the session has ended, or it is over a limit.
  virtual Result<void> send(wire::ControlCommand command, std::vector<std::byte> body) = 0;
  // Those of the sequences that have not started never do; whoever runs is asked to stop.
  virtual void cancel(uint64_t first, uint64_t last) = 0;
  // Ends the session once all that was sent is done.
  virtual void drain() = 0;
  // The TASK that the other side was last heard to run; 0: none.
  virtual uint64_t executing() const = 0;

  // What flush() would write.
  virtual bool unsent() const = 0;
  virtual void flush() = 0;
  // Whether the other side slept when the last TASK was sent, and has not answered since.
  virtual bool wakes_up() const = 0;
  // Whether pull() will find something. It may read: whoever asks pulls, or makes others look.
  virtual bool readable() = 0;
  // Appends what came since the last call, and reads where nothing did.
  virtual void pull(std::vector<Event>* events) = 0;
};

}  // namespace strata::engine
