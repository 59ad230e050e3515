// The values of Core: options, commands, what stands in a slot and what is known of a worker.
// No behaviour.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "engine/deadlines.h"
#include "engine/endpoint.h"
#include "engine/inline_endpoint.h"
#include "engine/news_set.h"
#include "engine/run_record.h"
#include "mailbox/child_loop.h"
#include "registry/registry.h"
#include "sched/types.h"
#include "strata/task_args.h"
#include "strata/tensor.h"
#include "strata/worker_spec.h"
#include "trace/ring.h"

namespace strata::engine {

// Commands of the mailbox's control slot. The four phases of a registration have their numbers.
enum class Command : uint32_t {
  kPrepare = 1,
  kCommit = 2,
  kAbort = 3,
  kUnregister = 4,
  kDropMapping = 5,  // to chips: u64, u64 of the uid of a buffer that is mapped there no longer
  // To Workers: u32 0, and the rest of an encoded ChildOrder. The answer holds the new worker ids,
  // as u32; whoever is asked again gets the first one in place of the 0.
  kAddChildren = 6,
  kActivate = 7,  // to Workers: as kCommit, of an inner callable that was registered inactive
  kExit = mailbox::kCommandExit,
  kHello = mailbox::kCommandHello,  // answered once the child has attached
};

// Bytes of address space for a heap of that many bytes: what is freed becomes free space only once
// its pages are given back, and segments leave gaps between them. Only touched pages cost memory.
constexpr uint64_t heap_address_bytes(const Limits& limits) {
  return 2 * limits.heap_bytes;
}

// The two kinds of children of a Worker; of the second kind are chips or Workers.
enum class Pool : uint32_t { kSub = 0, kNext = 1 };
static_assert(sched::kPools == 2 && registry::kPools == 2);

// How tensors get to a worker: it touches this Worker's memory in place, or has them copied or
// mapped for each task (bits).
inline constexpr uint32_t kInPlace = 0;
inline constexpr uint32_t kCanCopy = 1;
inline constexpr uint32_t kCanMap = 2;  // and keeps mappings until it hears that the buffer is gone

// What a worker is and can run: a bit for each CallableKind.
struct WorkerCaps {
  Pool pool = Pool::kSub;
  uint32_t kinds = ~0u;
  bool nested = false;            // a Worker itself: it takes inner registrations
  uint32_t transfers = kInPlace;  // the same for all workers of a pool
  // More time for a control than Timeouts::control_ms: it passes it on.
  uint32_t control_more_ms = 0;
  // Of a Worker: until another one in its place must have answered its greeting.
  uint32_t greeting_ms = ~0u;
  bool remote = false;  // it has no part in this host's memory: a task takes its arguments along
  // Whoever brings its news calls Core::news().note(worker): it is not looked at without.
  bool notes_news = false;
};

// "NATIVE_IMPORT, LOCAL_FUNCTION".
std::string kinds_text(uint32_t kinds);

// Where a task may go.
struct Where {
  Pool pool = Pool::kSub;
  int32_t worker = -1;  // -1: any of the pool that can run it
};

// What is submitted, beside its arguments.
struct Job {
  registry::EntryRef callable;
  Where where;
  CallConfig config;
};

// Asked of the driver: a worker to end, and pages to give back (then segment_punched).
struct Kill {
  uint32_t worker;
  uint32_t incarnation;  // no other one is meant
  std::string reason;
};
struct Punch {
  uint64_t heap_offset;
  uint64_t bytes;
};

// What a thread that spins without the token looks at: for each busy worker the first completion
// that lets something go on. To take them one by one would only make both sides wait for the lines
// between them.
struct Awaited {
  const WorkerEndpoint* endpoint;  // null: whatever is noted
  uint32_t ahead;
  const NewsSet* news = nullptr;
  bool ready() const { return endpoint != nullptr ? endpoint->has_news_ahead(ahead) : news->any(); }
};

// A count that another thread raises under the token, looked at without it.
struct Changed {
  const std::atomic<uint64_t>* count;
  uint64_t seen;
  bool now() const { return count->load(std::memory_order_relaxed) != seen; }
};

// What a waiting thread must hear of; counted for each that waits.
enum class Wake : uint8_t {
  kRunEnd,  // no more than what the engine itself needs
  kSoon,    // room for more tasks
  kEach,    // every completion
};

// A scope of the run that is built.
struct OpenScope {
  uint64_t id;
  std::vector<uint32_t> temporaries;
};

// A class of workers, as long as neither the registry's epoch nor the class's stamp is another.
struct KnownClass {
  uint64_t epoch = 0;
  uint64_t stamp = 0;
  uint32_t cls = 0;
};

// What stands before the encoded arguments in a slot's payload.
struct TaskHead {
  registry::EntryRef callable;
  mailbox::TaskPost post;
};

// What Core remembers of ends that it must bring about itself.
struct Endings {
  Deadlines deadlines;
  base::Instant grace_at = base::Instant::never();    // the first grace of a cancelled run ends
  std::optional<base::Instant> now;                   // of the step that is made, where it is known
  std::deque<std::shared_ptr<RunRecord>> done_calls;  // runs that are done and have calls to make
  bool wait() const { return deadlines.any() || grace_at != base::Instant::never(); }
};

// Makes the pages of a range of the heap there; under the step token, for each new segment.
using ReserveHeap = std::function<Result<void>(uint64_t heap_offset, uint64_t bytes)>;

struct CoreOptions {
  std::string path = "L3";  // of this Worker, for texts
  Limits limits;
  Timeouts timeouts;
  uint64_t uid_high = 1;  // 64 random bits
  // Workers that a thread which goes on stepping keeps awake: cores less its own, at least one.
  uint32_t awake_max = 1;
  bool restarts = false;       // of workers that have been ready once; see WorkerSpec::restart
  uint32_t restart_limit = 3;  // of each
  trace::Recorder* trace = nullptr;  // the timeline, where there is one; it outlives the Core
  uint64_t heap_page_bytes = 4096;   // segments of the heap are of whole pages
  ReserveHeap reserve = {};          // empty: pages come with the first touch
};

struct NewBuffer {
  uint32_t index;
  Uid uid;
  uint64_t heap_offset;
  uint64_t bytes;
  bool dirty;  // the bytes are not zero
};

// kReplaced: it was lost, and the driver is asked for another one, which begins as kAdded again.
enum class WorkerState : uint8_t { kAdded, kGreeted, kReplaying, kReady, kLost, kReplaced };

// What a child Worker is asked for, and whatever takes its place again.
struct Question {
  uint64_t id = 0;  // 0: nobody waits for the answer, for the replay asks
  Command command = Command::kAddChildren;
  std::vector<std::byte> request = {};
  uint32_t more_ms = 0;  // beside the time of any control
};

// What a worker is told: a step of a registration, or that a buffer is gone; or what it is asked.
struct Control {
  registry::Action action;
  std::optional<Uid> dropped = {};
  std::optional<Question> question = {};
  Command command() const {
    if (question) return question->command;
    return dropped ? Command::kDropMapping : static_cast<Command>(action.phase);
  }
};

// What is seldom looked at of a worker.
struct WorkerRest {
  std::string loss;
  std::string last_lines;         // that the task wrote which it ran then
  std::string doubt;              // why its end has been asked for, where it has
  std::deque<Control> controls;   // not posted yet, then the posted one in front
  base::Instant control_since{};  // when its lane became free for the posted control
  std::vector<Question> journal;  // that it has answered with success: part of its replay
  uint32_t journal_left = 0;      // of these in a replay
  // The task for which its end was asked for, and that one's error.
  struct Condemned {
    uint64_t ticket;
    Error error;
  };
  std::optional<Condemned> condemned;
  // A task that is timed and was seen to run before it told since when; `seen_at` is of the look
  // after the first one.
  uint64_t seen_ticket = 0;
  base::Instant seen_at{};
};

// A worker of the Core: what every completion and dispatch looks at, in one line and few pages. Of
// thousands of workers each one's have left the nearest cache when its turn comes.
struct alignas(64) WorkerEntry {
  std::unique_ptr<WorkerEndpoint> endpoint;
  InlineEndpoint* inline_endpoint = nullptr;
  uint64_t tasks_done = 0;  // of all incarnations
  uint32_t incarnation = 1;
  WorkerState state = WorkerState::kAdded;
  // It was pushed to while it had work; whether it sleeps by now is not looked at.
  bool unconfirmed = false;
  bool busy = false;    // in busy_
  bool barred = false;  // in barred_
  bool exiting = false;
  bool exit_posted = false;
  bool control_posted = false;
  bool in_posted = false;  // in Core::posted_
  bool was_ready = false;  // once, in whatever incarnation
  bool doubted = false;    // its end has been asked for: it is given nothing more
  WorkerCaps caps;
  std::unique_ptr<WorkerRest> rest = std::make_unique<WorkerRest>();
};

}  // namespace strata::engine
