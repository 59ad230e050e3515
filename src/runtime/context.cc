#include "runtime/context.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>

#include "base/result.h"
#include "os/process.h"
#include "runtime/child_main.h"

namespace strata::runtime {
namespace {

struct Context {
  std::mutex mutex;
  pid_t owner = 0;  // a forked copy of this process makes its own
  std::vector<int> inherit_fds;
  std::unique_ptr<os::ForkServer> server;
};

std::unique_ptr<Context>& holder() {
  static std::unique_ptr<Context> instance = std::make_unique<Context>();
  return instance;
}
Context& context() {
  return *holder();
}

Result<void> start(Context& c, bool allow_threads, const std::vector<int>& inherit_fds) {
  if (!allow_threads) {
    STRATA_ASSIGN(const os::ForkHazards hazards, os::fork_hazards());
    if (hazards.any()) {
      return Error(Code::kWrongState, Scope::kCall,
                   fmt::format("StartMethod::kFork forks this process, which is not safe with: {}. "
                               "Call init() before they start (a library may start threads before "
                               "main: let only the children load it, as a NativeImport), or set "
                               "WorkerSpec::allow_threads",
                               hazards.to_string()));
    }
  }
  STRATA_ASSIGN(c.server, os::ForkServer::start({&child_main, inherit_fds}));
  c.owner = ::getpid();
  c.inherit_fds = inherit_fds;
  return {};
}

// It has no children of its own, so what it tells is its end at most: without this look a server
// that was killed would seem alive for ever.
void take_events(os::ForkServer& server) {
  while (server.alive()) {
    const Result<std::optional<os::ServerEvent>> event = server.next_event();
    if (!event || !*event) return;
  }
}

}  // namespace

Result<std::unique_ptr<os::ForkServer>> make_fork_server(bool allow_threads,
                                                         const std::vector<int>& inherit_fds) {
  Context& c = context();
  const std::lock_guard lock(c.mutex);
  if (c.server && c.owner == ::getpid()) take_events(*c.server);
  if (c.server && (c.owner != ::getpid() || !c.server->alive())) {
    // The parent's, or lost. A forked copy must not talk to its parent's server.
    if (c.owner != ::getpid()) static_cast<void>(c.server.release());
    c.server.reset();
  }
  if (!c.server) {
    STRATA_TRY(start(c, allow_threads, inherit_fds));
  } else {
    for (const int fd : inherit_fds) {
      if (std::find(c.inherit_fds.begin(), c.inherit_fds.end(), fd) != c.inherit_fds.end())
        continue;
      return Error(Code::kUnsupported, Scope::kCall,
                   fmt::format("descriptor {} of WorkerSpec::inherit_fds is not among those of the "
                               "first Worker of this process, whose fork server all share",
                               fd));
    }
  }
  return c.server->start_sub_server();
}

void forget_context() {
  // Not destroyed: its mutex was held while the server was forked, and its server is the parent's.
  static_cast<void>(holder().release());
  holder() = std::make_unique<Context>();
}

void end_context() {
  Context& c = context();
  const std::lock_guard lock(c.mutex);
  if (c.owner == ::getpid()) c.server.reset();
}

}  // namespace strata::runtime
