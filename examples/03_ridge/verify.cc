#include "verify.h"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>

namespace ridge {
namespace {

using Failure = tl::unexpected<std::string>;

// The file that the reference writes to: it has no name, so that nothing is left behind.
class OutputFile {
 public:
  OutputFile() : fd_(memfd_create("ridge_reference", MFD_CLOEXEC)) {}
  ~OutputFile() {
    if (fd_ >= 0) close(fd_);
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  int fd() const { return fd_; }

  // The next `size` bytes.
  bool read(void* to, size_t size) {
    auto* bytes = static_cast<char*>(to);
    while (size > 0) {
      const ssize_t n = pread(fd_, bytes, size, offset_);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      bytes += n;
      offset_ += n;
      size -= static_cast<size_t>(n);
    }
    return true;
  }
  template <class T>
  bool read(std::vector<T>* values) {
    return read(values->data(), values->size() * sizeof(T));
  }

 private:
  int fd_;
  off_t offset_ = 0;
};

// Runs `program data`, with --augment where that is so, and its standard output in `fd`. Empty text
// where it ended well.
std::string run(const std::string& program, const std::string& data, bool augment, int fd) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fd, STDOUT_FILENO);
  std::string arguments[] = {program, data, "--augment"};
  char* argv[] = {arguments[0].data(), arguments[1].data(), augment ? arguments[2].data() : nullptr,
                  nullptr};
  pid_t pid = -1;
  const int error = posix_spawn(&pid, program.c_str(), &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return program + " cannot be started: " + std::strerror(error);

  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return program + " cannot be waited for: " + std::strerror(errno);
  }
  if (WIFSIGNALED(status)) {
    return program + " was ended by signal " + std::to_string(WTERMSIG(status));
  }
  if (WEXITSTATUS(status) != 0) {
    return program + " ended with exit code " + std::to_string(WEXITSTATUS(status));
  }
  return {};
}

}  // namespace

tl::expected<Reference, std::string> run_reference(const std::string& program,
                                                   const std::string& data, bool augment,
                                                   size_t learned, size_t predicted) {
  OutputFile output;
  if (output.fd() < 0) return Failure(std::string("no memory file: ") + std::strerror(errno));
  if (std::string error = run(program, data, augment, output.fd()); !error.empty()) {
    return Failure(std::move(error));
  }
  std::vector<uint64_t> sizes(2);
  if (!output.read(&sizes) || sizes[0] != learned || sizes[1] != predicted) {
    return Failure(program + " speaks of other digits");
  }
  Reference reference;
  reference.factor.resize(learned * (learned + 1) / 2);
  reference.predictions.resize(predicted);
  if (!output.read(&reference.factor) || !output.read(&reference.predictions)) {
    return Failure(program + " wrote less than it should");
  }
  return reference;
}

double factor_error(std::span<const double> factor, size_t learned, const Reference& reference) {
  double largest = 0.0;
  double difference = 0.0;
  size_t at = 0;
  for (size_t i = 0; i < learned; ++i) {
    for (size_t j = 0; j <= i; ++j, ++at) {
      const double want = reference.factor[at];
      const double error = std::abs(factor[i * learned + j] - want);
      if (!std::isfinite(error)) return std::numeric_limits<double>::infinity();
      difference = std::max(difference, error);
      largest = std::max(largest, std::abs(want));
    }
  }
  return largest > 0.0 ? difference / largest : std::numeric_limits<double>::infinity();
}

}  // namespace ridge
