#include "runtime/runner_main.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <mutex>
#include <thread>
#include <utility>

#include "base/result.h"
#include "engine/remote_task.h"
#include "mailbox/waiter.h"
#include "os/clock.h"
#include "os/cores.h"
#include "os/event_fd.h"
#include "os/process_title.h"
#include "os/system_error.h"
#include "runtime/context.h"
#include "runtime/pause.h"
#include "runtime/remote_executor.h"
#include "runtime/runner_lanes.h"
#include "runtime/runner_output.h"
#include "runtime/worker_core.h"
#include "session/runner_session.h"

namespace strata::runtime {
namespace {

using wire::Lane;

constexpr int kExitLost = 5;  // the parent, or its word that this is to end
// An answer waits for those of the tasks behind it only while these are known to be quick, and
// until there are so many, or the first of them is so old. Where a task takes longer than it did
// before, the other thread writes what waits.
constexpr base::Duration kQuick = base::Duration::from_us(20);
constexpr base::Duration kOldAnswer = base::Duration::from_us(40);
constexpr size_t kAnswersAtOnce = session::kTaskCredits / 2;  // the parent sends the next meanwhile
constexpr int64_t kSpinNs = 10'000;
constexpr int kWatchMs = 1;
constexpr int kIdleWatches = 100;  // without an answer that waits, then nobody watches any more

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "?";
  return name.data();
}

WorkerSpec spec_of(const wire::Manifest& manifest, const RunnerSettings& settings) {
  WorkerSpec spec;
  spec.level = manifest.level;
  spec.sub_workers = static_cast<int>(manifest.sub_workers);
  spec.chips = static_cast<int>(manifest.device_ids.size());
  spec.cpus.assign(manifest.cpus.begin(), manifest.cpus.end());
  spec.library_path = settings.allow_library;
  spec.limits.slots = manifest.limits.slots;
  spec.limits.depth = manifest.limits.depth;
  spec.limits.buffers = manifest.limits.buffers;
  spec.limits.callables = manifest.limits.callables;
  spec.limits.heap_bytes = manifest.limits.heap_bytes;
  spec.limits.huge_pages = manifest.limits.huge_pages;
  spec.limits.reserve_memory = manifest.limits.reserve_memory;
  const wire::ManifestTimeouts& from = manifest.timeouts;
  spec.timeouts = {.child_ready_ms = from.child_ready_ms,
                   .building_turn_ms = from.building_turn_ms,
                   .control_ms = from.control_ms,
                   .close_ms = from.close_ms,
                   .exit_ms = from.exit_ms,
                   .deadline_grace_ms = from.deadline_grace_ms,
                   .stall_report_ms = from.stall_report_ms};
  return spec;
}

// The session of one runner, once its Worker stands. The thread that calls run() has the command
// lane and runs its tasks; a second one has the two others, the beats and the end.
class Runner final : private session::RunnerSession::Sink {
 public:
  Runner(RunnerStart& start, const wire::Manifest& manifest, RunnerLanes& lanes,
         os::EventFd task_wake, os::EventFd other_wake)
      : start_(start),
        manifest_(manifest),
        lanes_(lanes),
        task_wake_(std::move(task_wake)),
        other_wake_(std::move(other_wake)),
        session_(options(start, manifest), static_cast<session::RunnerSession::Sink&>(*this),
                 os::boottime_now()) {}

  // Called by the readers of the children's output and of this process's own.
  void line(const OutputLine& from) {
    wire::Log log;
    log.stream = from.is_stderr ? wire::LogStream::kStderr : wire::LogStream::kStdout;
    // The parent puts before it which Worker this is.
    log.text = from.pid == ::getpid()
                   ? std::string(from.text)
                   : fmt::format("[{} pid {}] {}", from.path, from.pid, from.text);
    log.text.resize(std::min<size_t>(log.text.size(), wire::kTextBytesMax));
    const std::lock_guard lock(mutex_);
    log.sequence = session_.executing();
    session_.log(std::move(log));
  }

