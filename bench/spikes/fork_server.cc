// Question: can a single-threaded fork server, forked before its parent has threads, make all local
// children, also late ones; what does each step cost; who learns of which death, how fast; and is
// anything left behind?
//
// Shape: observer (measures) - subject (the user's process: a Context with two Workers, later with
// threads) - Context server - one server for each Worker - children. A server holds three
// descriptors: its SOCK_SEQPACKET end, the subject's pidfd and a signalfd for SIGCHLD. A child
// holds its per-child socket, and a memfd where one came with the fork request.
//
// Build: g++ -std=c++20 -O2 -pthread -o fork_server fork_server.cc
// Run:   ./fork_server [repeats, default 30] [resident MiB of the subject, default 0]     (10 s)

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>
#include <vector>

namespace {

constexpr int kWaitMs = 3'000;  // the limit of every wait
constexpr int kBufferValue = 42;

enum Kind : uint32_t { kServe, kFork, kStarted, kExited, kStopped, kReady, kBuffer, kValue };

// One SEQPACKET message; up to two descriptors travel beside it.
struct Message {
  Kind kind;
  int32_t pid = 0;
  int32_t value = 0;  // wait status, count of descriptors, or the value in a buffer
  int fds[2] = {-1, -1};
};

enum Scenario { kClose, kKillSubject, kKillSubjectStray, kScenarios };
constexpr const char* kScenarioNames[kScenarios] = {
    "orderly close", "SIGKILL of parent", "SIGKILL of parent, stray copies of its sockets"};

// What the subject tells its observer; in shared memory, since the subject may die at any point.
struct Report {
  const char* names[16];
  double us[16];
  pid_t pids[16];
  int sample_count, pid_count;
  int server_fds, child_fds, fds_before, fds_after;
  int wait_errno, child_status, pidfd_exit_code;
  std::atomic<bool> ready_for_kill;
};
Report* report;
size_t resident_mib;

double now_us() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return static_cast<double>(ts.tv_sec) * 1e6 + static_cast<double>(ts.tv_nsec) / 1e3;
}

void record(const char* name, double start) {
  report->names[report->sample_count] = name;
  report->us[report->sample_count++] = now_us() - start;
}

[[noreturn]] void die(const char* what) {
  fprintf(stderr, "pid %d: %s: %s\n", getpid(), what, strerror(errno));
  _exit(1);
}

void mask_all_signals(int how) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(how, &all, nullptr);
}

int pidfd_open(pid_t pid) {
  return static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
}

bool readable(int fd, int timeout_ms = kWaitMs) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, timeout_ms) == 1;
}

int count_fds() {
  int n = 0;
  for (int fd = 0; fd < 1024; ++fd) n += fcntl(fd, F_GETFD) >= 0;
  return n;
}

void send_message(int socket, Message message, int fd_count = 0) {
  iovec part{&message, sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof message.fds)] = {};
  msghdr header{nullptr, 0, &part, 1, nullptr, 0, 0};
  if (fd_count > 0) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
    memcpy(CMSG_DATA(c), message.fds, fd_count * sizeof(int));
  }
  sendmsg(socket, &header, MSG_NOSIGNAL);
}

// False at EOF.
bool receive(int socket, Message* message) {
  iovec part{message, sizeof *message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof message->fds)];
  msghdr header{nullptr, 0, &part, 1, control, sizeof control, 0};
  if (recvmsg(socket, &header, MSG_CMSG_CLOEXEC) != sizeof *message) return false;
  if ((header.msg_flags & MSG_CTRUNC) != 0) die("descriptors were lost");
  message->fds[0] = message->fds[1] = -1;
  if (const cmsghdr* c = CMSG_FIRSTHDR(&header)) {
    memcpy(message->fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
  }
  return true;
}

Message expect(int socket, Kind kind) {
  Message message{};
  if (!readable(socket) || !receive(socket, &message) || message.kind != kind) die("expect");
  return message;
}

