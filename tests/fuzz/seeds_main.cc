// fuzz_seeds TARGET FOLDER: writes the inputs that a target begins with. Each is the bytes of a
// valid message, by the same description that its decoder follows.
#include <cstdio>
#include <string>
#include <string_view>

#include "tests/fuzz/target.h"

namespace strata::fuzz {

// targets.inc: X(name) for each target.
#define X(name) std::vector<Bytes> seeds_of_##name();
#include "targets.inc"
#undef X

namespace {

std::vector<Bytes> seeds_of(std::string_view target) {
#define X(name) \
  if (target == #name) return seeds_of_##name();
#include "targets.inc"
#undef X
  return {};
}

int write_seeds(std::string_view target, const std::string& folder) {
  int number = 0;
  for (const Bytes& seed : seeds_of(target)) {
    const std::string path = folder + "/seed" + std::to_string(number++);
    std::FILE* const file = std::fopen(path.c_str(), "wb");
    const bool written =
        file != nullptr && std::fwrite(seed.data(), 1, seed.size(), file) == seed.size();
    if (!written || std::fclose(file) != 0) {
      std::perror(path.c_str());
      return 1;
    }
  }
  return number > 0 ? 0 : 1;
}

}  // namespace
}  // namespace strata::fuzz

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  return strata::fuzz::write_seeds(argv[1], argv[2]);
}
