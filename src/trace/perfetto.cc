#include "trace/perfetto.h"

#include <fmt/format.h>

#include <string_view>

#include "base/utf8.h"

namespace strata::trace {
namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const size_t n = base::utf8_character(text);
    const char c = text[0];
    if (n == 0) {
      out += "\\ufffd";
    } else if (n == 1 && (c == '"' || c == '\\')) {
      out += '\\';
      out += c;
    } else if (n == 1 && (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += text.substr(0, n);
    }
    text.remove_prefix(n == 0 ? 1 : n);
  }
  return out + '"';
}

// The format counts in microseconds; three decimals keep every nanosecond.
std::string microseconds(int64_t ns) {
  const bool negative = ns < 0;
  const uint64_t n = negative ? -static_cast<uint64_t>(ns) : static_cast<uint64_t>(ns);
  return fmt::format("{}{}.{:03}", negative ? "-" : "", n / 1000, n % 1000);
}

std::string entry_of(const std::vector<std::string>& table, uint32_t index) {
  return index < table.size() ? table[index] : fmt::format("#{}", index);
}

class Writer {
 public:
  explicit Writer(std::ostream& out) : out_(out) {}
  void write(const std::string& object) {
    out_ << (first_ ? "\n" : ",\n") << object;
    first_ = false;
  }
  // A metadata event: the name of a process or lane, say.
  void label(int64_t pid, uint32_t lane, std::string_view what, std::string_view key,
             std::string_view text) {
    write(fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{"{}":{}}}}})", pid, lane,
                      what, key, quoted(text)));
  }

 private:
  std::ostream& out_;
  bool first_ = true;
};

void write_process(const ProcessTimeline& process, Writer& writer) {
  writer.label(process.pid, 0, "process_name", "name", process.name);
  if (process.dropped > 0) {
    writer.label(process.pid, 0, "process_labels", "labels",
                 fmt::format("{} events dropped", process.dropped));
  }
  for (uint32_t lane = 0; lane < process.lanes.size(); ++lane) {
    writer.label(process.pid, lane, "thread_name", "name", process.lanes[lane]);
  }
  for (const Event& event : process.events) {
    // An end before its start would hide the event: it is shown with no length.
    const int64_t ns = event.end_ns > event.start_ns ? event.end_ns - event.start_ns : 0;
    writer.write(fmt::format(
        R"({{"ph":"X","pid":{},"tid":{},"name":{},"ts":{},"dur":{},"args":{{"task":{}}}}})",
        process.pid, event.lane, quoted(entry_of(process.names, event.name)),
        microseconds(event.start_ns), microseconds(ns), event.task));
  }
}

}  // namespace

void write_perfetto_json(std::span<const ProcessTimeline> processes, std::ostream& out) {
  out << R"({"displayTimeUnit":"ns","traceEvents":[)";
  Writer writer(out);
  for (const ProcessTimeline& process : processes) write_process(process, writer);
  out << "\n]}\n";
}

}  // namespace strata::trace
