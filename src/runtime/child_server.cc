#include "runtime/child_server.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "mailbox/layout.h"
#include "os/process.h"
#include "runtime/child_spec.h"
#include "strata/version.h"

namespace strata::runtime {
namespace {

constexpr const char* kServerVariable = "STRATA_CHILD_SERVER";

std::atomic<bool> g_noted{false};
std::atomic<bool> g_served{false};

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

std::string program_path() {
  char path[PATH_MAX];
  const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path);
  return n > 0 ? std::string(path, static_cast<size_t>(n)) : std::string();
}

// In words why the file cannot be run; empty where it can.
std::string why_not(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return std::strerror(errno);
  if (!S_ISREG(found.st_mode)) return "not a file";
  return ::access(path.c_str(), X_OK) == 0 ? std::string() : std::strerror(errno);
}

Error not_found(std::string text) {
  return Error(Code::kNotFound, Scope::kCall, std::move(text));
}

std::vector<std::string> places_beside() {
  std::vector<std::string> out;
  const auto add = [&out](std::string path) {
    if (std::find(out.begin(), out.end(), path) == out.end()) out.push_back(std::move(path));
  };
  if (const std::string folder = folder_of(program_path()); !folder.empty()) {
    add(folder + "/strata");
  }
  const std::string folder = folder_of(os::mapped_path(reinterpret_cast<const void*>(&not_found)));
  if (folder.empty()) return out;
  add(folder + "/strata");
  // Of an installed library: lib, or lib/<machine>.
  add(folder_of(folder) + "/bin/strata");
  add(folder_of(folder_of(folder)) + "/bin/strata");
  return out;
}

}  // namespace

void note_child_entry() {
  g_noted.store(true, std::memory_order_relaxed);
}
bool child_entry_noted() {
  return g_noted.load(std::memory_order_relaxed);
}

void note_served() {
  g_served.store(true, std::memory_order_relaxed);
}
std::string served_program() {
  return g_served.load(std::memory_order_relaxed) ? program_path() : std::string();
}

os::ForkIdentity start_identity() {
  // FNV-1a goes on over the sizes of what is encoded field by field: a field more or less shows.
  uint64_t id = mailbox::layout_id();
  for (const uint64_t size : {sizeof(ChildSpec), sizeof(WorkerSpec), sizeof(Limits),
                              sizeof(Timeouts), sizeof(ChipSpec)}) {
    id = (id ^ size) * 0x100000001b3ull;
  }
  return {id, STRATA_VERSION, std::string(mailbox::compiler_name())};
}

Result<ChildServerProgram> find_child_server(const std::string& option) {
  if (!option.empty()) {
    const std::string why = why_not(option);
    if (why.empty()) return ChildServerProgram{option, option};
    return not_found(fmt::format("WorkerSpec::child_server is '{}': {}", option, why));
  }
  if (child_entry_noted()) return ChildServerProgram{"/proc/self/exe", program_path()};
  const char* const variable = std::getenv(kServerVariable);
  if (variable != nullptr && *variable != '\0') {
    const std::string why = why_not(variable);
    if (why.empty()) return ChildServerProgram{variable, variable};
    return not_found(fmt::format("{} is '{}': {}", kServerVariable, variable, why));
  }
  std::string looked;
  for (const std::string& place : places_beside()) {
    const std::string why = why_not(place);
    if (why.empty()) return ChildServerProgram{place, place};
    looked += fmt::format(", {} ({})", place, why);
  }
  return not_found(fmt::format(
      "no child server was found: WorkerSpec::child_server is empty, the program's main does not "
      "begin with strata::child_entry, {} is not set{}. Begin main with strata::child_entry(argc, "
      "argv), or name the installed program `strata` by one of the others",
      kServerVariable, looked));
}

}  // namespace strata::runtime
