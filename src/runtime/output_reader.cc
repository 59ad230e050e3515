#include "runtime/output_reader.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/result.h"
#include "os/clock.h"
#include "os/system_error.h"
#include "runtime/last_lines.h"

namespace strata::runtime {
namespace {

constexpr size_t kReadBytes = 256 * 1024;
// A write of at most this to a pipe is not mixed with those of others.
constexpr size_t kBatchBytes = 4096;
constexpr uint64_t kForgetBytes = 64 * 1024;
constexpr uint64_t kMuchBytes = 1 << 20;

}  // namespace

Result<std::unique_ptr<OutputReader>> OutputReader::create(Options options,
                                                           std::function<bool()> busy) {
  STRATA_ASSIGN(os::EventFd wake, os::EventFd::create());
  return std::unique_ptr<OutputReader>(
      new OutputReader(std::move(options), std::move(busy), std::move(wake)));
}

OutputReader::~OutputReader() {
  stop();
}

Result<std::array<int, 3>> OutputReader::open(uint32_t worker) {
  STRATA_ASSIGN(os::OutputFile out, os::OutputFile::create("strata-stdout"));
  STRATA_ASSIGN(os::OutputFile err, os::OutputFile::create("strata-stderr"));
  return open(worker, std::move(out), std::move(err));
}

std::array<int, 3> OutputReader::open(uint32_t worker, os::OutputFile out, os::OutputFile err) {
  const std::array<int, 3> fds = {out.fd(), err.fd(), wake_.fd()};
  const std::lock_guard lock(mutex_);
  if (Child* const before = latest(worker)) before->ended = true;
  children_.push_back(std::shared_ptr<Child>(
      new Child{.worker = worker,
                .path = fmt::format("{}/{}", options_.path, worker),
                .out = {.file = std::move(out), .is_stderr = false, .lines = {}, .batch = {}},
                .err = {.file = std::move(err), .is_stderr = true, .lines = {}, .batch = {}},
                .budget = LineBudget(options_.spec.lines_per_second)}));
  return fds;
}

OutputReader::Child* OutputReader::latest(uint32_t worker) const {
  const auto found = std::find_if(children_.rbegin(), children_.rend(),
                                  [&](const auto& child) { return child->worker == worker; });
  return found == children_.rend() ? nullptr : found->get();
}

void OutputReader::started(uint32_t worker, int pid) {
  const std::lock_guard lock(mutex_);
  if (Child* const child = latest(worker)) child->pid = pid;
}

void OutputReader::ended(uint32_t worker) {
  {
    const std::lock_guard lock(mutex_);
    if (Child* const child = latest(worker)) child->ended = true;
  }
  wake_.signal();
}

std::string OutputReader::last_lines(uint32_t worker) const {
  const std::lock_guard lock(mutex_);
  const Child* const child = latest(worker);
  if (child == nullptr) return {};
  return runtime::last_lines(child->out.file.tail(kLastLinesLookBytes),
                             child->err.file.tail(kLastLinesLookBytes));
}

void OutputReader::begin_watch() {
  if (!watching_.exchange(true)) wake_.signal();
}

// ---------------------------------------------------------------- the thread

Result<void> OutputReader::start() {
  try {
    if (!thread_.joinable()) thread_ = std::thread([this] { main(); });
  } catch (const std::system_error& e) {
    return os::system_error("start the thread that reads the children's output", e.code().value());
  }
  return {};
}

void OutputReader::stop() {
  if (!thread_.joinable()) return;
  stop_ = true;
  wake_.signal();
  thread_.join();
}

void OutputReader::main() {
  // No handler of the program runs here, and a program that reads its own output no more is told by
  // EPIPE.
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
  buffer_.resize(kReadBytes);
  for (;;) {
    pollfd wake{.fd = wake_.fd(), .events = POLLIN, .revents = 0};
    const int got = ::poll(&wake, 1, std::exchange(much_, false) ? 0 : watching_ ? kLookMs : -1);
    if (got > 0) wake_.drain();
    const bool last = stop_;
    read_all();
    if (last) break;
    if (got != 0 || much_) continue;
    watching_ = false;
    // Asked after it is told: who begins meanwhile either sees that, or is seen here.
    if (busy_()) watching_ = true;
  }
  // No process of this Worker is left, or none that is waited for.
  {
    const std::lock_guard lock(mutex_);
    for (const std::shared_ptr<Child>& child : children_) child->ended = true;
  }
  read_all();
}

void OutputReader::read_all() {
  std::vector<std::shared_ptr<Child>> children;
  {
    const std::lock_guard lock(mutex_);
    children = children_;
  }
  bool any_ended = false;
  for (const std::shared_ptr<Child>& child : children) {
    const bool ended = child->ended;
    read(*child);
    if (ended) {
      end(*child);
      any_ended = true;
    }
    tell_dropped(*child, ended);
  }
  if (std::exchange(relayed_, false) && options_.above >= 0) {
    const uint64_t one = 1;
    // An eventfd that is full wakes its reader all the same.
    [[maybe_unused]] const ssize_t put = ::write(options_.above, &one, sizeof one);
  }
  if (!any_ended) return;
  const std::lock_guard lock(mutex_);
  // One that ended only now is read once more.
  std::erase_if(children_, [](const auto& child) { return child->done; });
}

void OutputReader::read(Child& child) {
  child.out.file.header().told.store(0, std::memory_order_seq_cst);
  read(child, child.out);
  read(child, child.err);
}

// What is there now: who writes on and on is read on in the next round.
void OutputReader::read(Child& child, Stream& stream) {
  const Result<uint64_t> end = stream.file.end();
  if (!end) return;
  if (*end - stream.at > kMuchBytes) much_ = true;
  while (stream.at < *end) {
    const Result<size_t> got = stream.file.read(stream.at, buffer_);
    if (!got || *got == 0) break;
    stream.at += *got;
    stream.lines.feed({buffer_.data(), *got},
                      [&](const ReadLine& line) { show(child, stream, line); });
    // The last lines of the task that runs stay.
    const uint64_t keep = std::min(stream.at, stream.file.tail_begin(kLastLinesLookBytes));
    if (keep < stream.forgotten + kForgetBytes) continue;
    if (stream.file.forget_before(keep)) stream.forgotten = keep;
  }
  flush(child, stream);
}

void OutputReader::end(Child& child) {
  for (Stream* const stream : {&child.out, &child.err}) {
    stream->lines.end([&](const ReadLine& line) { show(child, *stream, line); });
    flush(child, *stream);
  }
  child.done = true;
}

void OutputReader::tell_dropped(Child& child, bool ended) {
  const uint64_t dropped = child.budget.take_dropped(os::monotonic_now(), ended);
  if (dropped == 0 || options_.spec.mode == OutputMode::kDiscard) return;
  const std::string text =
      fmt::format("strata: {} lines were dropped (WorkerSpec::output.lines_per_second is {})",
                  dropped, options_.spec.lines_per_second);
  show_unlimited(child, child.err, {.text = text});
  flush(child, child.err);
}

void OutputReader::show(Child& child, Stream& stream, const ReadLine& line) {
  if (options_.spec.mode == OutputMode::kDiscard && !options_.relay) return;
  // Relayed ones were counted where they were read first.
  if (!line.relayed && !child.budget.take(os::monotonic_now())) return;
  show_unlimited(child, stream, line);
}

void OutputReader::show_unlimited(Child& child, Stream& stream, const ReadLine& line) {
  const std::string_view path = line.relayed ? line.path : child.path;
  const int pid = line.relayed ? line.pid : child.pid.load();
  if (!options_.relay && options_.spec.on_line) {
    try {
      options_.spec.on_line({path, pid, stream.is_stderr, line.text});
    } catch (...) {
      if (!std::exchange(told_of_callback_, true)) {
        fmt::print(stderr, "strata: {}: WorkerSpec::output.on_line threw\n", options_.path);
      }
    }
    return;
  }
  std::string text = options_.relay ? relayed_line(path, pid, line.text)
                                    : fmt::format("[{} pid {}] {}\n", path, pid, line.text);
  if (stream.batch.size() + text.size() > kBatchBytes) flush(child, stream);
  stream.batch += text;
  relayed_ = options_.relay;
  ++stream.batched;
}

void OutputReader::flush(Child& child, Stream& stream) {
  if (stream.batch.empty()) return;
  if (!write(stream.is_stderr ? STDERR_FILENO : STDOUT_FILENO, stream.batch)) {
    child.budget.count_dropped(stream.batched);
  }
  stream.batch.clear();
  stream.batched = 0;
}

// False where it was not taken, or only in part.
bool OutputReader::write(int fd, std::string_view text) {
  while (!text.empty()) {
    pollfd sink{.fd = fd, .events = POLLOUT, .revents = 0};
    const int ready = ::poll(&sink, 1, sink_stuck_ ? 0 : kSinkMs);
    if (ready < 0 && errno == EINTR) continue;
    sink_stuck_ = ready <= 0;
    if (ready <= 0 || (sink.revents & POLLOUT) == 0) return false;
    const ssize_t put = ::write(fd, text.data(), std::min(text.size(), kBatchBytes));
    if (put < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (put < 0) return false;
    text.remove_prefix(static_cast<size_t>(put));
  }
  return true;
}

}  // namespace strata::runtime
