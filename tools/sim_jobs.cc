#include "tools/sim_jobs.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "sim/simulation.h"

namespace strata::tools {
namespace {

struct Message {
  bool is_mark = false;
  uint64_t mark = 0;  // its place in mark_names()
  uint64_t hits = 0;
  sim::SeedRecord record;
};

void write_all(int fd, const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(fd, at, bytes);
    if (written <= 0) ::_exit(1);
    at += written;
    bytes -= static_cast<size_t>(written);
  }
}

// The code is not safe in a handler; the process is lost anyway, and nothing else knows the seed.
void on_crash(int signal) {
  const std::string text = sim::describe_current();
  std::fprintf(stderr, "signal %d\nverdict 5: the code under test ended the process\n%s\n", signal,
               text.c_str());
  ::_exit(static_cast<int>(sim::Verdict::kCrash));
}

// The life of one job.
void run_job(const SimJobs& jobs, uint32_t job, int fd) {
  const uint64_t share = jobs.counting / jobs.jobs + (job < jobs.counting % jobs.jobs);
  uint64_t counting = 0;
  uint64_t failures = 0;
  for (uint64_t seed = jobs.from + job; counting < share && failures < jobs.failures_max;
       seed += jobs.jobs) {
    const sim::Options options = sim::draw_options(seed, jobs.mode);
    const bool twice = jobs.twice_one_in > 0 && seed % jobs.twice_one_in == 0;
    const sim::SeedResult result =
        twice ? sim::run_seed_twice(options) : sim::run_seed(options, false);
    Message message;
    message.record = sim::record_of(result);
    counting += message.record.counts;
    if (result.verdict != sim::Verdict::kOk) {
      ++failures;
      std::fprintf(stderr, "%s\n", sim::describe(result).c_str());
    }
    write_all(fd, &message, sizeof message);
  }
  const std::vector<uint64_t> hits = sim::mark_hits();
  for (size_t i = 0; i < hits.size(); ++i) {
    Message message;
    message.is_mark = true;
    message.mark = i;
    message.hits = hits[i];
    write_all(fd, &message, sizeof message);
  }
}

struct Job {
  pid_t pid = -1;
  int fd = -1;
  std::string partial;
};

Job start_job(const SimJobs& jobs, uint32_t number) {
  int ends[2];
  if (::pipe(ends) != 0) {
    std::perror("strata: pipe");
    std::exit(1);
  }
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) {
    std::perror("strata: fork");
    std::exit(1);
  }
  if (pid == 0) {
    ::close(ends[0]);
    report_crashes();
    run_job(jobs, number, ends[1]);
    std::fflush(nullptr);
    ::_exit(0);
  }
  ::close(ends[1]);
  return {pid, ends[0], {}};
}

// Takes what has come; false at the end.
bool take(Job& job, SimOutcome* outcome, uint64_t* first_failing) {
  char bytes[64 * 1024];
  const ssize_t got = ::read(job.fd, bytes, sizeof bytes);
  if (got <= 0) return false;
  job.partial.append(bytes, static_cast<size_t>(got));
  size_t at = 0;
  for (; at + sizeof(Message) <= job.partial.size(); at += sizeof(Message)) {
    Message message;
    std::memcpy(static_cast<void*>(&message), job.partial.data() + at, sizeof message);
    if (message.is_mark) {
      std::vector<uint64_t> hits(message.mark + 1);
      hits[message.mark] = message.hits;
      outcome->report.add_marks(hits);
      continue;
    }
    outcome->report.add(message.record);
    if (message.record.verdict == 0 || message.record.seed >= *first_failing) continue;
    *first_failing = message.record.seed;
    outcome->verdict = static_cast<int>(message.record.verdict);
  }
  job.partial.erase(0, at);
  return true;
}

}  // namespace

void report_crashes() {
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) ::signal(signal, on_crash);
}

SimOutcome run_jobs(const SimJobs& jobs) {
  SimOutcome outcome;
  uint64_t first_failing = ~uint64_t{0};
  std::vector<Job> running;
  for (uint32_t i = 0; i < jobs.jobs; ++i) running.push_back(start_job(jobs, i));
  uint64_t told = 0;
  while (!running.empty()) {
    std::vector<pollfd> polled;
    for (const Job& job : running) polled.push_back({job.fd, POLLIN, 0});
    ::poll(polled.data(), polled.size(), -1);
    for (size_t i = polled.size(); i > 0; --i) {
      if (polled[i - 1].revents == 0) continue;
      Job& job = running[i - 1];
      if (take(job, &outcome, &first_failing)) continue;
      ::close(job.fd);
      int status = 0;
      ::waitpid(job.pid, &status, 0);
      if (outcome.verdict == 0 && status != 0) {
        outcome.verdict =
            WIFEXITED(status) ? WEXITSTATUS(status) : static_cast<int>(sim::Verdict::kCrash);
      }
      running.erase(running.begin() + static_cast<ptrdiff_t>(i - 1));
    }
    if (jobs.progress && outcome.report.seeds() >= told + 1000) {
      told = outcome.report.seeds();
      std::fprintf(stderr, "%llu seeds, %llu count, %llu fail\n",
                   static_cast<unsigned long long>(told),
                   static_cast<unsigned long long>(outcome.report.counting()),
                   static_cast<unsigned long long>(outcome.report.failing()));
    }
  }
  return outcome;
}

}  // namespace strata::tools
