// The least that an empty TASK over loopback costs: as many bytes as one and its COMPLETION have,
// there and back, over a TCP connection to another process, in clear and by TLS 1.3 with the suite
// of Strata's key mode: both sides polling; both blocking in the read, each on a core of its own as
// on two hosts; and that after pauses, wherever the scheduler has them. And a dlopen.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "bench/cores.h"
#include "bench/figure.h"

namespace {

using namespace strata::bench;

constexpr size_t kRequestBytes = 154, kReplyBytes = 144;
constexpr double kLimitMs = 4'000;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "limit_remote: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

// A connection that polls or sleeps, in clear or not.
class Line {
 public:
  Line(int fd, SSL* ssl, bool polls) : fd_(fd), ssl_(ssl), polls_(polls) {}
  void send(size_t n) {
    const bool ok = ssl_ != nullptr ? SSL_write(ssl_, bytes_, static_cast<int>(n)) == int(n)
                                    : ::send(fd_, bytes_, n, MSG_NOSIGNAL) == ssize_t(n);
    if (!ok) fail("send");
  }
  // False: the other side has closed.
  bool receive(size_t n) {
    for (size_t got = 0; got < n;) {
      const ssize_t more =
          ssl_ != nullptr ? take_tls(n - got) : ::recv(fd_, bytes_, n - got, flags());
      if (more > 0) {
        got += static_cast<size_t>(more);
      } else if (more == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) {
        return false;
      }
    }
    return true;
  }

 private:
  int flags() const { return polls_ ? MSG_DONTWAIT : 0; }
  ssize_t take_tls(size_t n) {
    char first;
    // A look costs one call, as without TLS; what has come is then there to be decrypted.
    if (polls_ && SSL_pending(ssl_) == 0 && ::recv(fd_, &first, 1, MSG_PEEK | MSG_DONTWAIT) < 0) {
      errno = EAGAIN;
      return -1;
    }
    const int got = SSL_read(ssl_, bytes_, static_cast<int>(n));
    return got > 0 ? got : 0;
  }

  int fd_;
  SSL* ssl_;
  bool polls_;
  char bytes_[512] = {};
};

SSL_CTX* server_context() {
  SSL_CTX* const context = SSL_CTX_new(TLS_server_method());
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  X509* const certificate = X509_new();
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_sign(certificate, key, EVP_sha256());
  if (SSL_CTX_use_certificate(context, certificate) != 1 ||
      SSL_CTX_use_PrivateKey(context, key) != 1) {
    fail("certificate");
  }
  return context;
}

SSL* secure(int fd, bool server) {
  SSL_CTX* const context = server ? server_context() : SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256");
  SSL_CTX_set_num_tickets(context, 0);
  SSL* const ssl = SSL_new(context);
  SSL_set_fd(ssl, fd);
  if ((server ? SSL_accept(ssl) : SSL_connect(ssl)) != 1) fail("handshake");
  return ssl;
}

void no_delay(int fd) {
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

void serve(int listener, bool tls, bool polls) {
  const int fd = accept(listener, nullptr, nullptr);
  if (fd < 0) fail("accept");
  no_delay(fd);
  Line line(fd, tls ? secure(fd, true) : nullptr, polls);
  while (line.receive(kRequestBytes)) line.send(kReplyBytes);
}

enum class Waits { kPolling, kBlocking, kRested };

void ping_pong(const std::string& name, bool tls, Waits waits) {
  const bool polls = waits == Waits::kPolling;
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(listener, 1) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    fail("listen");
  }
  const pid_t server = fork();
  if (server < 0) fail("fork");
  if (server == 0) {
    if (waits == Waits::kBlocking) stay_on_core(1);
    serve(listener, tls, polls);
    _exit(0);
  }
  const cpu_set_t before = usable_cores();
  if (waits == Waits::kBlocking) stay_on_core(0);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), size) != 0) fail("connect");
  no_delay(fd);
  Line line(fd, tls ? secure(fd, false) : nullptr, polls);
  const auto once = [&] {
    if (waits == Waits::kRested) sleep_us(1'000);
    const double begun = now_us();
    line.send(kRequestBytes);
    if (!line.receive(kReplyBytes)) fail("receive");
    return now_us() - begun;
  };
  const int count = waits == Waits::kRested ? scaled(1'000, 300) : scaled(20'000, 4'000);
  figure(name, median_of(count, kLimitMs, once), "us");
  stay_on(before);
  close(fd);
  close(listener);
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2) {  // a library that nobody has loaded yet
    const double begun = now_us();
    if (dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) == nullptr) fail(dlerror());
    figure("limit.dlopen", now_us() - begun, "us");
    return 0;
  }
  for (const bool tls : {false, true}) {
    const std::string name = tls ? "limit.tls." : "limit.tcp.";
    ping_pong(name + "awake", tls, Waits::kPolling);
    ping_pong(name + "asleep", tls, Waits::kBlocking);
    ping_pong(name + "rested", tls, Waits::kRested);
  }
  return 0;
}
