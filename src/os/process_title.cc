#include "os/process_title.h"

#include <algorithm>
#include <cstring>

namespace strata::os {
namespace {

char* g_begin = nullptr;
size_t g_bytes = 0;  // with the last one's end

}  // namespace

void own_arguments(int argc, char** argv) {
  if (argc < 1) return;
  g_begin = argv[0];
  char* end = argv[0] + std::strlen(argv[0]) + 1;
  for (int i = 1; i < argc && argv[i] == end; ++i) end += std::strlen(argv[i]) + 1;
  g_bytes = static_cast<size_t>(end - g_begin);
}

void set_process_title(std::string_view title) {
  // The last byte stays zero: else the kernel takes the environment for a part of the title.
  if (g_bytes < 2) return;
  const size_t length = std::min(title.size(), g_bytes - 1);
  std::memcpy(g_begin, title.data(), length);
  std::memset(g_begin + length, 0, g_bytes - length);
}

}  // namespace strata::os
