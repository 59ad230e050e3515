#include "runtime/output_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace strata::runtime {

std::string relayed_line(std::string_view path, int pid, std::string_view text) {
  return fmt::format("{0}{1} {2}{0}{3}\n", kRelayed, path, pid, text);
}

ReadLine OutputLines::parse(std::string_view line) {
  if (line.empty() || line.front() != kRelayed) return {.text = line};
  const size_t second = line.find(kRelayed, 1);
  if (second == std::string_view::npos) return {.text = line.substr(1)};
  const std::string_view head = line.substr(1, second - 1);
  const size_t space = head.rfind(' ');
  ReadLine out{.relayed = true, .text = line.substr(second + 1)};
  if (space == std::string_view::npos) return {.text = out.text};
  const auto [end, error] =
      std::from_chars(head.data() + space + 1, head.data() + head.size(), out.pid);
  if (error != std::errc() || end != head.data() + head.size()) return {.text = out.text};
  out.path = head.substr(0, space);
  return out;
}

void LineBudget::refill(base::Instant now) {
  const int64_t ns = (now - filled_).ns;
  if (ns <= 0) return;
  constexpr int64_t kSecond = 1'000'000'000;
  if (ns >= kSecond) {
    left_ = per_second_;
    filled_ = now;
    return;
  }
  const uint64_t more = static_cast<uint64_t>(ns) * per_second_ / kSecond;
  if (more == 0) return;  // the time is kept until it makes a line
  left_ = std::min<uint64_t>(per_second_, left_ + more);
  filled_ = now;
}

bool LineBudget::take(base::Instant now) {
  if (per_second_ == 0) return true;
  refill(now);
  if (left_ == 0) {
    ++dropped_;
    return false;
  }
  --left_;
  return true;
}

uint64_t LineBudget::take_dropped(base::Instant now, bool ended) {
  if (dropped_ == 0) return 0;
  refill(now);
  if (!ended && per_second_ != 0 && left_ == 0) return 0;
  return std::exchange(dropped_, 0);
}

}  // namespace strata::runtime
