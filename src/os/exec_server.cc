// The two ends of a server by exec: ForkServer::start_exec, and what its program does first.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/result.h"
#include "os/exec_start.h"
#include "os/fork_hello.h"
#include "os/fork_server.h"
#include "os/fork_server_loop.h"
#include "os/process.h"
#include "os/process_title.h"
#include "os/start_step.h"
#include "os/system_error.h"

namespace strata::os {
namespace {

constexpr base::Duration kEndedMax = base::Duration::from_s(1);

// What came through the socket before this process had a main.
struct Start {
  SeqPacket boot;  // that it came through; of a server its channel too, but for a further one
  ForkGreeting greeting;
  ForkServerConfig config;
  Fd owner;
  Fd own_channel;  // of a further server
};

bool is_packet_socket(int fd) {
  int type = 0;
  socklen_t bytes = sizeof type;
  return ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 && type == SOCK_SEQPACKET;
}

struct Received {
  std::vector<std::byte> bytes;
  std::vector<Fd> fds;
  ForkHeader header;
  std::span<const std::byte> payload() const {
    return std::span(bytes).subspan(sizeof(ForkHeader));
  }
};

Result<Received> receive(const SeqPacket& from, ForkMessageType type) {
  STRATA_ASSIGN(const bool readable, from.wait(POLLIN, kStartMax));
  Received out;
  out.bytes.resize(sizeof(ForkHeader) + kForkSpecBytesMax);
  std::optional<SeqMessage> got;
  if (readable) {
    STRATA_ASSIGN(got, from.receive(out.bytes));
  }
  if (!got || got->end) {
    return Error(Code::kEndpointFailed, Scope::kProcess, "who started it is gone, or says nothing");
  }
  out.bytes.resize(got->bytes);
  STRATA_ASSIGN(const ForkMessage message, parse_fork_message(ForkReceiver::kServer, out.bytes,
                                                              got->fds.size(), got->fds_lost));
  if (message.header.type != type) {
    return Error(
        Code::kCorrupt, Scope::kProcess,
        fmt::format("a message of type {} where {} is due",
                    static_cast<uint32_t>(message.header.type), static_cast<uint32_t>(type)));
  }
  if (got->fds_lost) {
    return Error(Code::kResourceExhausted, Scope::kProcess,
                 "no room for the descriptors that it was sent (ulimit -n)");
  }
  out.header = message.header;
  out.fds = std::move(got->fds);
  return out;
}

bool is_among(int fd, const std::vector<int>& numbers) {
  return std::find(numbers.begin(), numbers.end(), fd) != numbers.end();
}

// The same descriptor under a number that is none of those.
Result<Fd> clear_of(Fd fd, const std::vector<int>& numbers) {
  // The others that are held on the way are those of `numbers`, so this ends.
  std::vector<Fd> held;
  while (is_among(fd.get(), numbers)) {
    const int next = ::fcntl(fd.get(), F_DUPFD_CLOEXEC, 3);
    if (next < 0) return system_error("child server: move a descriptor", errno);
    held.push_back(std::exchange(fd, Fd(next)));
  }
  return fd;
}

// Descriptors to inherit get the numbers that they have in the owner; what this process needs
// itself makes way.
Result<void> take_inherited(Start* start) {
  std::vector<int>& numbers = start->config.inherit_fds;
  std::vector<Fd> fds;
  while (numbers.size() < start->greeting.inherit_fds) {
    STRATA_ASSIGN(Received more, receive(start->boot, ForkMessageType::kInherit));
    if (more.payload().size() != more.fds.size() * sizeof(int32_t) ||
        numbers.size() + more.fds.size() > ForkServer::kInheritFdsMax) {
      return Error(Code::kCorrupt, Scope::kProcess, "numbers and descriptors do not match");
    }
    for (size_t i = 0; i < more.fds.size(); ++i) {
      int32_t number = -1;
      std::memcpy(&number, more.payload().data() + i * sizeof number, sizeof number);
      numbers.push_back(number);
      fds.push_back(std::move(more.fds[i]));
    }
  }
  const auto make_way = [&numbers](Fd* fd) -> Result<void> {
    STRATA_ASSIGN(*fd, clear_of(std::move(*fd), numbers));
    return {};
  };
  for (Fd& fd : fds) STRATA_TRY(make_way(&fd));
  STRATA_TRY(make_way(&start->owner));
  Fd boot = std::move(start->boot).take();
  STRATA_TRY(make_way(&boot));
  start->boot = SeqPacket::adopt(std::move(boot));
  STRATA_TRY(make_way(&start->own_channel));
  for (size_t i = 0; i < fds.size(); ++i) {
    if (::dup2(fds[i].get(), numbers[i]) < 0) {
      return system_error(fmt::format("child server: descriptor {}", numbers[i]), errno);
    }
  }
  return {};
}

Result<void> take_start(Start* start, ChildMain child_main, const ForkIdentity& identity) {
  STRATA_ASSIGN(Received first, receive(start->boot, ForkMessageType::kGreeting));
  STRATA_ASSIGN(start->greeting, decode_fork_greeting(first.payload()));
  const ForkGreeting& greeting = start->greeting;
  STRATA_TRY(check_greeting(greeting, identity,
                            fmt::format("process {}, which started this one ({})", greeting.owner,
                                        program_invocation_name)));
  start_step("greeted");
  start->owner = std::move(first.fds[0]);
  if (first.fds.size() == 2) start->own_channel = std::move(first.fds[1]);
  if (start->own_channel.valid() != ((greeting.flags & ForkGreeting::kSubServer) != 0)) {
    return Error(Code::kCorrupt, Scope::kProcess, "a greeting without the descriptors of its kind");
  }
  STRATA_TRY(take_inherited(start));
  start->config.child_main = child_main;
  start->config.identity = identity;
  start->config.children_max = greeting.children_max;
  start->config.owner = greeting.owner;
  start->config.ignored = signals_of(greeting.ignored_signals);
  STRATA_ASSIGN(const ForkHazards hazards, fork_hazards());
  start->config.exec_children =
      hazards.any() && (greeting.flags & ForkGreeting::kAllowThreads) == 0;
  return {};
}

// A child of a server with threads: it dies with that one, as a forked child does.
[[noreturn]] void serve_child(Start& start) {
  Result<Received> spawn = receive(start.boot, ForkMessageType::kSpawn);
  if (!spawn.ok()) {
    fmt::print(stderr, "strata: a child cannot start: {}\n", spawn.error().message());
    ::_exit(EXIT_FAILURE);
  }
  const ForkMessage message{spawn->header, spawn->payload()};
  ForkServerLoop(std::move(start.config), SeqPacket())
      .run_child(start.greeting.owner, message, std::move(spawn->fds));
}

int serve(int channel, ChildMain child_main, const ForkIdentity& identity) {
  Start start;
  start.boot = SeqPacket::adopt(Fd(channel));
  ::fcntl(channel, F_SETFD, FD_CLOEXEC);
  const Result<void> taken = take_start(&start, child_main, identity);
  if (!taken.ok()) {
    fmt::print(stderr, "strata: the child server {} cannot start: {}\n", program_invocation_name,
               taken.error().message());
    const ForkHeader header{.type = ForkMessageType::kSpawnFailed,
                            .status = static_cast<int32_t>(taken.error().code())};
    // Best effort: an owner that cannot hear it sees the end of the socket.
    static_cast<void>(start.boot.send(encode_fork_message(header, taken.error().message()), {}));
    return EXIT_FAILURE;
  }
  if ((start.greeting.flags & ForkGreeting::kChild) != 0) serve_child(start);
  const bool is_sub = start.own_channel.valid();
  set_process_title(fmt::format("strata: server of {}", start.greeting.owner));
  SeqPacket own = is_sub ? SeqPacket::adopt(std::move(start.own_channel)) : std::move(start.boot);
  start.config.owner_pidfd = start.owner.release();
  ForkGreeting hello;
  put_identity(identity, &hello);
  put_program(&hello);
  start.config.hello = encode_fork_greeting(hello);
  return ForkServerLoop(std::move(start.config), std::move(own)).run(is_sub);
}

}  // namespace

std::optional<int> ForkServer::serve_if_asked(int argc, char** argv, ChildMain child_main,
                                              const ForkIdentity& identity) {
  if (argc != 3 || argv[1] != kExecCommand) return std::nullopt;
  std::string_view text(argv[2]);
  if (!text.starts_with(kExecArgument)) return std::nullopt;
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  start_step("entered");
  text.remove_prefix(kExecArgument.size());
  int channel = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), channel);
  if (error != std::errc() || end != text.data() + text.size() || child_main == nullptr ||
      channel < 0 || !is_packet_socket(channel)) {
    fmt::print(stderr,
               "strata: '{} {}' is what Strata runs by itself, with a socket to whom it "
               "serves; there is nothing to run by hand\n",
               argv[1], argv[2]);
    return EXIT_FAILURE;
  }
  ::unsetenv(kExecVariable);
  static_cast<void>(fill_closed_stdio());
  own_arguments(argc, argv);
  return serve(channel, child_main, identity);
}

