#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <thread>

#include "os/clock.h"
#include "os/epoll.h"
#include "os/event_fd.h"
#include "os/fd.h"
#include "os/futex.h"
#include "os/pid_fd.h"
#include "os/shared_region.h"
#include "os/socket_pair.h"
#include "os/system_error.h"
#include "os/timer_fd.h"
#include "os_test_util.h"

namespace strata::os {
namespace {

using base::Duration;
using base::Instant;

bool is_open(int fd) {
  return ::fcntl(fd, F_GETFD) >= 0;
}
bool closes_on_exec(int fd) {
  return (::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Runs `body` in a process of its own whose kernel answers one system call as an older one does,
// where its second argument has all of `bits`. True where the body returns true.
bool holds_where_kernel_lacks(unsigned call, uint32_t bits, int error, bool (*body)()) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, bits),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, bits, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{.len = std::size(code), .filter = code};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) ::_exit(2);
    if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) ::_exit(3);
    ::_exit(body() ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_LT(WEXITSTATUS(status), 2) << "no filter could be set";
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(SystemError, LimitsAreTheirOwnCode) {
  EXPECT_EQ(system_error("open", EMFILE).code(), Code::kResourceExhausted);
  EXPECT_EQ(system_error("open", ENOSPC).code(), Code::kResourceExhausted);
  EXPECT_EQ(system_error("open", EACCES).code(), Code::kSystem);
  EXPECT_NE(system_error("open", EACCES).message().find("Permission denied"), std::string::npos);
}

TEST(Fd, ClosesAtItsEndAndOnlyOnce) {
  NothingLeftBehind check;
  int raw = -1;
  {
    Fd a(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    raw = a.get();
    Fd b(std::move(a));
    EXPECT_FALSE(a.valid());
    EXPECT_TRUE(is_open(raw));
    Fd& alias = b;
    b = std::move(alias);
    EXPECT_TRUE(is_open(raw));
    const Result<Fd> copy = b.duplicate();
    ASSERT_TRUE(copy.ok());
    EXPECT_NE(copy->get(), raw);
    EXPECT_TRUE(closes_on_exec(copy->get()));
  }
  EXPECT_FALSE(is_open(raw));
  EXPECT_FALSE(Fd().duplicate().ok());
}

TEST(EventFd, SignalsAreOneUntilTheyAreDrained) {
  NothingLeftBehind check;
  EventFd event = EventFd::create().value();
  EXPECT_TRUE(closes_on_exec(event.fd()));
  EXPECT_FALSE(event.drain());
  event.signal();
  event.signal();
  EXPECT_TRUE(readable(event.fd()));
  EXPECT_TRUE(event.drain());
  EXPECT_FALSE(event.drain());
  EXPECT_FALSE(readable(event.fd()));
}

TEST(EventFd, SignalOfAFullCounterIsNotLost) {
  EventFd event = EventFd::create().value();
  const uint64_t full = UINT64_MAX - 1;
  ASSERT_EQ(::write(event.fd(), &full, sizeof full), static_cast<ssize_t>(sizeof full));
  event.signal();
  EXPECT_TRUE(event.drain());
}

TEST(Epoll, GivesTheTagOfWhatIsReady) {
  NothingLeftBehind check;
  Epoll epoll = Epoll::create().value();
  EventFd a = EventFd::create().value();
  EventFd b = EventFd::create().value();
  ASSERT_TRUE(epoll.add(a.fd(), 7).ok());
  ASSERT_TRUE(epoll.add(b.fd(), UINT64_MAX).ok());
  EXPECT_EQ(epoll.add(b.fd(), 1).error().code(), Code::kSystem);
  std::array<EpollEvent, 4> out;
  EXPECT_EQ(epoll.wait(out, Duration{0}).value(), 0u);
  b.signal();
  ASSERT_EQ(epoll.wait(out, std::nullopt).value(), 1u);
  EXPECT_EQ(out[0].tag, UINT64_MAX);
  EXPECT_EQ(out[0].events, static_cast<uint32_t>(EPOLLIN));
  a.signal();
  EXPECT_EQ(epoll.wait(out, std::nullopt).value(), 2u);
  EXPECT_EQ(epoll.wait(std::span(out).first(1), std::nullopt).value(), 1u);
  ASSERT_TRUE(epoll.remove(b.fd()).ok());
  ASSERT_TRUE(epoll.modify(a.fd(), 8, EPOLLIN | EPOLLOUT).ok());
  ASSERT_EQ(epoll.wait(out, std::nullopt).value(), 1u);
  EXPECT_EQ(out[0].tag, 8u);
  EXPECT_EQ(out[0].events, static_cast<uint32_t>(EPOLLIN | EPOLLOUT));
  EXPECT_FALSE(epoll.remove(b.fd()).ok());
  EXPECT_EQ(epoll.wait({}, Duration{0}).error().code(), Code::kInvalidArgument);
}

TEST(Epoll, WaitEndsAtItsTimeoutAndNotBefore) {
  Epoll epoll = Epoll::create().value();
  std::array<EpollEvent, 1> out;
  const Instant before = monotonic_now();
  EXPECT_EQ(epoll.wait(out, Duration::from_us(300)).value(), 0u);
  EXPECT_GE((monotonic_now() - before).ns, 300'000);
  EXPECT_EQ(epoll.wait(out, Duration{-5}).value(), 0u);
}

bool epoll_waits() {
  Epoll epoll = Epoll::create().value();
  EventFd event = EventFd::create().value();
  std::array<EpollEvent, 1> out;
  epoll_event none{};
  const timespec zero{};
  if (::epoll_pwait2(epoll.fd(), &none, 1, &zero, nullptr) != -1) return false;
  if (!epoll.add(event.fd(), 5).ok()) return false;
  const Instant before = monotonic_now();
  if (epoll.wait(out, Duration::from_us(300)).value() != 0) return false;
  if ((monotonic_now() - before).ns < 300'000) return false;
  if (epoll.wait(out, Duration{-7}).value() != 0) return false;
  event.signal();
  return epoll.wait(out, std::nullopt).value() == 1 && out[0].tag == 5;
}

TEST(Epoll, WaitsInMillisecondsWhereTheKernelHasNoFinerCall) {
  EXPECT_TRUE(holds_where_kernel_lacks(SYS_epoll_pwait2, 0, ENOSYS, epoll_waits));
  EXPECT_TRUE(holds_where_kernel_lacks(SYS_epoll_pwait2, 0, EPERM, epoll_waits));
}

TEST(Epoll, AnotherThreadsSignalEndsAWait) {
  Epoll epoll = Epoll::create().value();
  EventFd event = EventFd::create().value();
  ASSERT_TRUE(epoll.add(event.fd(), 3).ok());
  std::thread other([&event] { event.signal(); });
  std::array<EpollEvent, 1> out;
  EXPECT_EQ(epoll.wait(out, kTestDeadline).value(), 1u);
  EXPECT_EQ(out[0].tag, 3u);
  other.join();
}

TEST(TimerFd, FiresOnceAndOnlyWhileArmed) {
  NothingLeftBehind check;
  for (const clockid_t clock : {CLOCK_MONOTONIC, CLOCK_BOOTTIME}) {
    TimerFd timer = TimerFd::create(clock).value();
    const auto now = [clock] {
      return clock == CLOCK_MONOTONIC ? monotonic_now() : boottime_now();
    };
    EXPECT_FALSE(readable(timer.fd()));
    const Instant deadline = now() + Duration::from_us(200);
    ASSERT_TRUE(timer.arm(deadline).ok());
    ASSERT_TRUE(readable(timer.fd(), 60'000));
    EXPECT_GE(now(), deadline);
    EXPECT_TRUE(timer.drain());
    EXPECT_FALSE(timer.drain());
    ASSERT_TRUE(timer.arm(Instant{-1}).ok());
    EXPECT_TRUE(readable(timer.fd(), 60'000));
    ASSERT_TRUE(timer.disarm().ok());
    EXPECT_FALSE(readable(timer.fd()));
    ASSERT_TRUE(timer.arm(now() + Duration::from_s(3600)).ok());
    EXPECT_FALSE(readable(timer.fd()));
    ASSERT_TRUE(timer.arm(Instant::never()).ok());
    EXPECT_FALSE(timer.drain());
  }
}

TEST(Futex, WaitSeesAChangedWordATimeoutAndAWake) {
  std::atomic<uint32_t> word{1};
  EXPECT_EQ(futex_wait(&word, 2), FutexWait::kChanged);
  EXPECT_EQ(futex_wait(&word, 1, Duration::from_us(100)), FutexWait::kTimedOut);
  EXPECT_EQ(futex_wait(&word, 1, Duration{-1}), FutexWait::kTimedOut);
  EXPECT_EQ(futex_wake(&word, 1), 0);
  std::thread waker([&word] {
    word.store(2);
    futex_wake(&word, 1);
  });
  while (word.load() == 1) futex_wait(&word, 1);
  EXPECT_EQ(word.load(), 2u);
  waker.join();
}

TEST(Futex, WakesAcrossTwoMappingsOfOneRegion) {
  SharedRegion one = SharedRegion::create("futex", 4096).value();
  SharedRegion two = SharedRegion::adopt(Fd(::dup(one.fd())), 4096).value();
  auto* here = reinterpret_cast<std::atomic<uint32_t>*>(one.data());
  auto* there = reinterpret_cast<std::atomic<uint32_t>*>(two.data());
  ASSERT_NE(here, there);
  std::atomic<bool> woken{false};
  std::thread waiter([&] {
    // Without a timeout: only a wake through the other mapping ends it.
    futex_wait(there, 0);
    woken.store(true);
  });
  // A private futex would be keyed by address, and no wake would ever find the waiter.
  int woke = 0;
  while (woke == 0 && !woken.load()) woke = futex_wake(here, 1);
  EXPECT_EQ(woke, 1);
  waiter.join();
}

TEST(SharedRegion, TwoMappingsAreOneMemory) {
  NothingLeftBehind check;
  SharedRegion a = SharedRegion::create("region", 10'000).value();
  EXPECT_EQ(a.size(), 10'000u);
  EXPECT_TRUE(closes_on_exec(a.fd()));
  EXPECT_EQ(a.bytes()[9'999], std::byte{0});
  SharedRegion b = SharedRegion::adopt(Fd(::dup(a.fd())), 10'000).value();
  a.data()[1234] = std::byte{42};
  EXPECT_EQ(b.data()[1234], std::byte{42});
  SharedRegion c(std::move(a));
  EXPECT_EQ(a.data(), nullptr);
  b = std::move(c);
  EXPECT_EQ(b.data()[1234], std::byte{42});
}

TEST(SharedRegion, IsMadeAlsoWhereTheKernelDoesNotKnowTheFlagAgainstExecution) {
  constexpr uint32_t kNoExecSeal = 8;
  EXPECT_TRUE(holds_where_kernel_lacks(SYS_memfd_create, kNoExecSeal, EINVAL, [] {
    const Result<SharedRegion> region = SharedRegion::create("old", 4096);
    return region.ok() &&
           ::fcntl(region->fd(), F_GET_SEALS) == (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  }));
}

TEST(SharedRegion, SizeCannotChangeUnderAHolder) {
  SharedRegion region = SharedRegion::create("sealed", 8192).value();
  EXPECT_NE(::ftruncate(region.fd(), 4096), 0);
  EXPECT_NE(::ftruncate(region.fd(), 16384), 0);
}

TEST(SharedRegion, AdoptRefusesWhatIsNotARegion) {
  NothingLeftBehind check;
  SharedRegion region = SharedRegion::create("adopted", 8192).value();
  EXPECT_EQ(SharedRegion::adopt(Fd(::dup(region.fd())), 4096).error().code(), Code::kCorrupt);
  EXPECT_EQ(SharedRegion::adopt(Fd(::dup(region.fd())), 0).error().code(), Code::kCorrupt);
  Fd unsealed(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), 8192), 0);
  EXPECT_EQ(SharedRegion::adopt(std::move(unsealed), 8192).error().code(), Code::kCorrupt);
  EXPECT_FALSE(SharedRegion::adopt(Fd(::open("/dev/null", O_RDWR | O_CLOEXEC)), 8192).ok());
  EXPECT_FALSE(SharedRegion::adopt(Fd(), 8192).ok());
}

TEST(SharedRegion, ImpossibleSizesAreErrors) {
  NothingLeftBehind check;
  EXPECT_EQ(SharedRegion::create("none", 0).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(SharedRegion::create("all", SIZE_MAX).error().code(), Code::kInvalidArgument);
  // The file may be that long, but no address space is.
  EXPECT_FALSE(SharedRegion::create("huge", size_t{1} << 60).ok());
  EXPECT_FALSE(SharedRegion::create(std::string(300, 'n'), 4096).ok());
}

TEST(SharedRegion, FileSizeLimitIsAnErrorAndNoSignal) {
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit low{4096, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &low);
  const Result<SharedRegion> region = SharedRegion::create("limited", 8192);
  ::setrlimit(RLIMIT_FSIZE, &before);
  ASSERT_FALSE(region.ok());
  EXPECT_EQ(region.error().code(), Code::kResourceExhausted);
}

TEST(SharedRegion, PunchHoleGivesPagesBackAndLeavesZeros) {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  SharedRegion region = SharedRegion::create("holes", 8 * page).value();
  const auto blocks = [&region] {
    struct stat info {};
    ::fstat(region.fd(), &info);
    return info.st_blocks;
  };
  EXPECT_EQ(blocks(), 0);
  ASSERT_TRUE(region.reserve(0, 8 * page).ok());
  const auto full = blocks();
  EXPECT_GT(full, 0);
  std::memset(region.data(), 0xff, 8 * page);
  ASSERT_TRUE(region.punch_hole(page, 4 * page).ok());
  EXPECT_EQ(blocks(), full / 2);
  EXPECT_EQ(region.data()[page - 1], std::byte{0xff});
  EXPECT_EQ(region.data()[page], std::byte{0});
  EXPECT_EQ(region.data()[5 * page], std::byte{0xff});
  EXPECT_TRUE(region.punch_hole(0, 0).ok());
  EXPECT_EQ(region.punch_hole(8 * page, 1).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(region.reserve(1, SIZE_MAX).error().code(), Code::kInvalidArgument);
}

TEST(SharedRegion, ReserveBeyondTheHostsMemoryIsAnError) {
  const size_t bytes = 2 * static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) *
                       static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  Result<SharedRegion> region = SharedRegion::create("reserved", bytes);
  ASSERT_TRUE(region.ok()) << region.error().to_string();
  EXPECT_EQ(region->reserve(0, bytes).error().code(), Code::kResourceExhausted);
}

TEST(SeqPacket, CarriesBytesAndDescriptorsWithTheirBorders) {
  NothingLeftBehind check;
  auto [a, b] = SeqPacket::pair().value();
  std::array<std::byte, 64> buffer;
  EXPECT_FALSE(b.receive(buffer).value().has_value());
  EventFd event = EventFd::create().value();
  const std::array<int, 2> fds = {event.fd(), event.fd()};
  ASSERT_TRUE(a.send(bytes_of("first"), fds).value());
  ASSERT_TRUE(a.send(bytes_of("2nd"), {}).value());
  SeqMessage first = b.receive(buffer).value().value();
  EXPECT_EQ(first.bytes, 5u);
  EXPECT_EQ(std::memcmp(buffer.data(), "first", 5), 0);
  ASSERT_EQ(first.fds.size(), 2u);
  EXPECT_TRUE(closes_on_exec(first.fds[0].get()));
  EventFd::adopt(std::move(first.fds[1])).signal();
  EXPECT_TRUE(event.drain());
  const SeqMessage second = b.receive(buffer).value().value();
  EXPECT_EQ(second.bytes, 3u);
  EXPECT_TRUE(second.fds.empty());
  EXPECT_FALSE(second.end);
}

TEST(SeqPacket, EndIsReadAfterWhatWasSentAlsoWhereTheEndLeftThingsUnread) {
  auto [a, b] = SeqPacket::pair().value();
  ASSERT_TRUE(a.send(bytes_of("unread"), {}).value());
  ASSERT_TRUE(b.send(bytes_of("last words"), {}).value());
  b.close();
  std::array<std::byte, 64> buffer;
  EXPECT_EQ(a.receive(buffer).value().value().bytes, 10u);
  EXPECT_TRUE(a.receive(buffer).value().value().end);
  EXPECT_EQ(a.send(bytes_of("x"), {}).error().code(), Code::kEndpointFailed);
}

TEST(SeqPacket, ShutDownEndsItForADuplicateToo) {
  auto [a, b] = SeqPacket::pair().value();
  const Fd held(::dup(a.fd()));
  a.shut_down();
  a.close();
  std::array<std::byte, 8> buffer;
  EXPECT_TRUE(b.receive(buffer).value().value().end);
}

TEST(SeqPacket, LimitsAreErrors) {
  NothingLeftBehind check;
  auto [a, b] = SeqPacket::pair().value();
  const std::vector<int> fds(SeqPacket::kFdsMax + 1, a.fd());
  EXPECT_EQ(a.send(bytes_of("x"), fds).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(a.send({}, {}).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(a.send(std::vector<std::byte>(16 << 20), {}).error().code(), Code::kInvalidArgument);
  const int bad = -1;
  EXPECT_FALSE(a.send(bytes_of("x"), {&bad, 1}).ok());
  ASSERT_TRUE(a.send(bytes_of("x"), std::span(fds).first(SeqPacket::kFdsMax)).value());
  std::array<std::byte, 4> buffer;
  EXPECT_EQ(b.receive(buffer).value().value().fds.size(), SeqPacket::kFdsMax);
  ASSERT_TRUE(a.send(bytes_of("12345"), std::span(fds).first(1)).value());
  EXPECT_EQ(b.receive(buffer).error().code(), Code::kCorrupt);
}

TEST(SeqPacket, FullSocketIsNotAnErrorAndEndsWhenRead) {
  auto [a, b] = SeqPacket::pair().value();
  std::vector<std::byte> big(32 * 1024);
  int sent = 0;
  while (a.send(big, {}).value()) ++sent;
  EXPECT_GT(sent, 0);
  EXPECT_FALSE(a.wait(POLLOUT, Duration::from_us(10)).value());
  while (b.receive(big).value().has_value()) --sent;
  EXPECT_EQ(sent, 0);
  EXPECT_TRUE(a.wait(POLLOUT, kTestDeadline).value());
  EXPECT_TRUE(a.send(big, {}).value());
}

// More descriptors than the receiver's control buffer has room for, as no SeqPacket sends them.
TEST(SeqPacket, TruncatedControlDataGivesNoDescriptorAtAll) {
  NothingLeftBehind check;
  auto [a, b] = SeqPacket::pair().value();
  constexpr size_t kMany = SeqPacket::kFdsMax + 4;
  alignas(cmsghdr) char control[CMSG_SPACE(kMany * sizeof(int))] = {};
  char byte = 'x';
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* c = CMSG_FIRSTHDR(&message);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(kMany * sizeof(int));
  const std::vector<int> fds(kMany, a.fd());
  std::memcpy(CMSG_DATA(c), fds.data(), kMany * sizeof(int));
  ASSERT_EQ(::sendmsg(a.fd(), &message, 0), 1);
  std::array<std::byte, 4> buffer;
  const SeqMessage got = b.receive(buffer).value().value();
  EXPECT_EQ(got.bytes, 1u);
  EXPECT_TRUE(got.fds_lost);
  EXPECT_TRUE(got.fds.empty());
}

TEST(SeqPacket, ReceiverWithoutRoomForDescriptorsLosesThemAllAndLeaksNone) {
  NothingLeftBehind check;
  auto [a, b] = SeqPacket::pair().value();
  const std::vector<int> fds(4, a.fd());
  ASSERT_TRUE(a.send(bytes_of("x"), fds).value());
  std::array<std::byte, 4> buffer;
  std::optional<SeqMessage> got;
  {
    FdLimit limit(full_fd_limit() + 2);
    got = b.receive(buffer).value();
  }
  EXPECT_TRUE(got->fds_lost);
  EXPECT_TRUE(got->fds.empty());
}

TEST(Descriptors, EveryWrapperFailsCleanlyWhereNoneIsLeft) {
  NothingLeftBehind check;
  const Fd some(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  FdLimit limit(full_fd_limit());
  EXPECT_EQ(some.duplicate().error().code(), Code::kResourceExhausted);
  EXPECT_EQ(EventFd::create().error().code(), Code::kResourceExhausted);
  EXPECT_EQ(Epoll::create().error().code(), Code::kResourceExhausted);
  EXPECT_EQ(TimerFd::create().error().code(), Code::kResourceExhausted);
  EXPECT_EQ(SharedRegion::create("r", 4096).error().code(), Code::kResourceExhausted);
  EXPECT_EQ(SeqPacket::pair().error().code(), Code::kResourceExhausted);
  EXPECT_EQ(PidFd::open(::getpid()).error().code(), Code::kResourceExhausted);
}

TEST(PidFd, SignalsAndReapsAChild) {
  NothingLeftBehind check;
  const pid_t pid = ::fork();
  if (pid == 0) {
    for (;;) ::pause();
  }
  const PidFd child = PidFd::open(pid).value();
  EXPECT_TRUE(closes_on_exec(child.fd()));
  EXPECT_FALSE(child.wait_ended(Duration{0}).value());
  EXPECT_EQ(child.reap(), std::nullopt);
  ASSERT_TRUE(child.signal(SIGKILL).ok());
  ASSERT_TRUE(child.wait_ended(kTestDeadline).value());
  EXPECT_EQ(child.reap(), -SIGKILL);
  EXPECT_EQ(child.reap(), std::nullopt);
  EXPECT_EQ(child.signal(SIGKILL).error().code(), Code::kNotFound);
}

TEST(PidFd, ReapGivesTheExitStatus) {
  NothingLeftBehind check;
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(42);
  const PidFd child = PidFd::open(pid).value();
  ASSERT_TRUE(child.wait_ended(kTestDeadline).value());
  EXPECT_EQ(child.reap(), 42);
  EXPECT_EQ(describe_status(42), "exit status 42");
  EXPECT_EQ(describe_status(-SIGKILL), "killed by signal 9 (Killed)");
  EXPECT_FALSE(PidFd::open(-1).ok());
}

}  // namespace
}  // namespace strata::os