  // `output` may be null.
  int run(WorkerCore& core, RemoteExecutor& executor, RunnerOutput* output) {
    output_ = output;
    executor.set_output(output);
    {
      const std::lock_guard lock(mutex_);
      const base::Instant now = os::boottime_now();
      for (const Lane lane : session::kLanes) session_.on_lane_up(lane, now);
      wire::Hello hello;
      hello.caps = {.kinds = 1u << static_cast<uint32_t>(CallableKind::kNativeImport),
                    .scopes = 0x7e,
                    .spaces = 1u << static_cast<uint32_t>(wire::Space::kHostInline),
                    .directions = 1u << static_cast<uint32_t>(TensorArgType::kInput)};
      hello.runtimes = {{manifest_.runtime, "1", ""}};
      session_.ready(std::move(hello));
    }
    static_cast<void>(start_.socket.ready());
    std::thread other([this] { keep(); });
    const int status = serve(core, executor);
    over_ = true;
    other_wake_.signal();
    other.join();
    return status;
  }

 private:
  static session::RunnerOptions options(const RunnerStart& start, const wire::Manifest& manifest) {
    session::RunnerOptions out;
    out.session_id = manifest.session_id;
    out.worker_id = manifest.worker_id;
    out.parent = start.settings.parent;
    out.host = host_name();
    out.path = fmt::format("{}/{}", manifest.parent_path, manifest.worker_id);
    out.pid = static_cast<uint32_t>(::getpid());
    out.early_controls = manifest.early_controls;
    out.log_level = manifest.log_level;
    out.payload_bytes_max = manifest.limits.payload_bytes_max;
    const wire::ManifestTimeouts& from = manifest.timeouts;
    out.timing = {.start = base::Duration::from_ms(from.start_ms),
                  .control = base::Duration::from_ms(from.control_ms),
                  .beat = base::Duration::from_ms(from.beat_ms),
                  .hold = base::Duration::from_ms(from.hold_ms),
                  .parent_verdict = base::Duration::from_ms(from.parent_verdict_ms),
                  .runner_verdict = base::Duration::from_ms(from.runner_verdict_ms)};
    return out;
  }

  // --- the session's words, under the lock
  void on_work(Lane lane) override {
    if (lane != Lane::kCommand) return other_wake_.signal();
    if (!reads_) task_wake_.signal();  // else its thread has just read it
  }
  void on_cancel(uint64_t sequence) override { cancelled_ = sequence; }
  void on_set_log(wire::LogLevel) override {}
  void on_ended(const std::optional<Error>& cause) override {
    if (cause) {
      fmt::print(stderr, "strata: {}: {}\n", manifest_.parent_path, cause->to_string());
      lost_ = true;
    }
    task_wake_.signal();
    other_wake_.signal();
  }

  // --- the lanes, under the lock
  void read(Lane lane) {
    while (!session_.ended()) {
      const std::span<std::byte> space = session_.space(lane);
      const Result<size_t> got = lanes_.at(lane).read(space);
      if (!got) return session_.on_lane_closed(lane, got.error(), os::boottime_now());
      if (*got == 0) return;
      session_.came(lane, *got, os::boottime_now());
      // A socket in clear that gave less than there was room for has no more.
      if (!start_.keys && *got < space.size()) return;
    }
  }
  void write(Lane lane) {
    std::vector<std::byte>& out = session_.output(lane);
    while (!out.empty()) {
      const Result<size_t> put = lanes_.at(lane).write(out);
      if (!put) return session_.on_lane_closed(lane, put.error(), os::boottime_now());
      if (*put == 0) return;
      out.erase(out.begin(), out.begin() + static_cast<long>(*put));
    }
  }

  // --- the thread of the command lane
  struct Asked {
    const std::atomic<uint64_t>* cancelled;
    uint64_t sequence;
  };
  static bool is_cancelled(const void* context) {
    const auto* const asked = static_cast<const Asked*>(context);
    return asked->cancelled->load(std::memory_order_relaxed) >= asked->sequence;
  }