// ---------------------------------------------------------------- the owner's end

Result<std::unique_ptr<ForkServer>> ForkServer::start_exec(const ExecServerOptions& options,
                                                           const ForkIdentity& identity) {
  if (options.program.empty()) {
    return Error(Code::kInvalidArgument, Scope::kCall, "fork server: no program to run");
  }
  STRATA_TRY(check_inherited(options.inherit_fds));
  STRATA_ASSIGN(const PidFd owner, PidFd::open(::getpid()));
  ExecStart start{.program = options.program,
                  .name = options.name,
                  .greeting = {},
                  .owner_pidfd = owner.fd(),
                  .inherit_fds = options.inherit_fds};
  put_identity(identity, &start.greeting);
  start.greeting.ignored_signals = mask_of(ignored_signals());
  start.greeting.owner = ::getpid();
  start.greeting.children_max = static_cast<uint32_t>(options.children_max);
  if (options.allow_threads) start.greeting.flags = ForkGreeting::kAllowThreads;
  STRATA_ASSIGN(ExecStarted started, exec_start(start));
  Result<PidFd> pidfd = PidFd::open(started.pid);
  if (!pidfd.ok()) {
    kill_and_reap(started.pid);
    return std::move(pidfd).error();
  }
  // From here on the destructor ends and reaps it.
  std::unique_ptr<ForkServer> server(
      new ForkServer(std::move(started.channel), std::move(*pidfd), started.pid));
  const std::string who =
      fmt::format("the child server '{}' (pid {})",
                  options.name.empty() ? options.program : options.name, started.pid);
  Result<Hello> hello = await_hello(server->channel_, options.start_max);
  if (!hello.ok()) {
    const Result<bool> ended = server->pidfd_.wait_ended(kEndedMax);
    std::optional<int> status;
    if (ended.ok() && *ended) status = server->pidfd_.reap();
    return Error(hello.error().code(), Scope::kProcess,
                 fmt::format("{}: {}{}{}{}", who, hello.error().message(), status ? " (" : "",
                             status ? describe_status(*status) : "", status ? ")" : ""));
  }
  if (!hello->greeting) {
    return Error(Code::kAbiMismatch, Scope::kProcess, who + " does not say of which Strata it is");
  }
  STRATA_TRY(check_greeting(*hello->greeting, identity, who));
  ForkGreeting own;
  put_program(&own);
  server->same_program_ = own.program_inode == hello->greeting->program_inode &&
                          own.program_device == hello->greeting->program_device;
  return server;
}

}  // namespace strata::os
