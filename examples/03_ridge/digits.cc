#include "digits.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <iterator>
#include <memory>
#include <span>
#include <string_view>

namespace ridge {
namespace {

using Failure = tl::unexpected<std::string>;

struct CloseGz {
  void operator()(gzFile file) const { gzclose_r(file); }
};
using GzFile = std::unique_ptr<gzFile_s, CloseGz>;

// What a message may quote of a file: short and printable.
std::string quoted(std::string_view text) {
  constexpr size_t kBytesMax = 24;
  std::string out = "'";
  for (const char c : text.substr(0, kBytesMax)) out += c >= ' ' && c <= '~' ? c : '?';
  return out + (text.size() > kBytesMax ? "...'" : "'");
}

// A whole number from 0 to `max` and nothing else: no sign, no blank, no fraction.
bool parse_number(std::string_view text, int max, uint8_t* value) {
  unsigned parsed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  if (parsed > static_cast<unsigned>(max)) return false;
  *value = static_cast<uint8_t>(parsed);
  return true;
}

// Empty text on success, else what is wrong with the line.
std::string parse_line(std::string_view line, Digit* digit) {
  if (line.empty()) return "the line is empty";
  size_t columns = 1;
  for (const char c : line) columns += c == ',' ? 1 : 0;
  if (columns != kPixels + 1) {
    return "it has " + std::to_string(columns) + " columns, not " + std::to_string(kPixels + 1);
  }
  for (size_t column = 0; column <= kPixels; ++column) {
    const size_t comma = std::min(line.find(','), line.size());
    const std::string_view field = line.substr(0, comma);
    line.remove_prefix(std::min(comma + 1, line.size()));
    if (column < kPixels) {
      if (!parse_number(field, kPixelMax, &digit->pixels[column])) {
        return "pixel " + std::to_string(column + 1) + " is " + quoted(field) +
               ", not a whole number from 0 to " + std::to_string(kPixelMax);
      }
    } else if (!parse_number(field, kClasses - 1, &digit->label)) {
      return "the digit is " + quoted(field) + ", not a whole number from 0 to 9";
    }
  }
  return {};
}

// zlib's own reason for a failed read, in words.
std::string reason(gzFile file) {
  int code = Z_OK;
  const char* text = gzerror(file, &code);
  if (code == Z_ERRNO) return std::string("cannot be read: ") + std::strerror(errno);
  if (code == Z_BUF_ERROR) return "the gzip data are cut off";
  return std::string("the gzip data are broken: ") + text;
}

// Splits what it is given into lines, wherever the pieces are cut.
class LineParser {
 public:
  explicit LineParser(const std::string& file) : file_(file) {}

  // Empty text on success.
  std::string add(std::string_view bytes) {
    while (!bytes.empty()) {
      const size_t newline = bytes.find('\n');
      partial_ += bytes.substr(0, newline);
      if (partial_.size() > kLineBytesMax) return at_line("it is longer than any good line");
      if (newline == std::string_view::npos) return {};
      bytes.remove_prefix(newline + 1);
      if (std::string error = end_line(); !error.empty()) return error;
    }
    return {};
  }

  // The last line may lack its newline.
  std::string finish() {
    if (!partial_.empty()) {
      if (std::string error = end_line(); !error.empty()) return error;
    }
    return digits_.empty() ? file_ + ": it holds no line" : std::string();
  }

  std::vector<Digit> take() { return std::move(digits_); }

 private:
  std::string end_line() {
    if (digits_.size() == kLinesMax) {
      return at_line("more than " + std::to_string(kLinesMax) + " lines");
    }
    Digit digit;
    if (std::string error = parse_line(partial_, &digit); !error.empty()) return at_line(error);
    digits_.push_back(digit);
    partial_.clear();
    return {};
  }
  std::string at_line(const std::string& what) const {
    return file_ + ": line " + std::to_string(digits_.size() + 1) + ": " + what;
  }

  const std::string& file_;
  std::string partial_;
  std::vector<Digit> digits_;
};

}  // namespace

tl::expected<std::vector<Digit>, std::string> load_digits(const std::string& file) {
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Failure(file + ": cannot be opened: " + std::strerror(errno));
  const GzFile gz(gzdopen(fd, "rb"));
  if (!gz) {
    close(fd);
    return Failure(file + ": cannot be read: out of memory");
  }

  LineParser parser(file);
  std::array<char, 64 * 1024> block;
  for (;;) {
    errno = 0;
    const int n = gzread(gz.get(), block.data(), block.size());
    if (n < 0) return Failure(file + ": " + reason(gz.get()));
    // zlib hands bytes through as they are where they do not start like gzip.
    if (gzdirect(gz.get()) != 0) return Failure(file + ": it is not a gzip file");
    if (std::string error = parser.add({block.data(), static_cast<size_t>(n)}); !error.empty()) {
      return Failure(std::move(error));
    }
    if (static_cast<size_t>(n) < block.size()) {
      // The end; zlib reports a cut one beside the last bytes that it could still give.
      int code = Z_OK;
      gzerror(gz.get(), &code);
      if (code != Z_OK && code != Z_STREAM_END) return Failure(file + ": " + reason(gz.get()));
      break;
    }
  }
  if (std::string error = parser.finish(); !error.empty()) return Failure(std::move(error));
  return parser.take();
}

Digit shifted(const Digit& digit, int right, int down) {
  Digit out{{}, digit.label};
  for (int row = 0; row < kSide; ++row) {
    for (int column = 0; column < kSide; ++column) {
      const int from_row = row - down, from_column = column - right;
      if (from_row < 0 || from_row >= kSide || from_column < 0 || from_column >= kSide) continue;
      out.pixels[static_cast<size_t>(row * kSide + column)] =
          digit.pixels[static_cast<size_t>(from_row * kSide + from_column)];
    }
  }
  return out;
}

Samples split(const std::vector<Digit>& digits, bool augment) {
  struct Shift {
    int right, down;
  };
  constexpr Shift kShifts[] = {{0, 0}, {0, -1}, {0, 1}, {-1, 0}, {1, 0}};
  Samples samples;
  for (const Shift& shift : std::span(kShifts).first(augment ? std::size(kShifts) : 1)) {
    for (size_t line = 0; line < digits.size(); ++line) {
      (is_predicted(line) ? samples.predicted : samples.learned)
          .push_back(shifted(digits[line], shift.right, shift.down));
    }
    if (samples.predicted_as_they_were == 0) {
      samples.predicted_as_they_were = samples.predicted.size();
    }
  }
  return samples;
}

}  // namespace ridge
