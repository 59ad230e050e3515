// Clients of a daemon, by calls that block until they have what they wait for, or a deadline that
// only ends a test that has failed already. One thread.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/lane_role.h"
#include "tests/daemon/daemon_rig.h"
#include "wire/frame.h"
#include "wire/manifest.h"

namespace strata::runtime {

// One connection, by blocking calls.
class TestClient {
 public:
  TestClient(const transport::Address& to, std::vector<std::byte> preface,
             const transport::TlsContext* tls = nullptr)
      : channel_(transport::connect(to, {.peer = "", .preface = std::move(preface), .tls = tls})
                     .value()) {}

  env::ByteChannel& channel() { return *channel_; }
  // Until it is open, or an Error.
  Result<void> open() {
    for (;;) {
      STRATA_ASSIGN(const env::ByteChannel::Phase phase, channel_->advance());
      if (phase >= env::ByteChannel::Phase::kOpen) return {};
      STRATA_TRY(wait());
    }
  }
  Result<void> send(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      STRATA_ASSIGN(const size_t n, channel_->write(bytes));
      bytes = bytes.subspan(n);
      if (n == 0) STRATA_TRY(wait());
    }
    return {};
  }
  // The next bytes, at least one.
  Result<std::string> receive() {
    std::array<char, 4096> buffer;
    for (;;) {
      STRATA_ASSIGN(const size_t n, channel_->read(std::as_writable_bytes(std::span(buffer))));
      if (n > 0) return std::string(buffer.data(), n);
      STRATA_TRY(wait());
    }
  }
  template <class T>
  Result<T> receive_frame(wire::FrameType type) {
    for (;;) {
      STRATA_ASSIGN(std::optional<wire::Frame> frame, splitter_.next());
      if (frame) {
        if (frame->header.type != type) {
          return Error(Code::kCorrupt, Scope::kSession, "another frame than the test waits for");
        }
        return wire::decode<T>(frame->payload);
      }
      STRATA_ASSIGN(const size_t n, channel_->read(splitter_.space()));
      splitter_.came(n);
      if (n == 0) STRATA_TRY(wait());
    }
  }
  Result<wire::BootstrapReply> receive_reply() {
    return receive_frame<wire::BootstrapReply>(wire::FrameType::kBootstrapReply);
  }
  // The Error that ends it; what comes before is thrown away.
  Error receive_end() {
    for (;;) {
      Result<std::string> got = receive();
      if (!got) return got.error();
    }
  }

 private:
  Result<void> wait() {
    pollfd polled{.fd = channel_->descriptor(), .events = 0, .revents = 0};
    polled.events = static_cast<short>((channel_->wants_read() ? POLLIN : 0) |
                                       (channel_->wants_write() ? POLLOUT : 0));
    if (::poll(&polled, 1, static_cast<int>(kTestDeadline.ns / 1'000'000)) > 0) return {};
    return Error(Code::kDeadline, Scope::kCall, "the daemon does not answer");
  }

  std::unique_ptr<env::ByteChannel> channel_;
  wire::Splitter splitter_;
};

inline std::vector<std::byte> preface_of(const wire::Preamble& preamble) {
  const auto bytes = wire::encode_preamble(preamble);
  return {bytes.begin(), bytes.end()};
}

inline wire::Manifest test_manifest(uint64_t session_id) {
  wire::Manifest manifest;
  manifest.session_id = session_id;
  manifest.parent_path = "L4/0";
  manifest.worker_id = 3;
  return manifest;
}

inline std::vector<std::byte> bootstrap_frame(const wire::Bootstrap& bootstrap) {
  std::vector<std::byte> out;
  const wire::FrameHeader header{.type = wire::FrameType::kBootstrap, .session_id = 0};
  if (!wire::append_frame(header, bootstrap, &out)) std::abort();
  return out;
}
inline std::vector<std::byte> bootstrap_of(const wire::Manifest& manifest) {
  wire::Bootstrap bootstrap;
  bootstrap.product = "strata test";
  bootstrap.manifest = wire::encode_manifest(manifest).value();
  return bootstrap_frame(bootstrap);
}

// A parent: knows the daemon's key, or that it has none.
class TestParent {
 public:
  TestParent(const DaemonProcess& daemon, const transport::KeyRing* ring)
      : address_(daemon.address()) {
    if (ring == nullptr) return;
    for (size_t lane = 1; lane <= 4; ++lane) {
      tls_[lane] = transport::TlsContext::create(*ring, lane_role(static_cast<wire::Lane>(lane)),
                                                 transport::TlsSide::kClient)
                       .value();
    }
  }
  TestClient bootstrap() const { return TestClient(address_, preface_of({}), tls_[1].get()); }
  TestClient lane(wire::Lane lane, uint64_t session_id, const wire::Token& token) const {
    return TestClient(address_, preface_of({lane, session_id, token}),
                      tls_[static_cast<size_t>(lane)].get());
  }
  std::vector<TestClient> lanes(uint64_t session_id, const wire::BootstrapReply& reply) const {
    std::vector<TestClient> out;
    out.push_back(lane(wire::Lane::kCommand, session_id, reply.command));
    out.push_back(lane(wire::Lane::kData, session_id, reply.data));
    out.push_back(lane(wire::Lane::kHealth, session_id, reply.health));
    return out;
  }

 private:
  transport::Address address_;
  std::array<std::unique_ptr<transport::TlsContext>, 5> tls_;
};

}  // namespace strata::runtime
