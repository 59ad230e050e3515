// The canary: a target with a bug, which must be found. It proves that what is run here can find
// one: it reads a byte behind the input where a SHUTDOWN's deadline is one of a hundred numbers.
#include "tests/fuzz/oracle.h"
#include "wire/controls.h"

namespace strata::fuzz {
namespace {

void test_canary(std::span<const std::byte> input) {
  const Result<wire::Shutdown> got = wire::decode<wire::Shutdown>(input);
  if (!got.ok() || got->deadline_ms < 7'000 || got->deadline_ms >= 7'100) return;
  volatile std::byte behind = *(input.data() + input.size());
  (void)behind;
}

std::vector<Bytes> canary_seeds() {
  return {encoded(wire::Shutdown{5'000})};
}

}  // namespace

STRATA_FUZZ_TARGET(canary, test_canary, mutate_payload<wire::Shutdown>, canary_seeds);

}  // namespace strata::fuzz
