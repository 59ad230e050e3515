#include "mailbox/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace strata::mailbox {
namespace {

constexpr std::string_view kCompiler =
#ifdef __clang__
    "clang " __VERSION__;
#else
    "gcc " __VERSION__;
#endif

constexpr uint64_t kFnvStart = 0xcbf29ce484222325ull;
constexpr uint64_t kFnvPrime = 0x100000001b3ull;

constexpr uint64_t mix(uint64_t hash, std::string_view text) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * kFnvPrime;
  return (hash ^ 0xff) * kFnvPrime;
}
constexpr uint64_t mix(uint64_t hash, uint64_t value) {
  for (int i = 0; i < 8; ++i) hash = (hash ^ (value >> (8 * i) & 0xff)) * kFnvPrime;
  return hash;
}

constexpr uint64_t compute_layout_id() {
  uint64_t hash = mix(mix(kFnvStart, STRATA_VERSION), kCompiler);
  for (const uint64_t value : {
           uint64_t{kLayoutVersion},
           uint64_t{kLineBytes},
           uint64_t{kRingEntries},
           uint64_t{kArgsRingBytes},
           uint64_t{kResultsRingBytes},
           uint64_t{kControlBytesMax},
           uint64_t{kResultBytesMax},
           uint64_t{kTextBytesMax},
           uint64_t{kBytesAlign},
           uint64_t{sizeof(TaskEntry)},
           uint64_t{sizeof(CompletionEntry)},
           uint64_t{offsetof(TaskEntry, args_begin)},
           uint64_t{offsetof(TaskEntry, callable)},
           uint64_t{offsetof(TaskEntry, started_ns)},
           uint64_t{offsetof(CompletionEntry, bytes_begin)},
           uint64_t{offsetof(CompletionEntry, outcome)},
           uint64_t{offsetof(RegionLayout, tasks)},
           uint64_t{offsetof(RegionLayout, completions)},
           uint64_t{offsetof(RegionLayout, args)},
           uint64_t{offsetof(RegionLayout, results)},
           uint64_t{sizeof(RegionLayout)},
           uint64_t{sizeof(HubLayout)},
       }) {
    hash = mix(hash, value);
  }
  return hash;
}

constexpr uint64_t kLayoutId = compute_layout_id();

// Bytes of another process: bounded, and only what prints.
template <size_t N>
std::string printable(const char (&text)[N]) {
  std::string out;
  for (size_t i = 0; i < N && text[i] != '\0'; ++i) {
    out += text[i] >= 0x20 && text[i] < 0x7f ? text[i] : '?';
  }
  return out;
}

template <size_t N>
void put_text(char (&out)[N], std::string_view text) {
  std::memcpy(out, text.data(), std::min(text.size(), N - 1));
}

Error mismatch(std::string text) {
  return Error(Code::kAbiMismatch, Scope::kProcess, std::move(text));
}

}  // namespace

uint64_t layout_id() {
  return kLayoutId;
}
std::string_view compiler_name() {
  return kCompiler;
}

HeaderLine make_header(uint64_t magic, uint64_t total_bytes) {
  HeaderLine header{};
  header.magic = magic;
  header.layout_id = kLayoutId;
  header.total_bytes = total_bytes;
  header.layout_version = kLayoutVersion;
  put_text(header.version, STRATA_VERSION);
  put_text(header.compiler, kCompiler);
  return header;
}

Result<void> check_header(const HeaderLine& found, std::string_view what, uint64_t magic,
                          uint64_t total_bytes, size_t mapped_bytes) {
  if (found.magic != magic) {
    return mismatch(
        fmt::format("the mapping is not a Strata {}: its first word is {:#018x}, not {:#018x}",
                    what, found.magic, magic));
  }
  if (found.layout_version != kLayoutVersion) {
    return mismatch(fmt::format(
        "the {} has layout version {} (Strata {}), this process speaks {} (Strata {}): run parent "
        "and child from "
        "one installation",
        what, found.layout_version, printable(found.version), kLayoutVersion, STRATA_VERSION));
  }
  if (found.layout_id != kLayoutId) {
    return mismatch(
        fmt::format("the {} was laid out by Strata {} ({}), layout id {:#018x}; this process is "
                    "Strata {} ({}), layout id "
                    "{:#018x}: run parent and child from one installation",
                    what, printable(found.version), printable(found.compiler), found.layout_id,
                    STRATA_VERSION, kCompiler, kLayoutId));
  }
  if (found.total_bytes != total_bytes || mapped_bytes < total_bytes) {
    return mismatch(fmt::format("the {} says that it has {} bytes, {} are mapped, {} are needed",
                                what, found.total_bytes, mapped_bytes, total_bytes));
  }
  return {};
}

}  // namespace strata::mailbox
