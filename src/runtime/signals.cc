// The handlers of drain_on_signals. All that a handler touches is lock-free and here.
#include "strata/signals.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <string_view>

#include "base/result.h"
#include "os/system_error.h"
#include "runtime/worker_core.h"
#include "strata/worker.h"

namespace strata {
namespace {

constexpr size_t kDrainsMax = 64;
constexpr std::array kSignals = {SIGINT, SIGTERM};

// One drain: the flag of its Worker, and what wakes that. Null: free.
struct Slot {
  std::atomic<std::atomic<int>*> flag{nullptr};
  std::atomic<int> wake_fd{-1};
};
Slot slots[kDrainsMax];
std::atomic<int> first_signal{0};
std::atomic<int> in_handlers{0};

// Changed by drain_on_signals and ~SignalDrain alone.
struct Installed {
  std::mutex mutex;
  size_t drains = 0;
  std::array<bool, kSignals.size()> ours{};
  std::array<struct sigaction, kSignals.size()> before{};
};
Installed& installed() {
  static Installed instance;
  return instance;
}

void say(std::string_view text) {
  // Where nobody reads it there is nothing to be done.
  [[maybe_unused]] const ssize_t put = ::write(STDERR_FILENO, text.data(), text.size());
}

void on_signal(int number) {
  const int saved = errno;
  ++in_handlers;
  int none = 0;
  if (!first_signal.compare_exchange_strong(none, number)) {
    say("strata: a second signal: the program and its children end now\n");
    // The fork servers see this process's end, and kill the children.
    ::_exit(128 + number);
  }
  say(number == SIGINT
          ? "strata: SIGINT: what runs is finished, then the program ends; once more ends it now\n"
          : "strata: SIGTERM: what runs is finished, then the program ends; once more ends it "
            "now\n");
  for (Slot& slot : slots) {
    std::atomic<int>* const flag = slot.flag.load();
    if (flag == nullptr) continue;
    flag->store(number);
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t put = ::write(slot.wake_fd.load(), &one, sizeof one);
  }
  --in_handlers;
  errno = saved;
}

Result<void> install(Installed& state) {
  first_signal = 0;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction& before = state.before[i];
    if (::sigaction(kSignals[i], nullptr, &before) != 0) {
      return os::system_error("look at the handler of a signal", errno);
    }
    const bool ignored = (before.sa_flags & SA_SIGINFO) == 0 && before.sa_handler == SIG_IGN;
    state.ours[i] = !ignored;
    if (ignored) continue;
    struct sigaction action {};
    action.sa_handler = &on_signal;
    action.sa_flags = SA_RESTART;
    // The second must come through while the first is being told.
    sigemptyset(&action.sa_mask);
    if (::sigaction(kSignals[i], &action, nullptr) != 0) {
      return os::system_error("install the handler of a signal", errno);
    }
  }
  return {};
}

void uninstall(Installed& state) {
  for (size_t i = 0; i < kSignals.size(); ++i) {
    if (state.ours[i]) ::sigaction(kSignals[i], &state.before[i], nullptr);
  }
}

}  // namespace

struct SignalDrain::Impl {
  std::shared_ptr<WorkerCore> core;
  Slot* slot = nullptr;

  ~Impl() {
    Installed& state = installed();
    const std::lock_guard lock(state.mutex);
    slot->flag = nullptr;
    // A handler that has read the flag's place goes on to write there.
    while (in_handlers != 0) ::usleep(100);
    if (--state.drains == 0) uninstall(state);
  }
};

std::shared_ptr<WorkerCore> SignalDrain::core_of(Worker& worker) {
  return worker.core_;
}

SignalDrain::SignalDrain(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SignalDrain::SignalDrain(SignalDrain&&) noexcept = default;
SignalDrain& SignalDrain::operator=(SignalDrain&&) noexcept = default;
SignalDrain::~SignalDrain() = default;

int SignalDrain::signal_number() const {
  return impl_ ? impl_->core->draining() : 0;
}

int SignalDrain::exit_code(int otherwise) const {
  const int number = signal_number();
  return number == 0 ? otherwise : 128 + number;
}

Result<SignalDrain> drain_on_signals(Worker& worker) {
  Installed& state = installed();
  const std::lock_guard lock(state.mutex);
  Slot* free = nullptr;
  for (Slot& slot : slots) {
    if (slot.flag.load() == nullptr) {
      free = &slot;
      break;
    }
  }
  if (free == nullptr) {
    return Error(Code::kResourceExhausted, Scope::kCall,
                 fmt::format("{} Workers of this process drain on signals, the most there may be",
                             kDrainsMax));
  }
  if (state.drains == 0) {
    Result<void> done = install(state);
    if (!done) return std::move(done).error();
  }
  ++state.drains;
  const std::shared_ptr<WorkerCore> core = SignalDrain::core_of(worker);
  free->wake_fd = core->wake_fd();
  free->flag = core->drain_flag();
  // One that came before this Worker was known is heeded too.
  if (const int number = first_signal) *core->drain_flag() = number;
  return SignalDrain(std::unique_ptr<SignalDrain::Impl>(new SignalDrain::Impl{core, free}));
}

}  // namespace strata
