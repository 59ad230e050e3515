#include "runtime/runner_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/result.h"
#include "os/system_error.h"

namespace strata::runtime {
namespace {

Result<os::Fd> copy_of(int fd) {
  os::Fd copy(::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!copy.valid()) return os::system_error("a descriptor for a runner's own output", errno);
  return copy;
}

}  // namespace

Result<std::unique_ptr<RunnerOutput>> RunnerOutput::capture(
    std::string path, uint32_t worker, std::function<void(const OutputLine&)> on_line) {
  STRATA_ASSIGN(os::Fd given, copy_of(STDERR_FILENO));
  Result<os::OutputFile> err = os::OutputFile::adopt(std::move(given));
  if (!err) return std::unique_ptr<RunnerOutput>();
  STRATA_ASSIGN(os::OutputFile out, os::OutputFile::create("strata-stdout"));
  std::unique_ptr<RunnerOutput> self(new RunnerOutput());
  OutputReader::Options options;
  options.spec.on_line = std::move(on_line);
  options.path = std::move(path);
  STRATA_ASSIGN(self->reader_,
                OutputReader::create(std::move(options), [running = &self->running_] {
                  return running->load(std::memory_order_relaxed);
                }));
  const std::array<int, 3> fds = self->reader_->open(worker, std::move(out), *std::move(err));
  self->reader_->started(worker, ::getpid());
  STRATA_ASSIGN(os::Fd own_out, copy_of(fds[0]));
  STRATA_ASSIGN(os::Fd own_err, copy_of(fds[1]));
  STRATA_ASSIGN(os::Fd wake, copy_of(fds[2]));
  STRATA_ASSIGN(self->output_, ChildOutput::adopt(std::move(own_out), std::move(own_err),
                                                  os::EventFd::adopt(std::move(wake))));
  STRATA_TRY(self->reader_->start());
  return self;
}

void RunnerOutput::stop() {
  output_->after_control();
  reader_->stop();
}

}  // namespace strata::runtime
