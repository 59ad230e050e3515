// Daemon: what `strata serve` runs. It listens at one port, lets parents in, starts one runner
// process for each session, hands the session's lanes to it, and reaps it. It runs no task, and its
// own end ends no session.
//
// One epoll loop and no other thread: a client that is silent, slow or hostile costs its place in a
// bounded table until its deadline, and nobody else anything. run() is one thread's; stop() is
// anyone's.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "env/byte_channel.h"
#include "os/epoll.h"
#include "os/event_fd.h"
#include "os/output_file.h"
#include "os/pid_fd.h"
#include "os/socket_pair.h"
#include "runtime/runner_socket.h"
#include "transport/socket/key_ring.h"
#include "transport/socket/listener.h"
#include "transport/socket/tls_context.h"
#include "wire/frame.h"
#include "wire/manifest.h"

namespace strata::runtime {

struct DaemonLimits {
  size_t clients_max = 128;           // connections without a session; then the oldest makes way
  size_t sessions_max = 128;          // runners at once
  uint32_t refusals_per_second = 20;  // lines of the log about clients that were not let in
  base::Duration preamble = base::Duration::from_s(5);
  base::Duration handshake = base::Duration::from_s(5);  // of TLS
  base::Duration bootstrap = base::Duration::from_s(5);
  base::Duration linger = base::Duration::from_s(1);  // for a client to read why it is refused
  base::Duration exit = base::Duration::from_s(5);    // of a runner that must end, then SIGKILL
  base::Duration trim = base::Duration::from_s(5);    // between two looks at runners' output
};

struct DaemonOptions {
  transport::Address listen;
  std::optional<transport::KeyRing> keys;  // none: in clear, and at a loopback address alone
  std::string advertise;                   // empty: the address that it listens at
  std::vector<std::string> allow_library;
  std::vector<std::string> allow_env;  // names that a manifest may set in a runner
  std::string program = "/proc/self/exe";
  std::vector<std::string> arguments = {"strata", std::string(kRunnerCommand),
                                        std::string(kRunnerArgument)};
  DaemonLimits limits;
  // One line, without its end; nothing secret, nothing that is no text.
  std::function<void(std::string_view)> log;
};

class Daemon {
 public:
  // Listens from here on.
  static Result<std::unique_ptr<Daemon>> create(DaemonOptions options);
  ~Daemon();

  // Until stop(). Its runners go on without it.
  Result<void> run();
  // Also from a signal handler.
  void stop() const { stop_.signal(); }
  const transport::Address& address() const { return listener_.address(); }

 private:
  static constexpr size_t kLanes = 3;  // command, data, health

  enum class ClientState {
    kPreamble,   // 48 bytes in clear; then a lane is handed over, and BOOTSTRAP goes on
    kFirstByte,  // it tells TLS from plain text
    kBootstrap,  // the handshake, and one frame
    kWaiting,    // has a session: until READY, or its runner's end
    kClosing,    // the last frame goes out, then everything that comes is thrown away
  };
  struct Client {
    uint64_t tag = 0;
    ClientState state = ClientState::kPreamble;
    std::string peer;
    transport::SocketFd fd;  // until the channel has it
    std::array<std::byte, wire::kPreambleBytes> preamble{};
    size_t preamble_bytes = 0;
    uint16_t foreign_version = 0;  // of a protocol that is not this one
    std::unique_ptr<env::ByteChannel> channel;
    bool open_seen = false;  // the handshake is done: the frame's deadline runs
    wire::Splitter splitter{kBootstrapBytesMax};
    std::vector<std::byte> output;
    uint32_t watched = 0;
    uint64_t session = 0;  // tag of its session, in kWaiting
    base::Instant deadline = base::Instant::never();
    int descriptor() const { return channel ? channel->descriptor() : fd.get(); }
  };
  struct Session {
    uint64_t tag = 0;
    uint64_t id = 0;
    std::string what;  // for texts
    std::string peer;
    pid_t pid = -1;
    os::PidFd process;
    os::SeqPacket link;
    std::optional<os::OutputFile> output;
    std::array<wire::Token, kLanes> tokens{};
    std::array<bool, kLanes> used{};
    std::vector<int32_t> devices;
    uint64_t client = 0;  // tag of the one that waits for READY
    bool ready = false;
    std::optional<RunnerNews> failure;
    std::string ending;  // why the daemon ends it, where it does
    base::Instant started;
    base::Instant deadline = base::Instant::never();  // of its start-up, or of its end
  };
  static constexpr uint32_t kBootstrapBytesMax = wire::kManifestBytesMax + (64 << 10);

