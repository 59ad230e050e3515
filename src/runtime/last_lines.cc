#include "runtime/last_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/utf8.h"

namespace strata::runtime {
namespace {

constexpr std::string_view kCut = "...";

// From the last one backwards.
std::vector<std::string> lines_from_the_end(std::string_view text) {
  std::vector<std::string> out;
  size_t bytes = 0;
  while (!text.empty() && out.size() < kLastLinesMax && bytes < kLastLinesBytesMax) {
    const size_t newline = text.rfind('\n');
    std::string_view line = text.substr(newline == std::string_view::npos ? 0 : newline + 1);
    text = newline == std::string_view::npos ? std::string_view() : text.substr(0, newline);
    if (line.empty() || line.front() == kRelayed) continue;
    std::string clean;
    while (!line.empty()) {
      const size_t n = base::utf8_character(line);
      if (n == 0) {
        clean += '?';
      } else if (line.front() != '\0') {
        clean.append(line.substr(0, n));
      }
      line.remove_prefix(std::max<size_t>(n, 1));
    }
    if (clean.empty()) continue;
    if (clean.size() > kLastLinesBytesMax) {
      size_t from = clean.size() - kLastLinesBytesMax + kCut.size();
      while ((static_cast<unsigned char>(clean[from]) & 0xc0) == 0x80) ++from;
      clean = std::string(kCut) + clean.substr(from);
    }
    bytes += clean.size();
    out.push_back(std::move(clean));
  }
  return out;
}

size_t bytes_of(const std::vector<std::string>& lines) {
  size_t bytes = 0;
  for (const std::string& line : lines) bytes += line.size();
  return bytes;
}

void trim(std::vector<std::string>* lines, size_t lines_max, size_t bytes_max) {
  while (lines->size() > lines_max) lines->pop_back();
  size_t bytes = bytes_of(*lines);
  while (lines->size() > 1 && bytes > bytes_max) {
    bytes -= lines->back().size();
    lines->pop_back();
  }
  if (bytes <= bytes_max || lines->empty()) return;
  std::string& only = lines->front();
  size_t from = only.size() - bytes_max + kCut.size();
  while (from < only.size() && (static_cast<unsigned char>(only[from]) & 0xc0) == 0x80) ++from;
  only = std::string(kCut) + only.substr(from);
}

void append(std::string* text, const char* name, const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  *text += fmt::format("\nlast lines of its {}:", name);
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) *text += "\n  " + *line;
}

}  // namespace

std::string last_lines(std::string_view out, std::string_view err) {
  std::vector<std::string> of_out = lines_from_the_end(out);
  std::vector<std::string> of_err = lines_from_the_end(err);
  // Each stream has half of the room for sure, and what the other leaves.
  trim(&of_err, kLastLinesMax - std::min(of_out.size(), kLastLinesMax / 2),
       kLastLinesBytesMax - std::min(bytes_of(of_out), kLastLinesBytesMax / 2));
  trim(&of_out, kLastLinesMax - of_err.size(), kLastLinesBytesMax - bytes_of(of_err));
  std::string text;
  append(&text, "stdout", of_out);
  append(&text, "stderr", of_err);
  return text;
}

}  // namespace strata::runtime