// Closes all descriptors but two; one of them may be -1.
void close_all_but(int a, int b) {
  const int low = std::min(a, b), high = std::max(a, b);
  if (low > 0) syscall(SYS_close_range, 0, low - 1, 0);
  if (high > low + 1) syscall(SYS_close_range, low + 1, high - 1, 0);
  syscall(SYS_close_range, high + 1, ~0u, 0);
}

int read_buffer(int memfd) {
  void* memory = mmap(nullptr, sizeof(int), PROT_READ, MAP_SHARED, memfd, 0);
  const int value = memory == MAP_FAILED ? -1 : *static_cast<int*>(memory);
  munmap(memory, sizeof(int));
  return value;
}

[[noreturn]] void child_main(pid_t server, int socket, int memfd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != server) _exit(0);  // the server died before the line above
  setpgid(0, 0);
  signal(SIGINT, SIG_IGN);  // drops one that came before the line above
  signal(SIGINT, SIG_DFL);
  mask_all_signals(SIG_UNBLOCK);
  close_all_but(socket, memfd);
  send_message(socket,
               {.kind = kReady, .pid = memfd < 0 ? -1 : read_buffer(memfd), .value = count_fds()});
  for (Message message{}; receive(socket, &message); close(message.fds[0])) {
    send_message(socket, {.kind = kValue, .value = read_buffer(message.fds[0])});
  }
  _exit(0);
}

// The server's whole life: one thread, no parent-death signal.
[[noreturn]] void server_main(int socket, int subject_pidfd) {
  mask_all_signals(SIG_BLOCK);  // a terminal's SIGINT must not end the server
  sigset_t child_signal;
  sigemptyset(&child_signal);
  sigaddset(&child_signal, SIGCHLD);
  close_all_but(socket, subject_pidfd);
  const int signals = signalfd(-1, &child_signal, SFD_CLOEXEC | SFD_NONBLOCK);
  send_message(socket, {.kind = kReady, .pid = getpid(), .value = count_fds()});
  const pid_t self = getpid();
  while (true) {
    pollfd entries[] = {{socket, POLLIN, 0}, {subject_pidfd, POLLIN, 0}, {signals, POLLIN, 0}};
    if (poll(entries, 3, -1) < 0) continue;
    if (entries[1].revents != 0) _exit(0);
    if (entries[2].revents != 0) {
      signalfd_siginfo info;
      if (read(signals, &info, sizeof info) < 0) continue;
      int status;
      for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0;) {
        send_message(socket, {WIFSTOPPED(status) ? kStopped : kExited, pid, status});
      }
    }
    if (entries[0].revents == 0) continue;
    Message request{};
    if (!receive(socket, &request)) _exit(0);
    const pid_t pid = fork();
    if (pid == 0) {
      if (request.kind == kServe) server_main(request.fds[0], subject_pidfd);
      child_main(self, request.fds[0], request.fds[1]);
    }
    // Not reaped yet, whatever has happened to it: the number cannot have been used again.
    Message answer{.kind = kStarted, .pid = pid, .fds = {pidfd_open(pid), -1}};
    send_message(socket, answer, 1);
    for (const int fd : {answer.fds[0], request.fds[0], request.fds[1]}) close(fd);
  }
}

struct Peer {
  pid_t pid;
  int pidfd, socket;
};

// Asks `server` for a child, or for the server of one more Worker; `memfd` may travel with it.
Peer ask(int server, Kind kind, int memfd = -1) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) die("socketpair");
  send_message(server, {.kind = kind, .fds = {ends[1], memfd}}, memfd < 0 ? 1 : 2);
  close(ends[1]);
  const Message answer = expect(server, kStarted);
  report->pids[report->pid_count++] = answer.pid;
  return {answer.pid, answer.fds[0], ends[0]};
}

// Since Linux 6.15 PIDFD_GET_INFO tells the status of a reaped process to every holder of a pidfd.
int exit_code_by_ioctl(int pidfd) {
  struct {
    uint64_t mask, cgroup;
    uint32_t ids[11];
    int32_t exit_code;
  } info{};
  info.mask = 1u << 3;  // PIDFD_INFO_EXIT
  if (ioctl(pidfd, _IOC(_IOC_READ | _IOC_WRITE, 0xff, 11, 64), &info) != 0) return -errno;
  return (info.mask & (1u << 3)) != 0 ? info.exit_code : -1;
}

