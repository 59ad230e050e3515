// What the tests of the daemon share: options, whether a process lives, and the fixture that runs
// each test in clear and with a key. One thread.
#pragma once

#include <gtest/gtest.h>

#include "tests/daemon/test_parent.h"

namespace strata::runtime {

inline DaemonOptions options_with(const char* runner, bool keyed = false) {
  DaemonOptions options;
  options.arguments = {"daemon_test", "runner", "--link=3", runner};
  if (keyed) options.keys = test_ring();
  return options;
}

inline bool alive(uint32_t pid) {
  return ::kill(static_cast<pid_t>(pid), 0) == 0;
}

// In clear, and with a key.
class DaemonFixture : public testing::TestWithParam<bool> {
 protected:
  DaemonOptions options(const char* runner) const { return options_with(runner, GetParam()); }
  const transport::KeyRing* ring() const { return GetParam() ? &ring_ : nullptr; }
  // The first reply to that manifest.
  static wire::BootstrapReply ask(TestClient& client, const wire::Manifest& manifest) {
    Result<void> sent = client.send(bootstrap_of(manifest));
    EXPECT_TRUE(sent) << sent.error().to_string();
    Result<wire::BootstrapReply> reply = client.receive_reply();
    EXPECT_TRUE(reply) << reply.error().to_string();
    if (reply) return *reply;
    wire::BootstrapReply none;
    none.code = 99;
    return none;
  }
  static std::string text_of(Result<std::string> got) { return got ? *got : "none"; }

  transport::KeyRing ring_ = test_ring();
};

}  // namespace strata::runtime
