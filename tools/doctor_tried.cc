// Checks that try the thing itself.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "engine/core_types.h"
#include "os/system_error.h"
#include "strata/worker_spec.h"
#include "tools/doctor_checks.h"
#include "tools/text.h"

namespace strata::tools {
namespace {

// Round trips beyond this are worth a word: ten times those of an idle machine.
constexpr double kSlowWakeupUs = 300;
constexpr double kNoisyShare = 0.05;
constexpr double kLongGapUs = 10'000;
constexpr double kSlowClockNs = 200;

Finding problem(const Error& error, std::string meaning, std::string advice) {
  return {.level = Level::kProblem,
          .found = error.message(),
          .meaning = std::move(meaning),
          .advice = std::move(advice)};
}

// What a library that a program links does to a fork.
struct KnownLibrary {
  std::string_view prefix;
  bool at_load;  // it starts threads when it is loaded; else at its first use
  std::string_view what;
};
constexpr KnownLibrary kKnownLibraries[] = {
    {"libopenblas", true, "starts its threads when it is loaded"},
    {"libgoto2", true, "starts its threads when it is loaded"},
    {"libmkl_", false, "starts threads at its first parallel call"},
    {"libiomp5.", false, "starts threads at its first parallel region"},
    {"libgomp.", false, "starts threads at its first parallel region"},
    {"libomp.", false, "starts threads at its first parallel region"},
    {"libblis", false, "starts threads at its first parallel call"},
    {"libtbb.", false, "starts threads at its first parallel call"},
    {"libcuda.", false, "starts threads when it is initialised, and no fork survives that"},
    {"libcudart.", false, "starts threads at its first call, and no fork survives that"},
    {"libucp.", false, "a fork is refused once it is initialised"},
    {"libmpi", false, "may start threads in MPI_Init"},
};

const KnownLibrary* known(const Library& library) {
  for (const KnownLibrary& one : kKnownLibraries) {
    if (library.name.starts_with(one.prefix)) return &one;
  }
  return nullptr;
}

// "libblas.so.3, needed by app".
std::string describe(const Library& library) {
  return fmt::format("{} (needed by {})", library.name, library.needed_by);
}

// The loader's and the sanitizers' own parts end a process that loads them late.
bool can_be_loaded_late(const Library& library) {
  for (const std::string_view name :
       {"ld-linux", "linux-vdso", "libc.so", "libasan", "libtsan", "liblsan", "libubsan"}) {
    if (library.name.starts_with(name)) return false;
  }
  return !library.path.empty();
}

struct ThreadStarters {
  std::string measured;  // seen to start threads here
  std::string python;    // an interpreter
  std::string expected;  // known to at load, and not seen to
  std::string later;     // known to at first use
  std::string missing;   // not found
};

void append(std::string* list, std::string text) {
  *list += (list->empty() ? "" : "; ") + std::move(text);
}

ThreadStarters look_at(const ProgramLibraries& program, const Probes& probes, std::string* unsure) {
  std::vector<Library> loaded;
  for (const Library& library : program.libraries) {
    if (can_be_loaded_late(library)) loaded.push_back(library);
  }
  // Those that others need come first, so that a thread is counted where it is started.
  std::reverse(loaded.begin(), loaded.end());
  std::vector<std::string> paths;
  paths.reserve(loaded.size());
  for (const Library& library : loaded) paths.push_back(library.path);
  const Result<std::vector<int>> threads = probes.threads_of(paths);
  if (!threads.ok()) *unsure = threads.error().message();

  ThreadStarters out;
  for (const Library& library : program.libraries) {
    if (library.path.empty()) append(&out.missing, describe(library));
    if (os::is_python_path(library.name)) append(&out.python, describe(library));
    const KnownLibrary* const one = known(library);
    if (one == nullptr) continue;
    std::string text = fmt::format("{} {}", describe(library), one->what);
    append(one->at_load ? &out.expected : &out.later, std::move(text));
  }
  for (size_t i = 0; threads.ok() && i < loaded.size() && i < threads->size(); ++i) {
    if ((*threads)[i] <= 0) continue;
    append(&out.measured,
           fmt::format("{} starts {} thread{} when it is loaded", describe(loaded[i]),
                       (*threads)[i], (*threads)[i] == 1 ? "" : "s"));
  }
  return out;
}

}  // namespace

Finding check_memory_files(const Probes& probes) {
  const std::string meaning = "Buffers and mailboxes are memory files (memfd) with a sealed size";
  if (const auto tried = probes.sealed_memory(); !tried.ok()) {
    return problem(tried.error(), meaning + ": without them no Worker with children starts.",
                   "Allow memfd_create and its seals (container runtime, seccomp profile).");
  }
  return {.found = "a memory file is made, sealed and mapped twice", .meaning = meaning + "."};
}

Finding check_pidfd(const Probes& probes) {
  const std::string meaning = "The death of a child is seen by its pidfd";
  if (const auto tried = probes.pidfd(); !tried.ok()) {
    return problem(tried.error(), meaning + ": without it no Worker with children starts.",
                   "Use Linux 5.4 or later, and a seccomp profile that allows pidfd_open and "
                   "pidfd_send_signal (old container runtimes do not).");
  }
  return {.found = "a killed child is seen and reaped by its pidfd", .meaning = meaning + "."};
}

Finding check_system_calls(const Probes& probes) {
  const std::string meaning = "These are the calls that Strata makes beyond common ones.";
  std::string refused;
  size_t count = 0;
  for (const SystemCall& call : probes.system_calls()) {
    ++count;
    if (call.error == 0) continue;
    // Strata has another way where this one is missing.
    if (call.name == "epoll_pwait2" || call.name == "close_range") continue;
    append(&refused, os::system_error(call.name, call.error).message());
  }
  if (refused.empty()) {
    return {.found = fmt::format("all {} special calls are there", count), .meaning = meaning};
  }
  const bool filtered = probes.facts().kernel.seccomp == 2;
  return {.level = Level::kProblem,
          .found = refused,
          .meaning = meaning,
          .advice = filtered ? "A seccomp filter is on: allow these calls in its profile."
                             : "Use a newer kernel."};
}

Finding check_fork(const Probes& probes) {
  const std::string meaning =
      "StartMethod::kFork forks the program before it has other threads, and refuses where it has; "
      "kAuto, the default, takes exec then.";
  const auto hazards = probes.fork_hazards();
  if (!hazards.ok()) return problem(hazards.error(), meaning, "Mount /proc.");
  if (!hazards->any()) return {.found = "a fresh program may be forked", .meaning = meaning};
  return {.level = Level::kProblem,
          .found = "even this program has " + hazards->to_string(),
          .meaning = meaning,
          .advice =
              "Look for a library that is loaded into every program (LD_PRELOAD, "
              "/etc/ld.so.preload)."};
}

Finding check_fork_server(const Probes& probes) {
  const std::string meaning = "All children are forked by one server, which also tells their ends.";
  const auto times = probes.fork_server();
  if (!times.ok()) return problem(times.error(), meaning, "Look at the checks before this one.");
  return {.found = fmt::format("stands after {:.1f} ms; a child comes and ends in {:.1f} ms; a "
                               "SIGKILL is noticed after {:.1f} ms",
                               times->start_ms, times->child_ms, times->notice_ms),
          .meaning = meaning};
}

Finding check_worker(const Probes& probes) {
  const std::string meaning =
      "A Worker with one child, 200 tasks, a task whose child is killed, and the end.";
  const auto times = probes.worker();
  if (!times.ok()) return problem(times.error(), meaning, "Look at the checks before this one.");
  return {.found = fmt::format("ready after {:.1f} ms; a task takes {:.1f} us; a killed child is "
                               "an error after {:.1f} ms; closed in {:.1f} ms",
                               times->init_ms, times->task_us, times->notice_ms, times->close_ms),
          .meaning = meaning};
}

Finding check_heap(const Probes& probes) {
  const Facts facts = probes.facts();
  const uint64_t bytes = engine::heap_address_bytes(Limits());
  const std::string meaning = fmt::format(
      "The default heap ({}) reserves {} of address space in each process; only touched pages take "
      "memory.",
      bytes_text(Limits().heap_bytes), bytes_text(bytes));
  if (const auto mapped = probes.map_heap(bytes); !mapped.ok()) {
    std::string advice = "Lower WorkerSpec::limits.heap_bytes";
    if (facts.address_space.has_value()) advice += ", or raise ulimit -v";
    if (facts.file_size.has_value()) advice += ", or raise ulimit -f";
    return problem(mapped.error(), meaning, advice + ".");
  }
  if (facts.kernel.overcommit_memory == 2) {
    return {.level = Level::kWarning,
            .found = "the kernel does not overcommit memory (vm.overcommit_memory is 2)",
            .meaning = meaning +
                       " Each of those counts against CommitLimit, and a touch beyond it "
                       "ends the process.",
            .advice = "Watch Committed_AS in /proc/meminfo, or set vm.overcommit_memory to 0."};
  }
  return {.found = fmt::format("{} of address space can be had", bytes_text(bytes)),
          .meaning = meaning};
}

Finding check_wakeups(const Probes& probes) {
  const std::string meaning =
      "What it costs to wake a sleeping child (futex) and a sleeping parent (eventfd); while both "
      "are awake neither is paid.";
  const auto futex = probes.futex();
  const auto eventfd = probes.eventfd();
  for (const auto* one : {&futex, &eventfd}) {
    if (!one->ok())
      return problem(one->error(), meaning, "Look whether the machine is overloaded.");
  }
  Finding out{
      .found = fmt::format("a round trip of two processes takes {:.1f} us by futex (p99 "
                           "{:.1f}), {:.1f} us by eventfd (p99 {:.1f})",
                           futex->median_us, futex->p99_us, eventfd->median_us, eventfd->p99_us),
      .meaning = meaning};
  if (std::max(futex->median_us, eventfd->median_us) > kSlowWakeupUs) {
    out.level = Level::kWarning;
    out.advice =
        "Small tasks will wait for wake-ups. Look for deep idle states of the processor, "
        "for a busy machine, and for the hypervisor's halt polling.";
  }
  return out;
}

Finding check_noise(const Probes& probes) {
  const Noise noise = probes.noise();
  const bool is_virtual = probes.facts().kernel.is_virtual;
  Finding out{.found = fmt::format("others took {:.1f} % of a core for 0.2 s, {:.0f} us at most at "
                                   "once{}",
                                   noise.lost * 100, noise.longest_us,
                                   is_virtual ? "; this is a virtual machine" : ""),
              .meaning =
                  "Times that are measured here move by about that much, and so do waits "
                  "of a microsecond."};
  if (noise.lost > kNoisyShare || noise.longest_us > kLongGapUs) {
    out.level = Level::kWarning;
    out.advice = is_virtual ? "End other work, here and on the host, before you measure."
                            : "End other work before you measure.";
  }
  return out;
}

Finding check_clock(const Probes& probes) {
  const ClockFacts clock = probes.clock();
  const std::string source = probes.facts().kernel.clock_source;
  Finding out{
      .found = fmt::format("clock source {}, {:.0f} ns a look; the time-stamp counter is {}",
                           source.empty() ? "unknown" : source, clock.read_ns,
                           clock.counter ? "sound" : "not vouched for"),
      .meaning = "Short waits look at the clock often, and timelines take its time."};
  if (clock.read_ns > kSlowClockNs) {
    out.level = Level::kWarning;
    out.advice =
        "Each look is a system call. Boot with clocksource=tsc where the processor allows "
        "it.";
  }
  return out;
}

Finding check_leftovers(const Probes& probes) {
  const std::vector<StrataProcess> processes = probes.strata_processes();
  std::string orphans, stopped;
  for (const StrataProcess& process : processes) {
    const std::string text =
        fmt::format("{} {} (parent {} {})", process.name, process.pid, process.parent,
                    process.parent_name.empty() ? "?" : process.parent_name);
    if (process.is_orphan) append(&orphans, text);
    if (process.state == 'T' || process.state == 't') append(&stopped, text);
  }
  Finding out{.found = processes.empty()
                           ? "no fork server and no child runs"
                           : fmt::format("fork servers and children that run: {}, each with its "
                                         "owner",
                                         processes.size()),
              .meaning =
                  "Children end with their fork server and that with its program; they are "
                  "named strata-child and strata-forksrv."};
  if (!orphans.empty()) {
    out.level = Level::kWarning;
    out.found = "left over, without their owner: " + orphans;
    out.advice = "Look at them (ps -fp PID) and end them yourself: nothing is killed here.";
  } else if (!stopped.empty()) {
    out.level = Level::kWarning;
    out.found = "stopped: " + stopped;
    out.advice = "Their programs wait for them: send SIGCONT, or end the programs.";
  }
  return out;
}

Finding check_timeline(const Probes& probes) {
  const std::string meaning = "A Worker that is asked for a timeline writes its file there.";
  const auto written = probes.write_file(probes.timeline_folder);
  if (written.ok()) {
    return {.found = fmt::format("{} can be written", probes.timeline_folder), .meaning = meaning};
  }
  return {.level = probes.timeline_asked ? Level::kProblem : Level::kWarning,
          .found = written.error().message(),
          .meaning = meaning,
          .advice = probes.timeline_asked
                        ? "Set STRATA_TIMELINE to a file in a folder of yours."
                        : "Run from a folder of yours, or name a file elsewhere."};
}

Finding check_program(const Probes& probes) {
  const std::string meaning =
      "init() with StartMethod::kFork is refused in a program that has other threads, or a Python "
      "interpreter, by then; kAuto, the default, takes exec there. Only what it loads before main "
      "is seen here.";
  if (probes.program.empty()) {
    return {.found = "no program was named", .meaning = meaning, .advice = ""};
  }
  const auto program = probes.program_libraries(probes.program);
  if (!program.ok())
    return problem(program.error(), meaning, "Name an ELF program of this machine.");
  std::string unsure;
  const ThreadStarters found = look_at(*program, probes, &unsure);
  const std::string ways_out =
      "Build what needs it as a shared object, which only the children load (NativeImport), link "
      "the program without it, and call init() first in main. Or let children come by exec: begin "
      "main with strata::child_entry(argc, argv) to keep LocalFunction. WorkerSpec::allow_threads "
      "forks all the same, at your own risk.";
  Finding out{.found = fmt::format("{} loads {} libraries; none of them starts threads",
                                   probes.program, program->libraries.size()),
              .meaning = meaning};
  if (!found.measured.empty() || !found.python.empty() ||
      (!unsure.empty() && !found.expected.empty())) {
    out.level = Level::kProblem;
    out.found = "fork will be refused: " + (!found.measured.empty() ? found.measured
                                            : !found.python.empty() ? found.python
                                                                    : found.expected);
    out.advice = ways_out;
  } else if (!found.missing.empty()) {
    out.level = Level::kProblem;
    out.found = "not found, so the program does not start: " + found.missing;
    out.advice = "Install them, or set LD_LIBRARY_PATH.";
  } else if (!program->has_build_id) {
    out.level = Level::kWarning;
    out.found = "the program has no build id";
    out.advice = "Link it with -Wl,--build-id: without it a LocalFunction is refused.";
  } else if (!unsure.empty()) {
    out.level = Level::kWarning;
    out.found = "its libraries could not be tried: " + unsure;
    out.advice = "Run the program: init() tells whether it can fork.";
  } else if (!found.later.empty() || !found.expected.empty()) {
    out.level = Level::kWarning;
    out.found = (!found.later.empty() ? found.later : found.expected + ", though none was seen");
    out.advice =
        "Call init() before its first use in the program, or see that only the children "
        "use it.";
  }
  return out;
}

}  // namespace strata::tools
