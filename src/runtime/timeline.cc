#include "runtime/timeline.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <ostream>
#include <streambuf>
#include <vector>

#include "base/result.h"
#include "os/clock.h"
#include "os/system_error.h"
#include "strata/version.h"
#include "trace/perfetto.h"
#include "trace/report.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace strata::runtime {
namespace {

constexpr trace::Shape kShape{};

uint64_t counter_ticks(void*) {
  return os::cycle_counter();
}
uint64_t clock_ticks(void*) {
  return static_cast<uint64_t>(os::monotonic_now().ns);
}

// A kernel that does not know the call lets each page fault by itself.
void touch_pages(void* at, size_t bytes) {
  static_cast<void>(::madvise(at, bytes, MADV_POPULATE_WRITE));
}
trace::Host host_of(trace::ClockKind kind) {
  return {kind == trace::ClockKind::kCounter ? &counter_ticks : &clock_ticks, &touch_pages,
          nullptr};
}

// Bytes to a descriptor of an empty file; the first error stays.
class FdBuffer final : public std::streambuf {
 public:
  explicit FdBuffer(int fd) : fd_(fd), bytes_(256 * 1024) {
    // Beyond this limit write does not only fail, it sends SIGXFSZ.
    rlimit limit{};
    if (::getrlimit(RLIMIT_FSIZE, &limit) == 0) room_ = limit.rlim_cur;
    setp(bytes_.data(), bytes_.data() + bytes_.size());
  }
  int error() const { return error_; }

 protected:
  int_type overflow(int_type c) override {
    if (sync() != 0) return traits_type::eof();
    if (c != traits_type::eof()) sputc(traits_type::to_char_type(c));
    return traits_type::not_eof(c);
  }
  int sync() override {
    for (const char* at = pbase(); at != pptr() && error_ == 0;) {
      if (static_cast<uint64_t>(pptr() - at) > room_) {
        error_ = EFBIG;
        break;
      }
      const ssize_t n = ::write(fd_, at, static_cast<size_t>(pptr() - at));
      if (n >= 0) {
        at += n;
        room_ -= static_cast<uint64_t>(n);
      } else if (errno != EINTR) {
        error_ = errno;
      }
    }
    setp(bytes_.data(), bytes_.data() + bytes_.size());
    return error_ == 0 ? 0 : -1;
  }

 private:
  int fd_;
  std::vector<char> bytes_;
  uint64_t room_ = UINT64_MAX;
  int error_ = 0;
};

// "trace.json" and 2: "trace.2.json".
std::string numbered(const std::string& path, uint32_t number) {
  const size_t slash = path.rfind('/');
  const size_t name = slash == std::string::npos ? 0 : slash + 1;
  const size_t dot = path.rfind('.');
  const size_t at = dot == std::string::npos || dot <= name ? path.size() : dot;
  return fmt::format("{}.{}{}", path.substr(0, at), number, path.substr(at));
}

std::string with_pid(std::string path) {
  for (size_t at = 0; (at = path.find("%p", at)) != std::string::npos;) {
    const std::string pid = fmt::format("{}", ::getpid());
    path.replace(at, 2, pid);
    at += pid.size();
  }
  return path;
}

// A program may change its folder before close().
Result<std::string> absolute(const std::string& path) {
  if (char* const real = ::realpath(path.c_str(), nullptr)) {
    std::string out = real;
    std::free(real);
    return out;
  }
  if (path[0] == '/') return path;
  char* const here = ::getcwd(nullptr, 0);
  if (here == nullptr) return os::system_error("find the current folder", errno);
  std::string out = std::string(here) + "/" + path;
  std::free(here);
  return out;
}

uint32_t next_number() {
  static std::atomic<uint32_t> asked{0};
  return ++asked;
}

}  // namespace

// Where the timeline goes: a file beside it that takes its name when it is whole.
struct Timeline::File {
  std::string path;
  std::string option;  // what asked for it, for texts
  std::string part;
  os::Fd fd;
  os::CycleReading began;
  int64_t began_unix_ns = 0;

  ~File() {
    if (fd.valid()) ::unlink(part.c_str());
  }
  Error cannot(const char* what, int error) const {
    return os::system_error(fmt::format("{}: {} the timeline {}", option, what, path), error);
  }
  static Result<std::unique_ptr<File>> open(const std::string& path, std::string option);
};

