// ThreadWorld: the world of engine::Front made of threads: where they spin, sleep and wake up, and
// what the kernel tells. See engine/front.h for what each function promises.
//
// Children and threads wake the leader through one eventfd; it stands in an epoll beside the fork
// server's socket. The engine thread sleeps in an epoll of its own: a timer (the watch), a kick,
// and the leader's epoll while it leads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "device/chip_note.h"
#include "engine/core.h"
#include "mailbox/hub.h"
#include "mailbox/plain_memory.h"
#include "mailbox/waiter.h"
#include "os/epoll.h"
#include "os/event_fd.h"
#include "os/fork_server.h"
#include "os/machine.h"
#include "os/pid_fd.h"
#include "os/shared_region.h"
#include "os/timer_fd.h"
#include "runtime/output_reader.h"
#include "runtime/pause.h"
#include "runtime/remote_worker.h"

namespace strata::runtime {

class ThreadWorld {
 public:
  // Held for a microsecond at most, so a short spin saves most sleeps on it.
  class Mutex {
   public:
    void lock() {
      for (int i = 0; i < kSpins; ++i) {
        if (mutex_.try_lock()) return;
        cpu_pause();
      }
      mutex_.lock();
    }
    void unlock() { mutex_.unlock(); }
    std::mutex& plain() { return mutex_; }

   private:
    static constexpr int kSpins = 64;
    std::mutex mutex_;
  };
  using Hub = mailbox::Hub<mailbox::PlainMemory>;

  struct Child {
    // Of a chip: what it says that it does; outlives this.
    const device::ChipNote* note = nullptr;
    int pid = 0;
    os::PidFd pidfd;
    bool asked = false;  // its spawn
    bool stopped = false;
    std::string last_lines;                // that it wrote before its end
    std::shared_ptr<RemoteWorker> remote;  // the endpoint has it too; null: a process of this host
    wire::SessionCaps caps = {};           // of a remote one that is ready
    bool gone = false;
  };
  // What makes the children of this Worker.
  struct Maker {
    // The endpoint of a worker's next incarnation, without the token.
    std::function<Result<std::unique_ptr<engine::WorkerEndpoint>>(uint32_t worker)> endpoint;
    // Asks the server for the process behind the worker's endpoint; under the token.
    std::function<Result<void>(engine::Core&, uint32_t worker)> spawn;
    // Another server where the one before was lost, or why there is none; under the token.
    std::function<Result<os::ForkServer*>()> server;
  };

  // Both outlive this.
  static Result<std::unique_ptr<ThreadWorld>> create(os::SharedRegion& hub, os::SharedRegion& heap,
                                                     std::string path);

  void set_maker(Maker maker) { maker_ = std::move(maker); }
  // Before the engine thread runs, or under the token.
  Result<void> watch_server(os::ForkServer& server);
  // Its spawn is asked for next, under this id: no event of an earlier incarnation has it.
  uint64_t expect_child(const engine::Core& core, uint32_t worker,
                        const device::ChipNote* note = nullptr);
  // A Worker of another host, which begins to connect; under the token.
  void expect_remote(const engine::Core& core, uint32_t worker,
                     std::shared_ptr<RemoteWorker> remote);
  // One of them has news; any thread.
  void remote_news();
  void forget_server();
  // What reads the children's output; null: nobody. It outlives the children.
  void set_output(OutputReader* output) { output_ = output; }
  int signal_fd() const { return signal_.fd(); }
  mailbox::WaiterOptions waiter_options() const { return spin_; }
  // Under the token.
  const Child& child(uint32_t worker) const { return children_[worker]; }
  // Of a child that is gone; empty for what is no process.
  std::string_view last_lines(uint32_t worker) const {
    return worker < children_.size() ? children_[worker].last_lines : std::string_view();
  }
  uint32_t children_alive() const { return alive_; }

  // --- the policy of engine::Front
  base::Instant now();
  const void* self() const;
  bool spin(const std::vector<engine::Awaited>& awaited);
  bool linger(const std::vector<engine::Awaited>& awaited, const engine::Changed& changed);
  template <class HasNews>
  bool prepare_sleep(HasNews&& has_news) {
    return hub_.prepare_sleep(std::forward<HasNews>(has_news));
  }
  void finish_sleep() { hub_.finish_sleep(); }
  void lead_sleep(base::Instant until);
  void collect(engine::Core& core, bool slept);
  void kick_lead() { signal_.signal(); }
  void park(Mutex& token, base::Instant until);
  void unpark_all() { parked_.notify_all(); }
  void arm_watch();
  void engine_sleep(bool leads, base::Instant until);
  void kick_engine() { kick_.signal(); }
  void kill(engine::Core& core, const engine::Kill& kill);
  void punch(const std::vector<engine::Punch>& punches);
  Result<std::unique_ptr<engine::WorkerEndpoint>> make_endpoint(uint32_t worker) {
    return maker_.endpoint(worker);
  }
  Result<void> spawn(engine::Core& core, uint32_t worker);
  void stalled(const char* what, base::Duration since, const std::string& where);

 private:
  ThreadWorld(os::SharedRegion& hub, os::SharedRegion& heap, std::string path, os::Epoll events,
              os::Epoll engine, os::EventFd signal, os::EventFd kick, os::TimerFd watch);
  void on_event(engine::Core& core, os::ServerEvent event);
  void collect_remotes(engine::Core& core, bool slept);
  std::string why_ended(const os::ServerEvent& event, const Child& child);
  void lose(engine::Core& core, uint32_t worker, const std::string& reason);
  void lose_server(engine::Core& core, const std::string& why);
  // Policy of the waiters of this process.
  struct Spin;
  // Of the calling thread, which leads.
  mailbox::Waiter& waiter();

  os::SharedRegion& heap_;
  std::string path_;
  Hub hub_;
  mailbox::WaiterOptions spin_;
  os::Epoll events_;
  os::Epoll engine_;
  os::EventFd signal_;
  os::EventFd kick_;
  os::TimerFd watch_;
  os::ForkServer* server_ = nullptr;
  os::OomKills oom_kills_;  // when a child's end was last looked at
  Maker maker_;
  OutputReader* output_ = nullptr;
  std::vector<Child> children_;
  uint32_t alive_ = 0;
  std::vector<uint32_t> remotes_;  // workers of other hosts
  std::atomic<bool> remote_news_{false};
  bool engine_sees_events_ = false;  // of the engine thread alone
  std::condition_variable parked_;
  mailbox::Waiter user_waiter_;                    // of the user thread that leads
  mailbox::Waiter engine_waiter_;                  // of the engine thread
  std::atomic<const void*> engine_self_{nullptr};  // others read it to see that it is not they
};

}  // namespace strata::runtime
