#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "os/fd.h"
#include "os/process.h"
#include "runtime/daemon.h"
#include "runtime/runner_main.h"
#include "tools/command.h"

namespace strata::tools {
namespace {

struct ServeOptions {
  std::string listen = "127.0.0.1:7411";
  std::vector<std::string> keys;
  std::string advertise;
  std::vector<std::string> allow_library;
  std::vector<std::string> allow_env;
  std::string log;
};

const runtime::Daemon* g_daemon = nullptr;

void on_signal(int) {
  const int saved = errno;
  g_daemon->stop();
  errno = saved;
}

void write_line(int fd, std::string_view line) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  tm utc{};
  ::gmtime_r(&now.tv_sec, &utc);
  const std::string text = fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z {}\n",
                                       utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour,
                                       utc.tm_min, utc.tm_sec, now.tv_nsec / 1'000'000, line);
  // One write, so that lines of several processes stay whole. A log that is full stops nothing.
  [[maybe_unused]] const ssize_t put = ::write(fd, text.data(), text.size());
}

Result<void> serve(const ServeOptions& options) {
  os::fill_closed_stdio();
  runtime::DaemonOptions daemon_options;
  STRATA_ASSIGN(const transport::HostPort where, transport::parse_host_port(options.listen));
  STRATA_ASSIGN(const std::vector<transport::Address> addresses, transport::resolve(where));
  daemon_options.listen = addresses.front();
  if (!options.keys.empty()) {
    STRATA_ASSIGN(daemon_options.keys, transport::KeyRing::read_files(options.keys));
  }
  if (!options.advertise.empty()) STRATA_TRY(transport::parse_host_port(options.advertise));
  daemon_options.advertise = options.advertise;
  daemon_options.allow_library = options.allow_library;
  daemon_options.allow_env = options.allow_env;
  os::Fd file;
  int log = STDERR_FILENO;
  if (!options.log.empty()) {
    file.reset(::open(options.log.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640));
    if (!file.valid()) {
      return Error(Code::kSystem, Scope::kProcess,
                   fmt::format("open the log {}: {}", options.log, std::strerror(errno)));
    }
    log = file.get();
  }
  daemon_options.log = [log](std::string_view line) { write_line(log, line); };
  const std::string ids = daemon_options.keys ? "key " + daemon_options.keys->ids() : "no key";
  STRATA_ASSIGN(const auto daemon, runtime::Daemon::create(std::move(daemon_options)));
  g_daemon = daemon.get();
  struct sigaction action {};
  action.sa_handler = &on_signal;
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGINT, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);  // who reads the log may end before this does
  std::printf("strata serve: listening at %s, %s\n", daemon->address().to_string().c_str(),
              ids.c_str());
  std::fflush(stdout);
  Result<void> outcome = daemon->run();
  ::signal(SIGTERM, SIG_DFL);
  ::signal(SIGINT, SIG_DFL);
  return outcome;
}

}  // namespace

void add_serve_command(CLI::App& app, Action* action) {
  CLI::App* const command = app.add_subcommand(
      "serve", "Lets the Workers of other hosts have Workers here, each in a process of its own.");
  auto options = std::make_shared<ServeOptions>();
  command
      ->add_option("--listen", options->listen,
                   "Where to listen; port 0 takes a free one. Beyond 127.0.0.0/8 and ::1 only "
                   "with --key.")
      ->capture_default_str()
      ->type_name("ADDR:PORT");
  command
      ->add_option("--key", options->keys,
                   "A file of `strata key new`; twice while one key replaces another.")
      ->type_name("FILE")
      ->expected(1, 2);
  command
      ->add_option("--advertise", options->advertise,
                   "The address by which others reach this daemon, where it is another one.")
      ->type_name("HOST:PORT");
  command
      ->add_option("--allow-library", options->allow_library,
                   "A folder whose shared objects may be run; may be given more than once.")
      ->type_name("DIR");
  command
      ->add_option("--allow-env", options->allow_env,
                   "A name of the environment that a session may set; may be given more than "
                   "once.")
      ->type_name("NAME");
  command->add_option("--log", options->log, "Appends to this file instead of stderr.")
      ->type_name("FILE");
  command->footer(
      "It says on stdout where it listens, then logs who comes, when, and how it ends. SIGTERM and "
      "SIGINT end it and no session: those go on until their parents end them. Paths that a "
      "session "
      "names are below the folder that this is started in.\n\n"
      "Exit codes: 0 it was asked to end, 1 it cannot listen or use a key, 2 bad arguments.\n"
      "Example: strata serve --listen 0.0.0.0:7411 --key cluster.key --allow-library ./lib");
  command->callback([action, options] {
    *action = [options] {
      const Result<void> outcome = serve(*options);
      if (outcome) return kExitOk;
      std::fprintf(stderr, "strata: %s\n", outcome.error().message().c_str());
      return kExitFailed;
    };
  });
}

std::optional<int> run_if_runner(int argc, char** argv) {
  if (argc < 2 || argv[1] != runtime::kRunnerCommand) return std::nullopt;
  if (argc == 3 && argv[2] == runtime::kRunnerArgument) return runtime::run_as_runner(3);
  std::fprintf(stderr,
               "strata: a runner is started by `strata serve`, with a socket to it; there is "
               "nothing to run by hand\n");
  return kExitBadArguments;
}

}  // namespace strata::tools
