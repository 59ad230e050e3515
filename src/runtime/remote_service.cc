#include "runtime/remote_service.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <system_error>

#include "base/result.h"
#include "os/clock.h"
#include "os/system_error.h"

namespace strata::runtime {

Result<std::unique_ptr<RemoteService>> RemoteService::create() {
  STRATA_ASSIGN(os::EventFd wake, os::EventFd::create());
  return std::unique_ptr<RemoteService>(new RemoteService(std::move(wake)));
}

RemoteService::~RemoteService() {
  stop();
}

Result<void> RemoteService::add(std::shared_ptr<RemoteWorker> worker) {
  {
    const std::lock_guard lock(mutex_);
    added_.push_back(std::move(worker));
    try {
      if (!thread_.joinable()) thread_ = std::thread([this] { main(); });
    } catch (const std::system_error& e) {
      added_.pop_back();
      return os::system_error("start the thread that keeps sessions", e.code().value());
    }
  }
  wake_.signal();
  return {};
}

void RemoteService::stop() {
  if (!thread_.joinable()) return;
  stop_ = true;
  wake_.signal();
  thread_.join();
}

void RemoteService::main() {
  // No handler of the program runs here.
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
  std::vector<std::shared_ptr<RemoteWorker>> workers;
  std::vector<pollfd> polled;
  while (!stop_) {
    {
      const std::lock_guard lock(mutex_);
      for (std::shared_ptr<RemoteWorker>& worker : added_) {
        worker->begin(os::boottime_now());
        workers.push_back(std::move(worker));
      }
      added_.clear();
    }
    polled.assign(1, {wake_.fd(), POLLIN, 0});
    base::Instant next = base::Instant::never();
    for (const auto& worker : workers) {
      worker->descriptors(&polled);
      next = std::min(next, worker->next_deadline());
    }
    int ms = -1;
    if (next != base::Instant::never()) {
      const int64_t left = (next - os::boottime_now()).ns;
      ms =
          left <= 0 ? 0 : static_cast<int>(std::min<int64_t>((left + 999'999) / 1'000'000, 60'000));
    }
    static_cast<void>(::poll(polled.data(), polled.size(), ms));
    wake_.drain();
    const base::Instant now = os::boottime_now();
    std::erase_if(workers, [&](const auto& worker) { return !worker->step(now); });
  }
  for (const auto& worker : workers) worker->abort("its parent is closed");
}

}  // namespace strata::runtime
