// Oracle: a serial interpreter of what was submitted, byte by byte: which tasks must have run,
// which must have been skipped, and what the buffers must hold.
//
// It shares no code with graph, sched and engine: it knows bytes where they know regions. It is
// told the submissions in their order and, at the end, the outcomes; from these it takes only which
// tasks failed or were lost, and checks the rest. A group is one task of several parts, which may
// run in any order: it succeeds as a whole, and as a whole it fails. Not checked: times, texts,
// which worker ran what (placement.h does). One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace strata::sim {

enum class Outcome : uint8_t { kLive, kOk, kTaskFailed, kEndpointFailed, kSkipped };
const char* name_of(Outcome outcome);

class Oracle {
 public:
  struct Access {
    uint32_t buffer = 0;  // as add_buffer gave it
    uint64_t offset = 0;  // bytes, of the first element
    uint64_t element_bytes = 1;
    std::vector<uint64_t> shape;
    std::vector<int64_t> stride;
    bool reads = false;
    bool writes = false;
  };
  // What one call does: a task, or one member of a group.
  struct Part {
    bool will_fail = false;
    bool heeds_cancel = false;  // fails where it sees that its run was cancelled
    uint32_t result_bytes = 0;
    std::vector<Access> accesses;
  };
  struct Task {
    uint32_t run = 0;
    std::vector<Part> parts;  // one, or the members of a group, whose accesses need no order
    bool is_group = false;
  };
  // What was seen of one part.
  struct SeenPart {
    uint32_t starts = 0;      // of its code
    bool ended = false;       // its code came to its end
    bool failed = false;      // and said that it failed
    bool died = false;        // its process ended while it ran
    uint64_t input_hash = 0;  // what its last start read
  };
  // What was seen of one task.
  struct Seen {
    Outcome outcome = Outcome::kLive;
    std::vector<SeenPart> parts;
    bool may_cancel = false;       // its run was cancelled before it was done
    bool may_lack_worker = false;  // at some moment too few workers were left for it
    bool may_be_lost = false;      // some worker was lost
    bool overdue = false;          // it passed its deadline
    bool ended_late = false;       // and its code came to its end after it
  };

  // Zeroed, or of unknown content.
  uint32_t add_buffer(uint64_t bytes, bool zeroed);
  uint32_t add_task(Task task);
  // The submit of the newest task was refused.
  void withdraw_task();
  // The buffer's poison was forgotten; terminal[i] says whether task i had ended then.
  void clear_error(uint32_t buffer, std::vector<bool> terminal);

  // What is wrong with these outcomes, one for each task; nothing where all is right. Runs the
  // whole interpretation.
  std::optional<std::string> judge(const std::vector<Seen>& seen);

  // --- after judge
  // The task read what a failed one should have written.
  bool must_be_skipped(uint32_t id) const { return skipped_[id]; }
  // Why the buffer's bytes are not what they must be; nothing where they are.
  std::optional<std::string> check_content(uint32_t buffer, const uint8_t* bytes) const;
  bool poisoned(uint32_t buffer, uint64_t byte) const;

  size_t task_count() const { return tasks_.size(); }
  const Task& task(uint32_t id) const { return tasks_[id]; }

  // Hash of a task's start: what it reads is mixed in byte by byte.
  static uint64_t input_start(uint32_t task, uint32_t part = 0);

 private:
  struct Byte {
    uint8_t value = 0;
    bool known = true;
    int32_t poisoner = -1;  // the task whose failure left it unwritten
  };
  struct Clear {
    uint32_t buffer;
    std::vector<bool> terminal;
  };
  // The bytes of an access: their set, and whether it is a range or a rectangle.
  struct Extent {
    std::vector<uint64_t> bytes;  // in order, each once
    bool exact = true;
  };

  static Extent extent_of(const Access& access);
  bool sees_poison(uint32_t task, uint32_t buffer, const Byte& byte) const;
  bool reads_poison(uint32_t id) const;
  std::optional<std::string> judge_one(uint32_t id, const Seen& seen) const;
  std::optional<std::string> judge_ok(uint32_t id, const Seen& seen) const;
  std::optional<uint64_t> hash_inputs(uint32_t id, uint32_t part) const;
  void apply_success(uint32_t id);
  void apply_failure(uint32_t id, bool may_have_run);

  std::vector<std::vector<Byte>> initial_;
  std::vector<std::vector<Byte>> buffers_;
  std::vector<Task> tasks_;
  std::vector<std::vector<std::vector<Extent>>> extents_;  // by task, part, access
  std::vector<Clear> clears_;
  std::vector<bool> skipped_;  // by task: for what it reads
};

}  // namespace strata::sim