  int serve(WorkerCore& core, RemoteExecutor& executor) {
    for (;;) {
      std::optional<session::Work> work;
      {
        const std::lock_guard lock(mutex_);
        if (session_.ended()) return lost_ ? kExitLost : 0;
        work = work_ ? std::exchange(work_, std::nullopt) : take();
        const auto* const task = work ? std::get_if<wire::Task>(&work->what) : nullptr;
        if (task == nullptr || !may_wait(executor.last_took(*task))) write_answers();
      }
      if (!work) {
        await();
        continue;
      }
      if (const auto* const task = std::get_if<wire::Task>(&work->what)) {
        const Asked asked{&cancelled_, work->sequence};
        const wire::Completion done =
            executor.run(*task, work->sequence, {&Runner::is_cancelled, &asked});
        const std::lock_guard lock(mutex_);
        if (Result<void> put = session_.completion(done); !put) answer_otherwise(put.error());
        if (answers_++ == 0) first_answer_ = base::Instant{done.ended_ns};
      } else if (const auto* const control = std::get_if<wire::Control>(&work->what)) {
        const wire::ControlReply reply = executor.control(*control);
        const std::lock_guard lock(mutex_);
        if (Result<void> put = session_.reply(Lane::kCommand, reply); !put) {
          session_.fail(put.error(), os::boottime_now());
        }
        write(Lane::kCommand);
      } else {
        static_cast<void>(core.close());
        if (output_ != nullptr) output_->stop();
        const std::lock_guard lock(mutex_);
        session_.drained();
        for (const Lane lane : session::kLanes) write(lane);
        return 0;
      }
    }
  }
  std::optional<session::Work> take() { return session_.take(Lane::kCommand, os::boottime_now()); }

  // Whether the answers so far may wait for that of a task that took so long the last time.
  bool may_wait(base::Duration last_took) {
    if (answers_ == 0) return true;
    if (last_took > kQuick || answers_ >= kAnswersAtOnce) return false;
    if (os::monotonic_now() + last_took - first_answer_ > kOldAnswer) return false;
    if (!watched_) {
      watched_ = true;
      other_wake_.signal();
    }
    waited_ = true;
    return true;
  }
  void write_answers() {
    if (answers_ == 0) return;
    answers_ = 0;
    write(Lane::kCommand);
  }

  // Until there is work, or the session has ended; or for no reason.
  void await() {
    using Verdict = mailbox::Waiter::Verdict;
    Look look{*this};
    // A parent that was answered while it slept may want this core.
    const int64_t spin_ns = std::exchange(slept_, false) || one_core_ ? 0 : kSpinNs;
    if (waiter_.spin_by_calls(look, spin_ns) == Verdict::kReady) return;
    if (!one_core_ && waiter_.linger(look) == Verdict::kReady) return;
    wait();
    slept_ = true;
    waiter_.slept(os::monotonic_now().ns);
  }
  struct Look {
    Runner& runner;
    bool ready() const { return runner.look(); }
    void yield() const { os::yield_core(); }
    int64_t now_ns() const { return os::monotonic_now().ns; }
  };
  bool look() {
    const std::lock_guard lock(mutex_);
    reads_ = true;
    read(Lane::kCommand);
    reads_ = false;
    if (session_.ended()) return true;
    work_ = take();
    // What was cancelled before it came has an answer.
    if (!session_.output(Lane::kCommand).empty()) write(Lane::kCommand);
    return work_.has_value();
  }

  // A completion that the wire does not take.
  void answer_otherwise(const Error& why) {
    wire::Completion failed;
    failed.outcome = wire::Outcome::kTaskFailed;
    failed.code = static_cast<uint32_t>(Code::kResourceExhausted);
    failed.scope = static_cast<uint32_t>(Scope::kTask);
    failed.message = why.message();
    static_cast<void>(session_.completion(failed));
  }

