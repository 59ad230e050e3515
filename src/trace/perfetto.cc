#include "trace/perfetto.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
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
  return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
}

std::string_view category(Kind kind) {
  static constexpr std::string_view kNames[] = {
      "none",  "run",  "build",  "submit", "dispatch", "completion", "take_back", "skip",
      "sleep", "gone", "cancel", "start",  "task",     "control",    "block"};
  static_assert(std::size(kNames) == static_cast<size_t>(Kind::kCount));
  return kNames[static_cast<size_t>(kind)];
}

std::string_view outcome(Mark mark) {
  static constexpr std::string_view kNames[] = {"ok", "failed", "lost", "cancelled"};
  static_assert(std::size(kNames) == static_cast<size_t>(Mark::kCount));
  return kNames[static_cast<size_t>(mark)];
}

std::string_view role_name(Role role) {
  switch (role) {
    case Role::kSub:
      return "SUB";
    case Role::kChip:
      return "chip";
    default:
      return "Worker";
  }
}

// One event of the file at a time.
class Writer {
 public:
  explicit Writer(std::ostream& out) : out_(out) {}

  void write(std::string_view object) {
    out_ << (first_ ? "\n" : ",\n") << object;
    first_ = false;
  }
  // A metadata event: the name of a process or lane, say. `value` is JSON.
  void label(int64_t pid, uint64_t tid, std::string_view what, std::string_view key,
             std::string_view value) {
    write(fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{"{}":{}}}}})", pid, tid,
                      what, key, value));
  }

 private:
  std::ostream& out_;
  bool first_ = true;
};

// Of one ring.
class RingWriter {
 public:
  RingWriter(Report& report, size_t at, int64_t pid, Writer& writer)
      : report_(report), ring_(report.rings()[at]), at_(at), pid_(pid), writer_(writer) {}

  void write() {
    names_ = report_.names(at_);
    const std::vector<Lane> lanes = report_.lanes(at_);
    for (const Lane& lane : lanes) {
      const bool inlined = ring_.role == Role::kInline;
      name_lane(lane.number, inlined ? fmt::format("{} of {}", lane.name, ring_.path) : lane.name);
      for (const Slice& slice : lane.slices) write(lane, slice);
    }
    if (ring_.dropped > 0) write_dropped(lanes);
  }

 private:
  // Every lane of the file has a number of its own: some readers know threads by nothing else.
  uint64_t tid(uint32_t lane) const {
    return uint64_t{ring_.ring} * (Report::kLanesMax + 1) + lane + 1;
  }
  void name_lane(uint32_t lane, std::string_view name) {
    writer_.label(pid_, tid(lane), "thread_name", "name", quoted(name));
    writer_.label(pid_, tid(lane), "thread_sort_index", "sort_index", fmt::format("{}", tid(lane)));
  }

  std::string_view name_of(const Event& event) const {
    return names_[event.name < names_.size() ? event.name : 0];
  }

  std::string title(const Event& event) const {
    switch (event.kind) {
      case Kind::kRun:
        return fmt::format("run {}", event.run);
      case Kind::kBuild:
        return "build";
      case Kind::kSleep:
        return "sleep";
      case Kind::kGone:
        return fmt::format("worker {} ended", event.worker);
      case Kind::kCancel:
        return fmt::format("cancel run {}", event.run);
      case Kind::kStart:
        return "start";
      default:
        return std::string(name_of(event));
    }
  }

  std::string arguments(const Slice& slice) const {
    const Event& event = slice.event;
    const std::string task = event.run == 0
                                 ? std::string()
                                 : fmt::format(R"("run":{},"task":{},)", event.run, event.task);
    switch (event.kind) {
      case Kind::kRun:
        return fmt::format(R"("run":{},"outcome":"{}")", event.run, outcome(event.mark));
      case Kind::kBuild:
      case Kind::kCancel:
        return fmt::format(R"("run":{})", event.run);
      case Kind::kSubmit:
      case Kind::kSkip:
        return fmt::format(R"("run":{},"task":{})", event.run, event.task);
      case Kind::kDispatch:
      case Kind::kTakeBack:
        return fmt::format(R"({}"worker":{},"ticket":{})", task, event.worker, event.id);
      case Kind::kCompletion:
        return fmt::format(R"({}"worker":{},"ticket":{},"outcome":"{}")", task, event.worker,
                           event.id, outcome(event.mark));
      case Kind::kTask:
        return fmt::format(R"({}"ticket":{},"outcome":"{}")", task, event.id, outcome(event.mark));
      case Kind::kBlock:
        return fmt::format(R"("block":{})", event.id);
      case Kind::kControl:
        return fmt::format(R"("outcome":"{}")", outcome(event.mark));
      case Kind::kGone:
        return fmt::format(R"("worker":{},"reason":{})", event.worker, quoted(name_of(event)));
      default:
        return {};
    }
  }

