// The shared memory between a parent and one local child: what lies where, and who writes it.
//
// Values only: no access, no order; ParentSide and ChildSide do that over a memory policy. One
// region for each child, one hub for all children of a Worker. Both sides must be built from the
// same layout: layout_id() is compared at attach.
//
// Memory order, fixed for every field ("rlx" relaxed, "rel" release, "acq" acquire). A field that
// is not a word published by itself is covered by the word in the last column.
//
//   field                          written by              read by             covered by
//   header                         parent rlx, magic rel   child at attach     magic acq
//   tasks[i] but state             parent rlx              child rlx           tasks[i].state
//   tasks[i].state                 parent rel (queued),    child acq,          itself
//                                  CAS (revoked);          parent acq
//                                  child CAS (started)
//   tasks[i].started_ns            parent rlx (0),         parent rlx          itself
//                                  child rlx
//   args bytes                     parent plain            child plain         tasks[i].state
//   completions[i] but state       child rlx               parent rlx          completions[i].state
//   completions[i].state           child rel               parent acq          itself
//   results bytes                  child plain             parent plain        completions[i].state
//   child_progress.consumed        child rel               parent acq          itself
//   parent_progress.results_freed  parent rel              child acq           itself
//   parent_progress.wake_at        parent rlx              child rlx           hub asleep, acq
//   cancel.through                 parent rlx              child rlx           itself
//   request line and bytes         parent rlx, plain       child               request.state
//   rel/acq reply line and bytes           child rlx, plain        parent              reply.state
//   rel/acq child_sleep.asleep             child rlx (1, 0),       parent rlx          the two
//   fences below
//                                  parent CAS (1 to 0)
//   hub parent_sleep.asleep        parent rel (1, 0),      children acq        the two fences below
//                                  child CAS (1 to 0)
//
// Wake-up: who publishes does payload, release store of the state word, seq_cst FENCE, load of the
// other side's sleep flag. Who sleeps stores the flag, seq_cst FENCE, looks again at the words that
// it awaits, and only then waits. With both fences one of the two sees the other's store.
//
// Re-use: a task entry and its argument bytes are free when the parent has polled the completion of
// that ticket, or it revoked the ticket and the child's consumed counter has passed it. A
// completion entry needs no answer: no ticket is pushed before the completion 64 tickets back was
// polled. Result bytes are free when results_freed has passed their completion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "strata/error.h"
#include "strata/result.h"
#include "strata/version.h"