Result<std::unique_ptr<Timeline::File>> Timeline::File::open(const std::string& path,
                                                             std::string option) {
  auto file = std::make_unique<File>();
  file->option = std::move(option);
  STRATA_ASSIGN(file->path, absolute(path));
  struct stat info {};
  if (::stat(file->path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return Error(Code::kInvalidArgument, Scope::kCall,
                 fmt::format("{}: {} is not a regular file", file->option, file->path));
  }
  file->part = file->path + ".part";
  os::Fd fd(::open(file->part.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!fd.valid()) return file->cannot("write", errno);
  const bool locked = ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0;
  if (!locked && errno != EWOULDBLOCK) return file->cannot("lock", errno);
  // Whoever held the lock a moment ago has given this file its name by now.
  struct stat mine {};
  if (!locked || ::fstat(fd.get(), &mine) != 0 || ::stat(file->part.c_str(), &info) != 0 ||
      mine.st_ino != info.st_ino) {
    return Error(Code::kWrongState, Scope::kCall,
                 fmt::format("{}: another Worker is about to write the timeline {}: close it "
                             "first, or name another file",
                             file->option, file->path));
  }
  if (::ftruncate(fd.get(), 0) != 0) return file->cannot("write", errno);
  file->fd = std::move(fd);
  return file;
}

Timeline::Timeline(os::SharedRegion memory, const trace::Region& region, std::unique_ptr<File> file)
    : memory_(std::move(memory)), region_(region), file_(std::move(file)) {}
Timeline::~Timeline() = default;

void Timeline::drop_file() {
  file_.reset();
}

Result<std::unique_ptr<Timeline>> Timeline::create(const WorkerSpec& spec) {
  std::string path = spec.timeline;
  std::string option = "WorkerSpec::timeline";
  if (path.empty()) {
    const char* const set = std::getenv(kTimelineVariable);
    if (set == nullptr || *set == '\0') return std::unique_ptr<Timeline>();
    const uint32_t number = next_number();
    path = with_pid(set);
    if (number > 1) path = numbered(path, number);
    option = kTimelineVariable;
  }
  STRATA_ASSIGN(std::unique_ptr<File> file, File::open(path, std::move(option)));
  STRATA_ASSIGN(os::SharedRegion memory,
                os::SharedRegion::create("strata-timeline", trace::Region::bytes(kShape)));
  const auto kind =
      os::cycle_counter_is_sound() ? trace::ClockKind::kCounter : trace::ClockKind::kNanoseconds;
  const trace::Region region = trace::Region::format(memory.bytes(), kShape, kind);
  file->began = os::read_cycles_and_clock();
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  file->began_unix_ns = static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
  return std::unique_ptr<Timeline>(new Timeline(std::move(memory), region, std::move(file)));
}

Result<std::unique_ptr<Timeline>> Timeline::adopt(os::Fd fd, size_t bytes) {
  STRATA_ASSIGN(os::SharedRegion memory, os::SharedRegion::adopt(std::move(fd), bytes));
  STRATA_ASSIGN(const trace::Region region, trace::Region::attach(memory.bytes()));
  return std::unique_ptr<Timeline>(new Timeline(std::move(memory), region, nullptr));
}

std::unique_ptr<trace::Recorder> Timeline::recorder(trace::Role role, std::string_view path) const {
  auto recorder = std::make_unique<trace::Recorder>(
      region_, host_of(region_.clock()),
      trace::Recorder::Who{static_cast<uint32_t>(::getpid()), role, path});
  if (!recorder->on()) return nullptr;
  recorder->mark({.kind = trace::Kind::kStart});
  return recorder;
}

Result<void> Timeline::write() {
  if (file_ == nullptr) return {};
  const std::unique_ptr<File> file = std::move(file_);
  const os::CycleReading ended = os::read_cycles_and_clock();
  trace::TimeMap time;
  const bool counter = region_.clock() == trace::ClockKind::kCounter;
  if (counter) {
    // The length of a tick is what it was on the average of this timeline.
    time = {file->began.ticks, ended.ticks, 1.0};
    if (ended.ticks > file->began.ticks && ended.ns > file->began.ns) {
      time.ns_per_tick = static_cast<double>(ended.ns - file->began.ns) /
                         static_cast<double>(ended.ticks - file->began.ticks);
    }
  } else {
    time = {static_cast<uint64_t>(file->began.ns), static_cast<uint64_t>(ended.ns), 1.0};
  }
  FdBuffer buffer(file->fd.get());
  std::ostream out(&buffer);
  trace::Report report(region_, time);
  trace::write_perfetto_json(report,
                             {{"producer", "Strata " STRATA_VERSION},
                              {"clock", counter ? "time-stamp counter" : "CLOCK_MONOTONIC"},
                              {"monotonic_ns_at_0", fmt::format("{}", file->began.ns)},
                              {"unix_ns_at_0", fmt::format("{}", file->began_unix_ns)}},
                             out);
  out.flush();
  if (!out || buffer.error() != 0) {
    return file->cannot("write", buffer.error() != 0 ? buffer.error() : EIO);
  }
  if (::rename(file->part.c_str(), file->path.c_str()) != 0) return file->cannot("name", errno);
  // Some file systems tell only now that they have no room.
  if (::close(file->fd.release()) != 0 && errno != EINTR) {
    const int error = errno;
    ::unlink(file->path.c_str());
    return file->cannot("write", error);
  }
  return {};
}

}  // namespace strata::runtime