void kill_child_and_watch(const Peer& server, const Peer& child) {
  double start = now_us();
  kill(child.pid, SIGSTOP);
  expect(server.socket, kStopped);
  record("SIGSTOP of child to server's message", start);
  kill(child.pid, SIGCONT);
  start = now_us();
  kill(child.pid, SIGKILL);
  if (!readable(child.pidfd)) die("child's end");
  record("SIGKILL of child to pidfd readable", start);
  const Message message = expect(server.socket, kExited);
  record("SIGKILL of child to server's message", start);
  siginfo_t info{};
  const int rc = waitid(static_cast<idtype_t>(3) /* P_PIDFD */, child.pidfd, &info, WEXITED);
  report->wait_errno = rc == 0 ? 0 : errno;
  report->child_status = message.pid == child.pid ? message.value : -1;
  report->pidfd_exit_code = exit_code_by_ioctl(child.pidfd);
}

// The server of one Worker is killed, then everything is closed.
void kill_server_and_close(const Peer (&all)[6], const Peer& server, const Peer& late,
                           const Peer& other) {
  double mark = now_us();
  kill(server.pid, SIGKILL);
  Message nothing{};
  if (!readable(server.socket) || receive(server.socket, &nothing)) die("no EOF");
  record("SIGKILL of server to EOF at parent", mark);
  if (!readable(late.pidfd)) die("child outlives its server");
  record("SIGKILL of server to its children gone", mark);
  if (readable(other.pidfd, 5)) die("the other Worker's child is gone too");

  mark = now_us();
  for (const Peer& peer : all) close(peer.socket);
  for (const Peer& peer : all) {
    if (!readable(peer.pidfd)) die("outlives close");
  }
  record("close by EOF to all gone", mark);
}