  void wait() {
    std::array<pollfd, 2> polled;
    {
      const std::lock_guard lock(mutex_);
      polled[0] = {lanes_.at(Lane::kCommand).descriptor(), POLLIN, 0};
      polled[1] = {task_wake_.fd(), POLLIN, 0};
      if (lanes_.at(Lane::kCommand).wants_write()) polled[0].events |= POLLOUT;
    }
    static_cast<void>(::poll(polled.data(), polled.size(), -1));
    if (polled[1].revents != 0) task_wake_.drain();
  }

  // --- the other thread
  void keep() {
    std::array<pollfd, 4> polled;
    while (!over_) {
      int ms = -1;
      {
        const std::lock_guard lock(mutex_);
        const base::Instant now = os::boottime_now();
        read(Lane::kData);
        read(Lane::kHealth);
        take_daemon();
        refuse_memory(now);
        if (now >= session_.next_deadline()) session_.on_deadline(now);
        for (const Lane lane : session::kLanes) write(lane);
        watch_answers();
        // Whatever runs ends with this process, and the children with it.
        if (lost_) end_now();
        const base::Instant next = session_.next_deadline();
        if (next != base::Instant::never()) {
          const int64_t left = (next - os::boottime_now()).ns;
          ms = static_cast<int>(std::clamp<int64_t>((left + 999'999) / 1'000'000, 0, 60'000));
        }
        if (watched_) ms = std::min<unsigned>(ms, kWatchMs);  // -1 is for ever
        const auto watch = [&](Lane lane) {
          env::ByteChannel& channel = lanes_.at(lane);
          return pollfd{channel.descriptor(),
                        static_cast<short>(POLLIN | (channel.wants_write() ? POLLOUT : 0)), 0};
        };
        polled[0] = watch(Lane::kData);
        polled[1] = watch(Lane::kHealth);
        polled[2] = {other_wake_.fd(), POLLIN, 0};
        polled[3] = {start_.socket.descriptor(), POLLIN, 0};
      }
      static_cast<void>(::poll(polled.data(), polled.size(), ms));
      other_wake_.drain();
    }
  }

  // What waited has been written.
  void watch_answers() {
    answers_ = 0;
    if (!watched_) return;
    idle_watches_ = std::exchange(waited_, false) ? 0 : idle_watches_ + 1;
    if (idle_watches_ >= kIdleWatches) watched_ = false;
  }

  [[noreturn]] static void end_now() {
    std::fflush(nullptr);
    ::_exit(kExitLost);  // the fork server sees it, and ends the children
  }

  void take_daemon() {
    // Its end ends nothing here, and no lane comes any more that is wanted.
    while (start_.socket.descriptor() >= 0) {
      const auto event = start_.socket.receive();
      if (!event || !*event) return;
    }
  }

  // Memory of a remote Worker is not what this version gives.
  void refuse_memory(base::Instant now) {
    while (std::optional<session::Work> work = session_.take(Lane::kData, now)) {
      const auto* const control = std::get_if<wire::Control>(&work->what);
      if (control == nullptr) return;
      wire::ControlReply reply;
      reply.command = control->command;
      reply.version = control->version;
      reply.code = static_cast<uint32_t>(Code::kUnsupported);
      reply.scope = static_cast<uint32_t>(Scope::kCall);
      reply.message = fmt::format("{}: this version has no remote memory; arguments go with a TASK",
                                  wire::wire_name(control->command));
      if (!session_.reply(Lane::kData, reply)) return;
    }
  }

  RunnerStart& start_;
  const wire::Manifest& manifest_;
  RunnerLanes& lanes_;
  RunnerOutput* output_ = nullptr;
  os::EventFd task_wake_, other_wake_;
  std::mutex mutex_;
  session::RunnerSession session_;
  std::atomic<uint64_t> cancelled_{0};
  std::atomic<bool> over_{false};
  bool lost_ = false;
  // Of the thread of the command lane: it is reading; what it has taken and not begun.
  bool reads_ = false;
  std::optional<session::Work> work_;
  mailbox::Waiter waiter_;
  bool slept_ = false;  // in its last wait
  // There whoever looks keeps the other side from what it looks for.
  const bool one_core_ = os::usable_cores() == 1;
  // Answers that wait to be written, and when the first of them was there.
  size_t answers_ = 0;
  base::Instant first_answer_{};
  bool watched_ = false;  // the other thread comes every kWatchMs
  bool waited_ = false;   // an answer has, since it came
  int idle_watches_ = 0;
};

Result<int> run_session(RunnerStart& start, const wire::Manifest& manifest) {
  const base::Instant deadline =
      os::boottime_now() + base::Duration::from_ms(manifest.timeouts.start_ms);
  if (!manifest.cwd.empty() && ::chdir(manifest.cwd.c_str()) != 0) {
    return os::system_error(fmt::format("enter the folder '{}' below the daemon's", manifest.cwd),
                            errno);
  }
  STRATA_ASSIGN(os::SharedRegion arena,
                os::SharedRegion::create("strata-arguments", engine::kRemoteArenaBytes));
  // The Worker and all below it come before the first thread: the fork server is forked here.
  WorkerPlace place;
  place.root_path = fmt::format("{}/{}", manifest.parent_path, manifest.worker_id);
  place.heaps.push_back({arena.fd(), arena.bytes()});
  os::set_process_title("strata: " + place.root_path);
  WorkerSpec spec = spec_of(manifest, start.settings);
  std::atomic<Runner*> runner_of_lines = nullptr;
  const auto to_session = [&](const OutputLine& line) {
    if (Runner* const runner = runner_of_lines.load()) runner->line(line);
  };
  spec.output.on_line = to_session;
  STRATA_ASSIGN(std::shared_ptr<WorkerCore> core,
                WorkerCore::create(std::move(spec), std::move(place)));
  if (Result<void> begun = core->init(); !begun) return begun.error();
  Result<int> status = 0;
  {
    RunnerLanes lanes(start, manifest);
    Result<void> open = lanes.open(deadline);
    if (open) {
      RemoteExecutor executor(*core, arena, host_name());
      STRATA_ASSIGN(os::EventFd task_wake, os::EventFd::create());
      STRATA_ASSIGN(os::EventFd other_wake, os::EventFd::create());
      Runner runner(start, manifest, lanes, std::move(task_wake), std::move(other_wake));
      runner_of_lines = &runner;
      const auto output = RunnerOutput::capture(
          manifest.parent_path, static_cast<uint32_t>(manifest.worker_id), to_session);
      // A session without its runner's own lines is better than none.
      if (!output) fmt::print(stderr, "strata: {}\n", output.error().to_string());
      RunnerOutput* const own = output ? output->get() : nullptr;
      status = runner.run(*core, executor, own);
      static_cast<void>(core->close());
      if (own != nullptr) own->stop();
      runner_of_lines = nullptr;
    } else {
      status = open.error();
      static_cast<void>(core->close());
    }
  }
  return status;
}

}  // namespace

int runner_main(RunnerStart start) {
  const Result<wire::Manifest> manifest = wire::decode_manifest(start.settings.manifest);
  const Result<int> status =
      manifest ? run_session(start, *manifest) : Result<int>(manifest.error());
  end_context();
  if (status) return *status;
  static_cast<void>(start.socket.failed(status.error()));
  return status.error().code() == Code::kCancelled ? 0 : 1;
}

int run_as_runner(int link_fd) {
  Result<RunnerStart> start = take_runner_start(os::Fd(link_fd));
  if (!start) {
    std::fprintf(stderr, "strata: %s\n", start.error().message().c_str());
    return 2;
  }
  return runner_main(std::move(start).value());
}

}  // namespace strata::runtime