  Daemon(DaemonOptions options, transport::Listener listener, os::Epoll epoll, os::EventFd stop)
      : options_(std::move(options)),
        listener_(std::move(listener)),
        epoll_(std::move(epoll)),
        stop_(std::move(stop)) {}
  Result<void> set_up();

  // daemon.cc: the loop
  void on_event(uint64_t tag);
  void accept_clients(base::Instant now);
  // Drops the oldest client that has no session where there are as many; false where none is.
  bool make_room(size_t clients_max, base::Instant now);
  void warn_of_limit() const;
  base::Instant next_deadline() const;
  void on_deadlines(base::Instant now);
  void trim_outputs();
  void log(std::string_view line) const;
  // Of a client that got nowhere; a flood of them is told by its number.
  void log_refusal(std::string_view line, base::Instant now);

  // daemon_clients.cc
  void on_client(Client& client, base::Instant now);
  void read_preamble(Client& client, base::Instant now);
  void route_lane(Client& client, const wire::Preamble& preamble, base::Instant now);
  void look_at_first_byte(Client& client, base::Instant now);
  void drive_bootstrap(Client& client, base::Instant now);
  void on_bootstrap_frame(Client& client, const wire::Frame& frame, base::Instant now);
  void watch_waiting(Client& client, base::Instant now);
  void drive_closing(Client& client, base::Instant now);
  void client_timed_out(Client& client, base::Instant now);
  // Says why in a BOOTSTRAP_REPLY, then closes.
  void refuse(Client& client, const Error& why, base::Instant now);
  void reply(Client& client, const wire::BootstrapReply& message, base::Instant now);
  void begin_closing(Client& client, base::Instant now);
  void watch(Client& client);
  void drop(Client& client);
  Error version_error(uint32_t theirs_min, uint32_t theirs_max, std::string_view product) const;

  // daemon_sessions.cc
  Result<void> check_policy(const wire::Manifest& manifest) const;
  Result<Session*> start_session(Client& client, const wire::Manifest& manifest, std::string text,
                                 base::Instant now);
  Result<void> start_runner(Session& session, const wire::Manifest& manifest, std::string text);
  void on_link(Session& session, base::Instant now);
  void on_process(Session& session, base::Instant now);
  void parent_left(Session& session, base::Instant now);
  void session_timed_out(Session& session, base::Instant now);
  void tell_end(Session& session, const std::string& status, base::Instant now);
  void kill_runner(const Session& session) const;
  Session* find_session(uint64_t id);

  DaemonOptions options_;
  transport::Listener listener_;
  os::Epoll epoll_;
  os::EventFd stop_;
  std::unique_ptr<transport::TlsContext> tls_;
  // By tag, which counts up: the first is the oldest.
  std::map<uint64_t, std::unique_ptr<Client>> clients_;
  std::map<uint64_t, std::unique_ptr<Session>> sessions_;
  std::map<int32_t, uint64_t> leases_;  // device to session tag
  std::vector<uint64_t> dropped_;       // clients to erase once no one holds a reference
  uint64_t next_tag_ = 1;
  base::Instant accept_again_ = base::Instant::never();  // no descriptor was left
  base::Instant trim_at_ = base::Instant::never();
  base::Instant refusals_since_{};
  uint32_t refusals_ = 0, refusals_untold_ = 0;
};

}  // namespace strata::runtime