[[noreturn]] void subject_main(Scenario scenario) {
  for (int i = 0; i < 5; ++i) dup(0);  // inherited; a server must close them
  report->fds_before = count_fds();
  setpgid(0, 0);
  if (resident_mib > 0) {  // what every fork must copy the page tables of
    void* memory = mmap(nullptr, resident_mib << 20, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 1, resident_mib << 20);
  }

  const double start = now_us();
  const int self = pidfd_open(getpid());
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) die("socketpair");
  mask_all_signals(SIG_BLOCK);  // so that no handler of the subject's runs in the server
  const pid_t context_pid = fork();
  if (context_pid == 0) server_main(ends[1], self);
  mask_all_signals(SIG_UNBLOCK);
  close(ends[1]);
  const Peer context{context_pid, pidfd_open(context_pid), ends[0]};
  report->pids[report->pid_count++] = context_pid;
  report->server_fds = expect(context.socket, kReady).value;
  Peer servers[2] = {ask(context.socket, kServe), ask(context.socket, kServe)};
  for (const Peer& server : servers) {
    report->server_fds = std::max(report->server_fds, expect(server.socket, kReady).value);
  }
  Peer first = ask(servers[0].socket, kFork);
  report->child_fds = expect(first.socket, kReady).value;
  record("init (2 Workers) to first child ready", start);
  Peer other = ask(servers[1].socket, kFork);
  expect(other.socket, kReady);

  int idle[2];
  if (pipe(idle) != 0) die("pipe");
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back([&] { readable(idle[0], -1); });

  const int buffer = memfd_create("buffer", MFD_CLOEXEC);
  if (pwrite(buffer, &kBufferValue, sizeof kBufferValue, 0) < 0) die("pwrite");
  double mark = now_us();
  Peer late = ask(servers[0].socket, kFork, buffer);
  if (expect(late.socket, kReady).pid != kBufferValue) die("memfd with the request");
  record("late child, memfd with the request, to ready", mark);
  mark = now_us();
  send_message(first.socket, {.kind = kBuffer, .fds = {buffer, -1}}, 1);
  if (expect(first.socket, kValue).value != kBufferValue) die("memfd by socket");
  record("memfd to a running child and answer", mark);

  signal(SIGINT, [](int) {});
  kill(0, SIGINT);  // as a terminal does; the subject is the leader of its group
  const Peer all[] = {context, servers[0], servers[1], first, other, late};
  for (const Peer& peer : all) {
    if (readable(peer.pidfd, 2)) die("ended by SIGINT");
  }
  kill_child_and_watch(servers[0], first);
  if (scenario != kClose) {
    // A fork by user code, which holds copies of every socket end for 300 ms.
    if (scenario == kKillSubjectStray && fork() == 0) _exit(usleep(300'000));
    report->ready_for_kill = true;
    pause();
  }
  kill_server_and_close(all, servers[0], late, other);
  waitpid(context_pid, nullptr, 0);
  close(idle[1]);
  for (auto& thread : threads) thread.join();
  for (const Peer& peer : all) close(peer.pidfd);
  for (const int fd : {idle[0], buffer, self}) close(fd);
  report->fds_after = count_fds();
  _exit(0);
}

// Reaps what the subject left; this process is the subreaper of it all. True if some stays.
bool some_left() {
  const double end = now_us() + 1e6;
  for (pid_t pid; (pid = waitpid(-1, nullptr, WNOHANG)) >= 0 && now_us() < end;) usleep(1'000);
  return waitpid(-1, nullptr, WNOHANG) >= 0;
}

// One run of one scenario. Returns how many processes outlived it.
int observe(Scenario scenario) {
  memset(static_cast<void*>(report), 0, sizeof *report);
  const pid_t subject = fork();
  if (subject == 0) subject_main(scenario);
  if (scenario == kClose) return waitpid(subject, nullptr, 0) != subject || some_left();
  for (int i = 0; i < 5'000 && !report->ready_for_kill; ++i) usleep(1'000);
  std::vector<int> pidfds{pidfd_open(subject)};
  for (int i = 0; i < report->pid_count; ++i) {
    if (const int fd = pidfd_open(report->pids[i]); fd >= 0) pidfds.push_back(fd);
  }
  const double start = now_us();
  kill(subject, SIGKILL);
  int left = 0;
  for (const int fd : pidfds) left += !readable(fd);
  record("SIGKILL of parent to all gone", start);
  for (const int fd : pidfds) close(fd);
  return left + some_left();
}

}  // namespace

int main(int argc, char** argv) {
  alarm(60);
  const int repeats = argc > 1 ? std::clamp(atoi(argv[1]), 1, 60) : 30;
  resident_mib = argc > 2 ? std::clamp(atoi(argv[2]), 0, 1024) : 0;
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  report = static_cast<Report*>(
      mmap(nullptr, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const int fds_before = count_fds();
  for (int s = 0; s < kScenarios; ++s) {
    std::vector<double> us[16];
    int left = 0;
    for (int i = 0; i < repeats; ++i) {
      left += observe(static_cast<Scenario>(s));
      for (int m = 0; m < report->sample_count; ++m) us[m].push_back(report->us[m]);
    }
    printf("%s, %d runs: %d processes left behind\n", kScenarioNames[s], repeats, left);
    for (int m = 0; m < report->sample_count; ++m) {
      std::sort(us[m].begin(), us[m].end());
      printf("  %-46s median %9.1f us   max %9.1f us\n", report->names[m], us[m][us[m].size() / 2],
             us[m].back());
    }
    printf("  descriptors: server %d, child %d", report->server_fds, report->child_fds);
    if (s == kClose) printf(", parent %d before, %d after", report->fds_before, report->fds_after);
    printf("\n  child's status by message: signal %d; waitid on its pidfd: %s; by ioctl: %d\n",
           WTERMSIG(report->child_status), report->wait_errno == ECHILD ? "ECHILD" : "no ECHILD",
           report->pidfd_exit_code);
  }
  printf("observer's descriptors: %d before, %d after\n", fds_before, count_fds());
  return 0;
}
