// How much of a processor a daemon spends on a peer that it refuses. Prints microseconds of the
// daemon's own time, user and system, for each kind of refusal; the clients' time is not in them.
//   refused_peer_cost [CONNECTIONS]
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>

#include "tests/daemon/test_parent.h"

namespace strata::runtime {
namespace {

double cpu_us(const rusage& usage) {
  const auto us = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_usec);
  };
  return us(usage.ru_utime) + us(usage.ru_stime);
}

// `refused` makes one connection and returns when it is over.
template <class Refused>
void measure(const char* what, bool keyed, int connections, const Refused& refused) {
  rusage before{}, after{};
  ::getrusage(RUSAGE_CHILDREN, &before);
  {
    DaemonOptions options;
    if (keyed) options.keys = test_ring();
    options.limits.refusals_per_second = 20;
    DaemonProcess daemon(std::move(options));
    for (int i = 0; i < connections; ++i) refused(daemon);
  }
  ::getrusage(RUSAGE_CHILDREN, &after);
  std::printf("%-44s %8.1f us\n", what, (cpu_us(after) - cpu_us(before)) / connections);
}

void run(int connections) {
  const auto end = [](TestClient client) { (void)client.receive_end(); };
  const auto plain = [&](std::vector<std::byte> preface) {
    return
        [preface, end](const DaemonProcess& daemon) { end(TestClient(daemon.address(), preface)); };
  };
  const auto keyed = [&](std::string_view role, const transport::KeyRing& ring) {
    auto tls = std::shared_ptr<transport::TlsContext>(
        transport::TlsContext::create(ring, role, transport::TlsSide::kClient).value());
    return [tls](const DaemonProcess& daemon) {
      TestClient client(daemon.address(), preface_of({}), tls.get());
      (void)client.receive_end();
    };
  };
  std::vector<std::byte> garbage = preface_of({});
  garbage[0] = std::byte{0};
  std::vector<std::byte> bad_frame = preface_of({});
  bad_frame.resize(bad_frame.size() + 48, std::byte{0});
  measure("plain: garbage for a preamble", false, connections, plain(garbage));
  measure("plain: a token of no session", false, connections,
          plain(preface_of({wire::Lane::kCommand, 1, {}})));
  measure("plain: garbage for BOOTSTRAP, told in words", false, connections, plain(bad_frame));
  measure("key mode: plain text, told in words", true, connections, plain(bad_frame));
  measure("key mode: a key of another id", true, connections, keyed("bootstrap", test_ring(1)));
  measure("key mode: the right key, another role", true, connections, keyed("data", test_ring()));
  measure("key mode: the right key, then silence", true, connections,
          [tls = std::shared_ptr<transport::TlsContext>(
               transport::TlsContext::create(test_ring(), "bootstrap", transport::TlsSide::kClient)
                   .value())](const DaemonProcess& daemon) {
            TestClient client(daemon.address(), preface_of({}), tls.get());
            (void)client.open();
          });
}

}  // namespace
}  // namespace strata::runtime

int main(int argc, char** argv) {
  const int connections = argc > 1 ? std::atoi(argv[1]) : 2000;
  if (connections < 1) return 2;
  strata::runtime::run(connections);
  return 0;
}