  void write(const Lane& lane, const Slice& slice) {
    const Event& event = slice.event;
    std::string name = title(event);
    if (event.mark != Mark::kOk) name += fmt::format(" ({})", outcome(event.mark));
    std::string flow;
    if (slice.flow != 0) {
      flow = fmt::format(R"(,"bind_id":"{:#x}","{}":true)", slice.flow,
                         event.kind == Kind::kDispatch ? "flow_out" : "flow_in");
    }
    const std::string length =
        slice.instant ? R"("s":"t")"
                      : fmt::format(R"("dur":{})", microseconds(slice.end_ns - slice.start_ns));
    writer_.write(fmt::format(
        R"({{"ph":"{}","pid":{},"tid":{},"ts":{},{},"cat":"{}","name":{},"args":{{{}}}{}}})",
        slice.instant ? "i" : "X", pid_, tid(lane.number), microseconds(slice.start_ns), length,
        category(event.kind), quoted(name), arguments(slice), flow));
  }

  // Seen where the kept events end, on a lane of its own.
  void write_dropped(const std::vector<Lane>& lanes) {
    int64_t last_ns = 0;
    for (const Lane& lane : lanes) {
      for (const Slice& slice : lane.slices) last_ns = std::max(last_ns, slice.end_ns);
    }
    name_lane(Report::kLanesMax, "dropped events");
    writer_.write(fmt::format(
        R"({{"ph":"i","pid":{},"tid":{},"ts":{},"s":"t","cat":"dropped","name":"from here on {} )"
        R"(events are dropped: the ring is full","args":{{"dropped":{}}}}})",
        pid_, tid(Report::kLanesMax), microseconds(last_ns), ring_.dropped, ring_.dropped));
  }

  Report& report_;
  const Region::RingInfo& ring_;
  size_t at_;
  int64_t pid_;
  Writer& writer_;
  std::vector<std::string> names_;
};

std::string_view parent_path(std::string_view path) {
  return path.substr(0, std::min(path.rfind('/'), path.size()));
}

// Of "L4/0/12" 0 and 12: by these a parent comes before what is below it, and worker 2 before 10.
std::vector<uint32_t> numbers_of(std::string_view path) {
  std::vector<uint32_t> out;
  for (size_t at = path.find('/'); at != std::string_view::npos; at = path.find('/', at + 1)) {
    uint32_t number = 0;
    std::from_chars(path.data() + at + 1, path.data() + path.size(), number);
    out.push_back(number);
  }
  return out;
}

// One process: its first ring says what it is; a child that is a Worker has two.
struct Process {
  int64_t pid = 0;
  std::vector<size_t> rings;
};

std::vector<Process> processes_of(const Report& report) {
  std::vector<Process> out;
  for (size_t at = 0; at < report.rings().size(); ++at) {
    const Region::RingInfo& ring = report.rings()[at];
    Process* found = nullptr;
    for (Process& process : out) {
      const Region::RingInfo& first = report.rings()[process.rings[0]];
      // Tasks that are calls in their parent's process belong there; a Worker below that is calls
      // too is shown as a process of its own.
      const std::string_view path = ring.role == Role::kInline ? parent_path(ring.path) : ring.path;
      if (ring.pid == first.pid && path == first.path) found = &process;
    }
    if (found == nullptr) found = &out.emplace_back(Process{ring.pid, {}});
    found->rings.push_back(at);
  }
  std::stable_sort(out.begin(), out.end(), [&](const Process& a, const Process& b) {
    return numbers_of(report.rings()[a.rings[0]].path) <
           numbers_of(report.rings()[b.rings[0]].path);
  });
  // The kernel may have given a number twice.
  std::set<int64_t> used;
  for (Process& process : out) {
    while (!used.insert(process.pid).second) process.pid += int64_t{1} << 32;
  }
  return out;
}

std::string process_name(const Report& report, const Process& process) {
  const Region::RingInfo& first = report.rings()[process.rings[0]];
  return fmt::format("{} {}", first.path, role_name(first.role));
}

}  // namespace

void write_perfetto_json(Report& report, const Facts& facts, std::ostream& out) {
  out << R"({"displayTimeUnit":"ns","traceEvents":[)";
  Writer writer(out);
  uint64_t dropped = 0;
  uint64_t bad = 0;
  uint64_t nameless = 0;
  int sort_index = 0;
  for (const Process& process : processes_of(report)) {
    uint64_t dropped_here = 0;
    for (const size_t at : process.rings) dropped_here += report.rings()[at].dropped;
    // Zero is the idle process to some readers, so the process stands for its thread.
    const auto tid = static_cast<uint64_t>(process.pid);
    writer.label(process.pid, tid, "process_name", "name", quoted(process_name(report, process)));
    writer.label(process.pid, tid, "process_sort_index", "sort_index",
                 fmt::format("{}", sort_index++));
    if (dropped_here > 0) {
      writer.label(process.pid, tid, "process_labels", "labels",
                   fmt::format("\"{} events dropped\"", dropped_here));
    }
    for (const size_t at : process.rings) {
      RingWriter(report, at, process.pid, writer).write();
      bad += report.bad(at);
      nameless += report.rings()[at].names_dropped;
    }
    dropped += dropped_here;
  }
  out << "\n],\n\"otherData\":{";
  for (const auto& [key, value] : facts) out << quoted(key) << ":" << quoted(value) << ",";
  out << fmt::format(R"("dropped_events":{},"bad_events":{},)", dropped, bad)
      << fmt::format(R"("names_without_room":{},"processes_without_ring":{})", nameless,
                     report.refused())
      << "}}\n";
}

}  // namespace strata::trace
