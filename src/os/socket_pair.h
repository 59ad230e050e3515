// SeqPacket: one end of a local socket pair whose messages keep their borders and can carry
// descriptors. Never blocks; knows no protocol. One thread at a time for each direction.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/time.h"
#include "os/fd.h"
#include "strata/result.h"

namespace strata::os {

struct SeqMessage {
  size_t bytes = 0;  // of the buffer that receive() was given
  std::vector<Fd> fds;
  bool end = false;       // the other end is closed; nothing follows
  bool fds_lost = false;  // descriptors came that this process has no room for: all are closed
};

class SeqPacket {
 public:
  static constexpr size_t kFdsMax = 16;

  SeqPacket() = default;
  static Result<std::pair<SeqPacket, SeqPacket>> pair();
  static SeqPacket adopt(Fd fd) { return SeqPacket(std::move(fd)); }

  // False where the other end is behind: nothing was sent, try again when writable. An Error of
  // code kEndpointFailed where the other end is gone. An empty message is refused: it reads as the
  // end.
  Result<bool> send(std::span<const std::byte> bytes, std::span<const int> fds) const;
  // None where nothing waits. A message longer than the buffer is kCorrupt, and its descriptors are
  // closed.
  Result<std::optional<SeqMessage>> receive(std::span<std::byte> buffer) const;
  // Waits for `events` (POLLIN, POLLOUT); false at the timeout.
  Result<bool> wait(short events, base::Duration timeout) const;
  // The other end reads the end from now on, also where a forked process still holds this one.
  void shut_down() const;
  int fd() const { return fd_.get(); }
  Fd take() && { return std::move(fd_); }
  void close() { fd_.reset(); }

 private:
  explicit SeqPacket(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

}  // namespace strata::os
