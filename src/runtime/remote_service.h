// RemoteService: the thread of a Worker that has remote Workers: their daemons, their data and
// health lanes, their beats. Command lanes are the engine's. Any thread may add and stop.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "os/event_fd.h"
#include "runtime/remote_worker.h"

namespace strata::runtime {

class RemoteService {
 public:
  static Result<std::unique_ptr<RemoteService>> create();
  ~RemoteService();
  RemoteService(const RemoteService&) = delete;
  RemoteService& operator=(const RemoteService&) = delete;

  // It begins to connect. The thread is made with the first one: an Error where there is none.
  Result<void> add(std::shared_ptr<RemoteWorker> worker);
  // Something of a worker has changed that the thread waits by.
  void wake() { wake_.signal(); }
  // Ends what still lives, and the thread.
  void stop();

 private:
  explicit RemoteService(os::EventFd wake) : wake_(std::move(wake)) {}
  void main();

  os::EventFd wake_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<RemoteWorker>> added_;  // since the thread looked
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace strata::runtime
