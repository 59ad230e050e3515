#include "runtime/context.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "base/result.h"
#include "os/exec_start.h"
#include "os/process.h"
#include "runtime/child_main.h"
#include "runtime/child_server.h"

namespace strata::runtime {
namespace {

struct Server {
  std::unique_ptr<os::ForkServer> server;
  std::vector<int> inherit_fds;
  std::string program = {};  // of one by exec, for people
};

struct Context {
  std::mutex mutex;
  pid_t owner = 0;  // a forked copy of this process makes its own
  Server forked;
  Server executed;
};

std::unique_ptr<Context>& holder() {
  static std::unique_ptr<Context> instance = std::make_unique<Context>();
  return instance;
}
Context& context() {
  return *holder();
}

// It has no children of its own, so what it tells is its end at most: without this look a server
// that was killed would seem alive for ever.
void take_events(os::ForkServer& server) {
  while (server.alive()) {
    const Result<std::optional<os::ServerEvent>> event = server.next_event();
    if (!event || !*event) return;
  }
}

// What it holds afterwards is this process's own, and lives.
void refresh(Server& held, bool owned) {
  if (!held.server) return;
  // The parent's. A forked copy must not talk to its parent's server.
  if (!owned) return static_cast<void>(held.server.release());
  take_events(*held.server);
  if (!held.server->alive()) held.server.reset();
}

void refresh(Context& c) {
  const bool owned = c.owner == ::getpid();
  refresh(c.forked, owned);
  refresh(c.executed, owned);
  c.owner = ::getpid();
}

Result<StartDecision> decide(const Context& c, StartMethod asked, bool allow_threads) {
  if (asked == StartMethod::kExec) {
    return StartDecision{StartMethod::kExec, "WorkerSpec::start asks for it"};
  }
  const bool is_auto = asked == StartMethod::kAuto;
  if (c.forked.server) {
    return StartDecision{StartMethod::kFork, is_auto ? "this process has its fork server already"
                                                     : "WorkerSpec::start asks for it"};
  }
  STRATA_ASSIGN(const os::ForkHazards hazards, os::fork_hazards());
  if (!hazards.any()) {
    return StartDecision{StartMethod::kFork,
                         is_auto ? "this process has one thread, no Python interpreter and no "
                                   "initialised UCX"
                                 : "WorkerSpec::start asks for it"};
  }
  if (allow_threads) {
    return StartDecision{StartMethod::kFork,
                         fmt::format("WorkerSpec::allow_threads is set, although there is: {}",
                                     hazards.to_string())};
  }
  if (is_auto) {
    return StartDecision{StartMethod::kExec, fmt::format("a fork of this process is not safe with: "
                                                         "{}",
                                                         hazards.to_string())};
  }
  return Error(Code::kWrongState, Scope::kCall,
               fmt::format("StartMethod::kFork forks this process, which is not safe with: {}. "
                           "Call init() before they start (a library may start threads before "
                           "main: let only the children load it, as a NativeImport), take "
                           "StartMethod::kAuto or kExec, or set WorkerSpec::allow_threads",
                           hazards.to_string()));
}

Result<void> check_shared(const Server& held, const WorkerSpec& spec) {
  for (const int fd : spec.inherit_fds) {
    if (std::find(held.inherit_fds.begin(), held.inherit_fds.end(), fd) != held.inherit_fds.end())
      continue;
    return Error(Code::kUnsupported, Scope::kCall,
                 fmt::format("descriptor {} of WorkerSpec::inherit_fds is not among those of the "
                             "first Worker of this process, whose {} server all share",
                             fd, held.program.empty() ? "fork" : "child"));
  }
  if (held.program.empty() || spec.child_server.empty() || spec.child_server == held.program) {
    return {};
  }
  return Error(
      Code::kUnsupported, Scope::kCall,
      fmt::format("WorkerSpec::child_server is '{}', and all Workers of this process share "
                  "the child server '{}' of the first",
                  spec.child_server, held.program));
}

Result<void> start_forked(Server& held, const WorkerSpec& spec) {
  STRATA_ASSIGN(held.server, os::ForkServer::start({&child_main, spec.inherit_fds}));
  held.inherit_fds = spec.inherit_fds;
  return {};
}

Result<void> start_executed(Server& held, const WorkerSpec& spec) {
  STRATA_ASSIGN(const ChildServerProgram program, find_child_server(spec.child_server));
  os::ExecServerOptions options;
  options.program = program.path;
  options.name = program.name;
  options.inherit_fds = spec.inherit_fds;
  options.allow_threads = spec.allow_threads;
  options.start_max = base::Duration::from_ms(spec.timeouts.child_ready_ms);
  STRATA_ASSIGN(held.server, os::ForkServer::start_exec(options, start_identity()));
  held.inherit_fds = spec.inherit_fds;
  held.program = program.name;
  return {};
}

}  // namespace

Result<StartDecision> decide_start(StartMethod asked, bool allow_threads) {
  Context& c = context();
  const std::lock_guard lock(c.mutex);
  refresh(c);
  return decide(c, asked, allow_threads);
}

Result<MadeServer> make_server(const WorkerSpec& spec) {
  // A program that was started to serve and does not would start servers without end.
  if (std::getenv(os::kExecVariable) != nullptr) {
    return Error(Code::kWrongState, Scope::kCall,
                 "this process was started as a child server, and its main does not begin with "
                 "strata::child_entry(argc, argv): begin it so, or name another program in "
                 "WorkerSpec::child_server");
  }
  Context& c = context();
  const std::lock_guard lock(c.mutex);
  refresh(c);
  STRATA_ASSIGN(StartDecision decision, decide(c, spec.start, spec.allow_threads));
  const bool by_fork = decision.method == StartMethod::kFork;
  Server& held = by_fork ? c.forked : c.executed;
  if (held.server) {
    STRATA_TRY(check_shared(held, spec));
  } else if (const Result<void> made =
                 by_fork ? start_forked(held, spec) : start_executed(held, spec);
             !made) {
    if (spec.start != StartMethod::kAuto) return made.error();
    return Error(made.error().code(), made.error().scope(),
                 fmt::format("{} (StartMethod::kAuto took {}: {})", made.error().message(),
                             by_fork ? "fork" : "exec", decision.reason));
  }
  MadeServer out;
  STRATA_ASSIGN(out.server, held.server->start_sub_server());
  out.report = {decision.method, std::move(decision.reason), out.server->pid(), held.program,
                out.server->same_program()};
  return out;
}

void forget_context() {
  // Not destroyed: its mutex was held while the server was forked, and its server is the parent's.
  static_cast<void>(holder().release());
  holder() = std::make_unique<Context>();
}

void end_context() {
  Context& c = context();
  const std::lock_guard lock(c.mutex);
  if (c.owner != ::getpid()) return;
  c.forked.server.reset();
  c.executed.server.reset();
}

}  // namespace strata::runtime