namespace strata::mailbox {

inline constexpr uint64_t kRegionMagic = 0x31786f626c69614dull;  // "Mailbox1"
inline constexpr uint64_t kHubMagic = 0x3162756874617453ull;     // "Stathub1"
inline constexpr uint32_t kLayoutVersion = 3;

inline constexpr size_t kLineBytes = 128;  // two cache lines: the prefetcher takes pairs
inline constexpr uint32_t kRingEntries = 64;
inline constexpr uint32_t kArgsRingBytes = 256 * 1024;
inline constexpr uint32_t kResultsRingBytes = 256 * 1024;
inline constexpr uint32_t kControlBytesMax = 8 * 1024;
inline constexpr uint32_t kArgsBytesMax = kArgsRingBytes;
inline constexpr uint32_t kResultBytesMax = 64 * 1024;
inline constexpr uint32_t kTextBytesMax = 8 * 1024;
inline constexpr size_t kBytesAlign = 64;  // of an allocation in a byte ring

static_assert((kRingEntries & (kRingEntries - 1)) == 0);
static_assert(kResultBytesMax + kTextBytesMax <= kResultsRingBytes / 2);

// A state word is number << 8 | phase. Tickets, completion numbers and control numbers count from
// 1, so a zeroed region holds nothing.
enum class Phase : uint8_t { kFree = 0, kQueued = 1, kStarted = 2, kRevoked = 3, kDone = 4 };

constexpr uint64_t state_word(uint64_t number, Phase phase) {
  return number << 8 | static_cast<uint64_t>(phase);
}
constexpr uint64_t number_of(uint64_t state) {
  return state >> 8;
}
constexpr Phase phase_of(uint64_t state) {
  return static_cast<Phase>(state & 0xff);
}
constexpr size_t ring_position(uint64_t number) {
  return (number - 1) & (kRingEntries - 1);
}

struct HeaderLine {
  uint64_t magic;
  uint64_t layout_id;
  uint64_t total_bytes;
  uint32_t layout_version;
  uint32_t reserved;
  char version[32];   // of the side that formatted; for the error text, may lack its end
  char compiler[64];  // likewise
};

struct TaskEntry {
  uint64_t state;
  uint64_t task;
  uint64_t args_begin;  // monotonic offset in the args ring
  uint32_t args_bytes;
  uint32_t callable;
  uint32_t flags;
  int32_t block_dim;
  uint32_t deadline_ms;
  uint32_t reserved;
  int64_t started_ns;  // by the clock of both sides, of tasks that are timed; 0: not told yet
  uint32_t reserved1[2];
};

struct CompletionEntry {
  uint64_t state;
  uint64_t task;
  uint64_t ticket;
  int64_t started_ns;
  int64_t ended_ns;
  uint64_t bytes_begin;  // monotonic offset in the results ring: the result, then the text
  uint32_t result_bytes;
  uint32_t text_bytes;
  uint32_t outcome;
  int32_t code;
};

struct ControlLine {
  uint64_t state;
  uint32_t word;  // the command of a request, the code of a reply
  uint32_t bytes;
};

struct ParentProgress {
  uint64_t results_freed;  // number of the newest completion whose bytes the parent has let go
  // A sleeping parent wants to hear of no completion before this ticket's, unless the child has
  // nothing more to do: a wake-up costs both sides more than a short task.
  uint64_t wake_at;
};
struct ChildProgress {
  uint64_t consumed;  // the child has passed all tickets up to this one; written after skips only
};
struct SleepLine {
  uint32_t asleep;  // 1 asleep, 0 awake; the child's is its futex word
};
struct CancelLine {
  uint64_t through;  // all tickets up to this one are cancelled
};

struct RegionLayout {
  alignas(kLineBytes) HeaderLine header;
  alignas(kLineBytes) ParentProgress parent_progress;
  alignas(kLineBytes) CancelLine cancel;
  alignas(kLineBytes) ChildProgress child_progress;
  alignas(kLineBytes) SleepLine child_sleep;
  alignas(kLineBytes) ControlLine request;
  alignas(kLineBytes) ControlLine reply;
  alignas(kLineBytes) TaskEntry tasks[kRingEntries];
  alignas(kLineBytes) CompletionEntry completions[kRingEntries];
  alignas(kLineBytes) std::byte request_bytes[kControlBytesMax];
  alignas(kLineBytes) std::byte reply_bytes[kControlBytesMax];
  alignas(kLineBytes) std::byte args[kArgsRingBytes];
  alignas(kLineBytes) std::byte results[kResultsRingBytes];
};

struct HubLayout {
  alignas(kLineBytes) HeaderLine header;
  alignas(kLineBytes) SleepLine parent_sleep;
};

static_assert(sizeof(HeaderLine) == 128 && sizeof(TaskEntry) == 64 &&
              sizeof(CompletionEntry) == 64 && sizeof(ControlLine) == 16);
static_assert(offsetof(TaskEntry, args_begin) == 16 && offsetof(TaskEntry, callable) == 28 &&
              offsetof(TaskEntry, deadline_ms) == 40 && offsetof(TaskEntry, started_ns) == 48);
static_assert(offsetof(CompletionEntry, ticket) == 16 &&
              offsetof(CompletionEntry, bytes_begin) == 40 &&
              offsetof(CompletionEntry, outcome) == 56);
static_assert(offsetof(RegionLayout, parent_progress) == 128 &&
              offsetof(RegionLayout, cancel) == 256 &&
              offsetof(RegionLayout, child_progress) == 384 &&
              offsetof(RegionLayout, child_sleep) == 512 &&
              offsetof(RegionLayout, request) == 640 && offsetof(RegionLayout, reply) == 768 &&
              offsetof(RegionLayout, tasks) == 896 &&
              offsetof(RegionLayout, completions) == 896 + 4096 &&
              offsetof(RegionLayout, request_bytes) == 896 + 8192 &&
              offsetof(RegionLayout, args) == 896 + 8192 + 16384);
static_assert(offsetof(HubLayout, parent_sleep) == 128 && sizeof(HubLayout) == 256);

// What a mapping must hold: whole pages.
inline constexpr size_t kRegionBytes = (sizeof(RegionLayout) + 4095) / 4096 * 4096;
inline constexpr size_t kHubBytes = 4096;

// FNV-1a over version, compiler, the constants above and the offsets.
uint64_t layout_id();
std::string_view compiler_name();

// ok, or kAbiMismatch (in words, with both versions) or kCorrupt. `what` is "mailbox" or "hub".
Result<void> check_header(const HeaderLine& found, std::string_view what, uint64_t magic,
                          uint64_t total_bytes, size_t mapped_bytes);
// The header that check_header accepts.
HeaderLine make_header(uint64_t magic, uint64_t total_bytes);

}  // namespace strata::mailbox
