#include "os/spawn.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "os/system_error.h"

extern char** environ;

namespace strata::os {
namespace {

class Plan {
 public:
  Plan() {
    error_ = ::posix_spawn_file_actions_init(&actions_);
    if (error_ != 0) return;
    error_ = ::posix_spawnattr_init(&attributes_);
    made_ = error_ == 0;
    if (!made_) ::posix_spawn_file_actions_destroy(&actions_);
  }
  ~Plan() {
    if (!made_) return;
    ::posix_spawnattr_destroy(&attributes_);
    ::posix_spawn_file_actions_destroy(&actions_);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  int plan(const SpawnRequest& request) {
    if (!made_) return error_;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    ::posix_spawnattr_setflags(&attributes_,
                               POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setsigdefault(&attributes_, &all);
    // The channel last: its number may be that of `output` before.
    int error =
        ::posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
      if (error == 0 && request.output >= 0) {
        error = ::posix_spawn_file_actions_adddup2(&actions_, request.output, stream);
      }
    }
    // A descriptor duplicated onto itself stays open across the exec too.
    if (error == 0) {
      error =
          ::posix_spawn_file_actions_adddup2(&actions_, request.channel, SpawnRequest::kChannel);
    }
    if (error == 0) {
      error = ::posix_spawn_file_actions_addclosefrom_np(&actions_, SpawnRequest::kChannel + 1);
    }
    return error;
  }
  int spawn(const char* program, char** argv, char** env, pid_t* pid) {
    return ::posix_spawn(pid, program, &actions_, &attributes_, argv, env);
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
  int error_ = 0;
  bool made_ = false;
};

std::vector<std::string> environment_of(const SpawnRequest& request) {
  std::vector<std::string> out;
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
    const std::string_view entry = *each;
    const std::string_view name = entry.substr(0, entry.find('='));
    const bool replaced = std::any_of(request.environment.begin(), request.environment.end(),
                                      [&](const auto& pair) { return pair.first == name; });
    if (!replaced) out.emplace_back(entry);
  }
  for (const auto& [name, value] : request.environment) out.push_back(name + "=" + value);
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

}  // namespace

Result<pid_t> spawn(const SpawnRequest& request) {
  std::vector<std::string> arguments = request.arguments;
  std::vector<std::string> environment = environment_of(request);
  Plan plan;
  int error = plan.plan(request);
  pid_t pid = -1;
  if (error == 0) {
    error = plan.spawn(request.program.c_str(), pointers(arguments).data(),
                       pointers(environment).data(), &pid);
  }
  if (error == 0) return pid;
  return system_error(fmt::format("start '{}'", request.program), error);
}

}  // namespace strata::os
