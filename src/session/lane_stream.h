// LaneStream: one lane of a session: what comes, cut into frames, and what waits to be written.
// It checks what holds for every frame of a session, whoever sends it: session, worker, type.
// Not a socket. Pure; one thread at a time, but space() may be called and filled by the thread that
// reads the lane while another one holds the session.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "session/options.h"
#include "wire/frame.h"

namespace strata::session {

constexpr size_t index_of(wire::Lane lane) {
  return static_cast<size_t>(lane) - static_cast<size_t>(wire::Lane::kCommand);
}
inline constexpr std::array<wire::Lane, kLaneCount> kLanes = {
    wire::Lane::kCommand, wire::Lane::kData, wire::Lane::kHealth};

// At most `bytes_max` bytes of it, as UTF-8: what a user's code wrote may be none, and a text that
// is none would be refused over there.
std::string wire_text(std::string_view text, size_t bytes_max);

class LaneStream {
 public:
  LaneStream(wire::Lane lane, uint64_t session_id, int32_t worker_id, uint32_t payload_bytes_max)
      : lane_(lane), session_id_(session_id), worker_id_(worker_id), splitter_(payload_bytes_max) {}

  void set_up() { up_ = true; }
  void set_closed() { closed_ = true; }
  bool up() const { return up_; }
  bool closed() const { return closed_; }

  std::span<std::byte> space() { return splitter_.space(); }
  void came(size_t n) { splitter_.came(n); }
  // The next frame of this session, or why the lane is of no use any more.
  Result<std::optional<wire::Frame>> next();

  // Appends a frame; where the payload is refused nothing is.
  template <class T>
  Result<void> send(wire::FrameType type, uint64_t sequence, const T& message) {
    const size_t before = output_.size();
    const wire::FrameHeader header{
        .type = type, .session_id = session_id_, .worker_id = worker_id_, .sequence = sequence};
    Result<void> appended = wire::append_frame(header, message, &output_);
    appended_ += output_.size() - before;
    return appended;
  }
  std::vector<std::byte>& output() { return output_; }
  // The place in the stream where the next frame begins.
  uint64_t appended() const { return appended_; }
  // Whether the driver has taken a byte of what stands at `place` or behind it.
  bool taken(uint64_t place) const { return appended_ - output_.size() > place; }

 private:
  wire::Lane lane_;
  uint64_t session_id_;
  int32_t worker_id_;
  bool up_ = false;
  bool closed_ = false;
  wire::Splitter splitter_;
  std::vector<std::byte> output_;
  uint64_t appended_ = 0;
};

}  // namespace strata::session
