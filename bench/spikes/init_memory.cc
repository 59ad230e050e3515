// Question: what does the fork of init() cost a program that has much memory by then, and what
// helps: an earlier init(), MADV_DONTFORK, huge pages?
//
// Each case is a process of its own. It touches that many MiB, calls init() with two helpers, and
// then writes to every page again, as a program that goes on computing does. Page tables are VmPTE
// of /proc/PID/status, summed over the program, its fork servers and its helpers. What writing
// again costs in memory is what the sum of their Pss grows by.
//
// Build: g++-12 -std=c++20 -O2 -Iinclude -o init_memory bench/spikes/init_memory.cc -Lbuild/release
//        -lstrata -Wl,-rpath,build/release
// Run:   ./init_memory [MiB ...], default 0 1024 4096                                       (30 s)
#include <dirent.h>
#include <strata/strata.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

namespace {

enum Case { kPlain, kInitFirst, kDontFork, kHugePages, kCases };
constexpr const char* kNames[kCases] = {"touched before init", "init first", "MADV_DONTFORK",
                                        "MADV_HUGEPAGE"};
constexpr int kRounds = 3;
constexpr size_t kPage = 4096;

struct Figures {
  double init_ms, page_tables_mib, write_again_ms, more_memory_mib, close_ms;
};

double now_ms() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return static_cast<double>(ts.tv_sec) * 1e3 + static_cast<double>(ts.tv_nsec) / 1e6;
}

// The number behind `name` in a file of /proc, in KiB.
long field_kib(const std::string& path, const char* name) {
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return 0;
  char line[256];
  long value = 0;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::strncmp(line, name, std::strlen(name)) == 0)
      value = std::atol(line + std::strlen(name));
  }
  std::fclose(file);
  return value;
}

// `field` of a file of /proc, summed over this process and all below it.
long sum_kib(pid_t of, const char* file, const char* field) {
  long sum = field_kib("/proc/" + std::to_string(of) + file, field);
  DIR* folder = opendir("/proc");
  while (const dirent* entry = readdir(folder)) {
    const pid_t pid = std::atoi(entry->d_name);
    if (pid <= 0 || pid == of) continue;
    if (field_kib("/proc/" + std::to_string(pid) + "/status", "PPid:") == of) {
      sum += sum_kib(pid, file, field);
    }
  }
  closedir(folder);
  return sum;
}

void touch(char* memory, size_t bytes, char value) {
  for (size_t i = 0; i < bytes; i += kPage) memory[i] = value;
}

Figures measure(Case which, size_t bytes) {
  char* memory = nullptr;
  const auto fill = [&] {
    if (bytes == 0) return;
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) std::abort();
    memory = static_cast<char*>(at);
    madvise(at, bytes, which == kHugePages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    if (which == kDontFork) madvise(at, bytes, MADV_DONTFORK);
    touch(memory, bytes, 1);
  };
  strata::WorkerSpec spec;
  spec.sub_workers = 2;
  auto worker = strata::Worker::create(spec).value();
  if (which != kInitFirst) fill();
  Figures out{};
  double start = now_ms();
  worker->init().value();
  out.init_ms = now_ms() - start;
  if (which == kInitFirst) fill();
  out.page_tables_mib = static_cast<double>(sum_kib(getpid(), "/status", "VmPTE:")) / 1024;
  const long before = sum_kib(getpid(), "/smaps_rollup", "Pss:");
  start = now_ms();
  touch(memory, bytes, 2);
  out.write_again_ms = now_ms() - start;
  const long after = sum_kib(getpid(), "/smaps_rollup", "Pss:");
  out.more_memory_mib = static_cast<double>(after - before) / 1024;
  start = now_ms();
  worker->close().value();
  out.close_ms = now_ms() - start;
  return out;
}

Figures in_a_process(Case which, size_t bytes) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  const pid_t pid = fork();
  if (pid == 0) {
    const Figures figures = measure(which, bytes);
    if (write(ends[1], &figures, sizeof figures) != sizeof figures) std::abort();
    std::exit(0);
  }
  Figures figures{};
  if (read(ends[0], &figures, sizeof figures) != sizeof figures) std::abort();
  close(ends[0]);
  close(ends[1]);
  waitpid(pid, nullptr, 0);
  return figures;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void row(Case which, size_t mib) {
  std::vector<Figures> rounds;
  for (int i = 0; i < kRounds; ++i) rounds.push_back(in_a_process(which, mib << 20));
  const auto of = [&](double Figures::*field) {
    std::vector<double> values;
    for (const Figures& round : rounds) values.push_back(round.*field);
    return median(values);
  };
  std::printf("%6zu  %-20s %9.1f %16.1f %15.0f %16.0f %9.1f\n", mib, kNames[which],
              of(&Figures::init_ms), of(&Figures::page_tables_mib), of(&Figures::write_again_ms),
              of(&Figures::more_memory_mib), of(&Figures::close_ms));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<size_t> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::strtoul(argv[i], nullptr, 10));
  if (sizes.empty()) sizes = {0, 1024, 4096};
  std::printf("%6s  %-20s %9s %16s %15s %16s %9s\n", "MiB", "case", "init ms", "page tables MiB",
              "write again ms", "more memory MiB", "close ms");
  std::fflush(stdout);
  for (const size_t mib : sizes) {
    for (int which = kPlain; which < kCases; ++which) row(static_cast<Case>(which), mib);
  }
}
