// OutputLines: the bytes of one stream of a child, made into whole lines; LineBudget: how many of
// them a child may have shown.
//
// Pure: no I/O and no clock. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/time.h"
#include "runtime/last_lines.h"

namespace strata::runtime {

// A line, and who wrote it where that is not the stream's own child.
struct ReadLine {
  bool relayed = false;
  std::string_view path = {};
  int pid = 0;
  std::string_view text;
};

// What a relaying Worker writes for one line: kRelayed "path pid" kRelayed text newline.
std::string relayed_line(std::string_view path, int pid, std::string_view text);

class OutputLines {
 public:
  // A longer line comes in pieces.
  static constexpr size_t kLineBytesMax = 8192;

  // emit(const ReadLine&) for each line that the bytes end. NULs are left out.
  template <class Emit>
  void feed(std::string_view bytes, Emit&& emit) {
    while (!bytes.empty()) {
      const size_t newline = bytes.find('\n');
      const bool ends = newline != std::string_view::npos;
      const std::string_view piece = bytes.substr(0, newline);
      if (ends && partial_.empty() && piece.size() <= kLineBytesMax && is_plain(piece)) {
        emit(ReadLine{.text = piece});
      } else {
        add(piece, ends, emit);
      }
      bytes.remove_prefix(ends ? newline + 1 : bytes.size());
    }
  }
  // The stream has ended: what is there without a newline is a line.
  template <class Emit>
  void end(Emit&& emit) {
    if (!partial_.empty()) add({}, true, emit);
  }

 private:
  static bool is_plain(std::string_view piece) {
    return piece.find(kRelayed) == std::string_view::npos &&
           piece.find('\0') == std::string_view::npos;
  }
  static ReadLine parse(std::string_view line);

  template <class Emit>
  void add(std::string_view piece, bool ends, Emit&& emit) {
    for (const char c : piece) {
      if (c == '\0') continue;
      // A relayed line begins anew, also behind a part of another.
      if (c == kRelayed && !in_relay_head() && !partial_.empty()) flush(emit);
      partial_ += c;
      if (c == kRelayed) ++marks_;
      if (partial_.size() >= kLineBytesMax + kHeadBytesMax) flush(emit);
    }
    if (ends) flush(emit);
  }
  template <class Emit>
  void flush(Emit&& emit) {
    emit(parse(partial_));
    partial_.clear();
    marks_ = 0;
  }
  bool in_relay_head() const {
    return marks_ == 1 && partial_.front() == kRelayed && partial_.size() <= kHeadBytesMax;
  }

  static constexpr size_t kHeadBytesMax = 512;
  std::string partial_;  // in: bytes without their newline yet; out: flush
  int marks_ = 0;        // kRelayed in partial_
};

// `per_second` lines, and as many at once after a pause.
class LineBudget {
 public:
  explicit LineBudget(uint32_t per_second) : per_second_(per_second), left_(per_second) {}
  // False: the line is to be dropped; it is counted.
  bool take(base::Instant now);
  void count_dropped(uint64_t lines) { dropped_ += lines; }
  // How many were dropped, once lines pass again (or `ended`): to be told, then forgotten.
  uint64_t take_dropped(base::Instant now, bool ended);

 private:
  void refill(base::Instant now);
  uint32_t per_second_;
  uint64_t left_;
  base::Instant filled_{};
  uint64_t dropped_ = 0;
};

}  // namespace strata::runtime
