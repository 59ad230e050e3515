// RemoteWorker: one remote Worker at its parent: the connection to its daemon, three lanes and the
// session over them. Its endpoint drives the command lane with the step token; the thread of the
// RemoteService drives everything else.
//
// One lock guards the session and its channels; it is held for a few system calls that do not
// block, never over the engine. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>

#include "base/time.h"
#include "engine/remote_link.h"
#include "env/byte_channel.h"
#include "session/parent_session.h"
#include "strata/remote_worker_spec.h"
#include "transport/socket/address.h"
#include "transport/socket/tls_context.h"
#include "wire/frame.h"

namespace strata::runtime {

// What a remote Worker is to be, beside its spec.
struct RemotePlace {
  std::string parent_path;  // "L4"
  int parent_level = 4;
  uint32_t worker = 0;
  uint64_t session_id = 0;
  std::string build;  // of this program, for texts
};

class RemoteWorker final : public engine::RemoteLink, private session::ParentSession::Sink {
 public:
  // Reads the key file and resolves the name, which may take as long as the resolver does.
  // kInvalidArgument, kUnsupported for a spec that cannot be; kNotFound for a name without address.
  // `notify`: something is there for take_news() or for the endpoint; any thread, under no lock of
  // this.
  static Result<std::shared_ptr<RemoteWorker>> create(RemoteWorkerSpec spec, RemotePlace place,
                                                      std::function<void()> notify);
  ~RemoteWorker() override;

  // --- the service's thread. begin() once; then step() after each poll of what descriptors() gave,
  // until it says that nothing is left to do.
  void begin(base::Instant now);
  bool step(base::Instant now);
  void descriptors(std::vector<pollfd>* out) const;
  base::Instant next_deadline() const;

  // --- whoever collects what happened, with the step token.
  struct News {
    bool ready = false;
    wire::SessionCaps caps = {};  // of one that is ready
    std::optional<Error> lost;    // once
  };
  News take_news();
  // Of a session that is ready; -1 after its end.
  int command_descriptor() const;
  void note_slept() { look_.store(true, std::memory_order_relaxed); }
  // The session ends now, and the other side's process with it.
  void abort(const std::string& reason);
  // "node7:7070 pid 4711", for texts.
  std::string where() const;
  const std::string& endpoint() const { return spec_.endpoint; }
  uint32_t start_ms() const { return spec_.session.start_ms; }
  uint32_t close_ms() const { return spec_.session.close_ms; }
  uint32_t control_ms() const { return spec_.session.control_ms; }
  int pid() const { return static_cast<int>(pid_.load(std::memory_order_relaxed)); }

  // --- RemoteLink
  bool has_credit() const override { return credits_.load(std::memory_order_relaxed) > 0; }
  std::optional<uint64_t> send(const wire::Task& task) override;
  Result<void> send(wire::ControlCommand command, std::vector<std::byte> body) override;
  void cancel(uint64_t first, uint64_t last) override;
  void drain() override;
  uint64_t executing() const override { return executing_.load(std::memory_order_relaxed); }
  bool unsent() const override { return unsent_.load(std::memory_order_relaxed); }
  void flush() override;
  bool wakes_up() const override { return wakes_up_.load(std::memory_order_relaxed); }
  bool readable() override;
  void pull(std::vector<Event>* events) override;

 private:
  using Lock = std::unique_lock<std::mutex>;
  enum class Phase : uint8_t { kIdle, kBootstrap, kLanes, kEnded };
  struct Channel {
    std::unique_ptr<env::ByteChannel> stream;
    bool up = false;
  };

  RemoteWorker(RemoteWorkerSpec spec, RemotePlace place, std::function<void()> notify)
      : spec_(std::move(spec)), place_(std::move(place)), notify_(std::move(notify)) {}

  // ParentSession::Sink, under the lock.
  void on_ready(const wire::Hello& hello) override;
  void on_completion(uint64_t sequence, wire::Completion completion) override;
  void on_reply(wire::Lane lane, uint64_t sequence, wire::ControlReply reply) override;
  void on_log(const wire::Log& log) override;
  void on_ended(const session::Ended& ended) override;

  Result<void> prepare();
  Result<std::string> manifest() const;
  void connect_bootstrap(base::Instant now);
  void step_bootstrap(base::Instant now);
  void take_bootstrap(const wire::Frame& frame, base::Instant now);
  void bootstrap_lost(const Error& why, base::Instant now);
  void open_lanes(const wire::BootstrapReply& reply, base::Instant now);
  void step_lane(wire::Lane lane, base::Instant now);
  void read_lane(wire::Lane lane, base::Instant now);
  void write_lane(wire::Lane lane, base::Instant now);
  void lane_failed(wire::Lane lane, const Error& why, base::Instant now);
  void step_early_loss(base::Instant now);
  void fail(const Error& why);
  void close_channels();
  Channel& channel(wire::Lane lane) { return lanes_[session::index_of(lane)]; }
  const Channel& channel(wire::Lane lane) const { return lanes_[session::index_of(lane)]; }
  void tell(Lock& lock);
  void tell_others(Lock& lock);
  void count_credits();

  const RemoteWorkerSpec spec_;
  const RemotePlace place_;
  const std::function<void()> notify_;
  std::string path_;  // of this Worker, "L4/2"
  std::vector<transport::Address> addresses_;
  std::unique_ptr<transport::TlsContext> bootstrap_tls_;
  std::array<std::unique_ptr<transport::TlsContext>, session::kLaneCount> lane_tls_;

  mutable std::mutex mutex_;
  Phase phase_ = Phase::kIdle;
  base::Instant start_by_ = base::Instant::never();
  base::Instant again_at_ = base::Instant::never();  // connect once more
  base::Duration wait_{};
  size_t attempt_ = 0;
  std::optional<Error> last_failure_;
  std::unique_ptr<env::ByteChannel> bootstrap_;
  wire::Splitter bootstrap_in_;
  std::vector<std::byte> bootstrap_out_;
  std::array<Channel, session::kLaneCount> lanes_;
  // A lane that was closed before READY.
  struct EarlyLoss {
    wire::Lane lane;
    Error why;
    base::Instant until;
  };
  std::optional<EarlyLoss> early_loss_;
  std::optional<session::ParentSession> session_;
  std::vector<Event> events_;
  News news_;
  bool told_ = false;  // something that notify_ is to tell of
  bool quiet_ = true;
  std::atomic<uint32_t> pid_{0};
  std::atomic<uint64_t> executing_{0};
  std::atomic<bool> unsent_{false};
  std::atomic<bool> pending_{false};  // events_ is not empty
  std::atomic<bool> look_{false};
  std::atomic<int64_t> looked_ns_{0};
  std::atomic<uint32_t> credits_{0};  // what may still be sent
  std::atomic<int> in_flight_{0};
  std::atomic<bool> wakes_up_{false};
  int64_t heard_ns_ = 0;  // on the command lane
};

}  // namespace strata::runtime
