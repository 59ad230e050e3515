#include "session/lane_stream.h"

#include <fmt/format.h>

#include "base/fault.h"
#include "base/mark.h"
#include "base/result.h"
#include "base/text.h"
#include "base/utf8.h"

namespace strata::session {

std::string wire_text(std::string_view text, size_t bytes_max) {
  std::string out(base::cut_text(text, bytes_max));
  for (size_t i = 0; i < out.size();) {
    const size_t n = base::utf8_character(std::string_view(out).substr(i));
    if (n == 0) out[i] = '?';
    i += n == 0 ? 1 : n;
  }
  return out;
}

Result<std::optional<wire::Frame>> LaneStream::next() {
  STRATA_ASSIGN(std::optional<wire::Frame> frame, splitter_.next());
  if (!frame) return frame;
  const wire::FrameHeader& header = frame->header;
  // Deliberate fault 16: a late frame of an old session is accepted.
  if (base::fault() == 16) return frame;
  if (header.session_id != session_id_) {
    STRATA_MARK("session: a frame of another session");
    return Error(
        Code::kCorrupt, Scope::kSession,
        fmt::format("{} {} is of session {:016x}, this one is {:016x}", wire_name(header.type),
                    header.sequence, header.session_id, session_id_));
  }
  if (header.worker_id != worker_id_) {
    STRATA_MARK("session: a frame of another worker");
    return Error(Code::kCorrupt, Scope::kSession,
                 fmt::format("{} {} is of worker {}, this one is {}", wire_name(header.type),
                             header.sequence, header.worker_id, worker_id_));
  }
  return frame;
}

}  // namespace strata::session
