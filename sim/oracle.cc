#include "sim/oracle.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "sim/strided.h"

namespace strata::sim {

const char* name_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kLive:
      return "live";
    case Outcome::kOk:
      return "ok";
    case Outcome::kTaskFailed:
      return "task-failed";
    case Outcome::kEndpointFailed:
      return "endpoint-failed";
    case Outcome::kSkipped:
      return "skipped";
  }
  return "unknown";
}

uint32_t Oracle::add_buffer(uint64_t bytes, bool zeroed) {
  initial_.emplace_back(bytes, Byte{0, zeroed, -1});
  return static_cast<uint32_t>(initial_.size() - 1);
}

uint32_t Oracle::add_task(Task task) {
  STRATA_CHECK(!task.parts.empty());
  std::vector<std::vector<Extent>>& extents = extents_.emplace_back();
  for (const Part& part : task.parts) {
    std::vector<Extent>& of_part = extents.emplace_back();
    for (const Access& access : part.accesses) of_part.push_back(extent_of(access));
  }
  tasks_.push_back(std::move(task));
  return static_cast<uint32_t>(tasks_.size() - 1);
}

void Oracle::withdraw_task() {
  STRATA_CHECK(!tasks_.empty());
  tasks_.pop_back();
  extents_.pop_back();
}

void Oracle::clear_error(uint32_t buffer, std::vector<bool> terminal) {
  clears_.push_back({buffer, std::move(terminal)});
}

uint64_t Oracle::input_start(uint32_t task, uint32_t part) {
  return mix(0x737472617461ull, task | uint64_t{part} << 32);
}

Oracle::Extent Oracle::extent_of(const Access& access) {
  Extent extent;
  for_each_byte(access.shape, access.stride, access.element_bytes, [&](int64_t byte) {
    extent.bytes.push_back(access.offset + static_cast<uint64_t>(byte));
  });
  std::vector<uint64_t>& bytes = extent.bytes;
  if (!std::is_sorted(bytes.begin(), bytes.end())) std::sort(bytes.begin(), bytes.end());
  bytes.erase(std::unique(bytes.begin(), bytes.end()), bytes.end());
  // Equal runs at equal distances?
  std::vector<std::pair<uint64_t, uint64_t>> runs;  // begin, length
  for (const uint64_t byte : bytes) {
    if (!runs.empty() && runs.back().first + runs.back().second == byte) {
      ++runs.back().second;
    } else {
      runs.emplace_back(byte, 1);
    }
  }
  for (size_t i = 1; i < runs.size(); ++i) {
    extent.exact = extent.exact && runs[i].second == runs[0].second &&
                   runs[i].first - runs[i - 1].first == runs[1].first - runs[0].first;
  }
  return extent;
}

// Poison that was left before the buffer's error was cleared is not seen by tasks that had not
// ended then.
bool Oracle::sees_poison(uint32_t task, uint32_t buffer, const Byte& byte) const {
  if (byte.poisoner < 0) return false;
  const auto had_ended = [](const Clear& clear, size_t id) {
    return id < clear.terminal.size() && clear.terminal[id];
  };
  for (const Clear& clear : clears_) {
    if (clear.buffer == buffer && had_ended(clear, static_cast<size_t>(byte.poisoner)) &&
        !had_ended(clear, task)) {
      return false;
    }
  }
  return true;
}

bool Oracle::reads_poison(uint32_t id) const {
  for (size_t p = 0; p < tasks_[id].parts.size(); ++p) {
    const std::vector<Access>& accesses = tasks_[id].parts[p].accesses;
    for (size_t a = 0; a < accesses.size(); ++a) {
      const Access& access = accesses[a];
      const Extent& extent = extents_[id][p][a];
      if (!access.reads || extent.bytes.empty()) continue;
      const std::vector<Byte>& buffer = buffers_[access.buffer];
      if (extent.exact) {
        for (const uint64_t byte : extent.bytes) {
          if (sees_poison(id, access.buffer, buffer[byte])) return true;
        }
      } else {
        for (uint64_t byte = extent.bytes.front(); byte <= extent.bytes.back(); ++byte) {
          if (sees_poison(id, access.buffer, buffer[byte])) return true;
        }
      }
    }
  }
  return false;
}

// What the part must have read; nothing where some of it is not known.
std::optional<uint64_t> Oracle::hash_inputs(uint32_t id, uint32_t part) const {
  uint64_t hash = input_start(id, part);
  bool known = true;
  for (const Access& access : tasks_[id].parts[part].accesses) {
    if (!access.reads) continue;
    const std::vector<Byte>& buffer = buffers_[access.buffer];
    for_each_byte(access.shape, access.stride, access.element_bytes, [&](int64_t at) {
      const Byte& byte = buffer[access.offset + static_cast<uint64_t>(at)];
      known = known && byte.known;
      hash = mix(hash, byte.value);
    });
  }
  if (!known) return std::nullopt;
  return hash;
}

void Oracle::apply_success(uint32_t id) {
  const std::vector<Part>& parts = tasks_[id].parts;
  for (uint32_t p = 0; p < parts.size(); ++p) {
    const std::optional<uint64_t> hash = hash_inputs(id, p);
    const std::vector<Access>& accesses = parts[p].accesses;
    for (size_t a = 0; a < accesses.size(); ++a) {
      if (!accesses[a].writes) continue;
      std::vector<Byte>& buffer = buffers_[accesses[a].buffer];
      uint64_t ordinal = 0;
      for_each_byte(accesses[a].shape, accesses[a].stride, accesses[a].element_bytes,
                    [&](int64_t at) {
                      Byte& byte = buffer[accesses[a].offset + static_cast<uint64_t>(at)];
                      byte.value = written_byte(hash.value_or(0), a, ordinal++);
                      byte.known = hash.has_value();
                    });
      // A shape with gaps heals nothing: what it wrote is known to the task alone.
      const Extent& extent = extents_[id][p][a];
      if (!extent.exact) continue;
      for (const uint64_t byte : extent.bytes) buffer[byte].poisoner = -1;
    }
  }
}

void Oracle::apply_failure(uint32_t id, bool may_have_run) {
  for (size_t p = 0; p < tasks_[id].parts.size(); ++p) {
    const std::vector<Access>& accesses = tasks_[id].parts[p].accesses;
    for (size_t a = 0; a < accesses.size(); ++a) {
      const Extent& extent = extents_[id][p][a];
      if (!accesses[a].writes || extent.bytes.empty()) continue;
      std::vector<Byte>& buffer = buffers_[accesses[a].buffer];
      for (const uint64_t byte : extent.bytes) {
        if (may_have_run) buffer[byte].known = false;
        buffer[byte].poisoner = static_cast<int32_t>(id);
      }
      if (extent.exact) continue;
      for (uint64_t byte = extent.bytes.front(); byte <= extent.bytes.back(); ++byte) {
        buffer[byte].poisoner = static_cast<int32_t>(id);
      }
    }
  }
}

std::optional<std::string> Oracle::judge_ok(uint32_t id, const Seen& seen) const {
  for (uint32_t p = 0; p < seen.parts.size(); ++p) {
    const SeenPart& part = seen.parts[p];
    if (part.starts == 0) return fmt::format("part {} was never started", p);
    if (!part.ended) return fmt::format("the code of part {} did not come to its end", p);
    if (part.failed || tasks_[id].parts[p].will_fail) {
      return fmt::format("the code of part {} fails", p);
    }
    const std::optional<uint64_t> hash = hash_inputs(id, p);
    if (hash && *hash != part.input_hash) {
      return fmt::format("part {} has read other bytes than those of a run one after another", p);
    }
  }
  return std::nullopt;
}

std::optional<std::string> Oracle::judge_one(uint32_t id, const Seen& seen) const {
  const Task& task = tasks_[id];
  const auto wrong = [&](std::string_view why) {
    return fmt::format("{} {} of run {} is {}: {}", task.is_group ? "group" : "task", id, task.run,
                       name_of(seen.outcome), why);
  };
  STRATA_CHECK(seen.parts.size() == task.parts.size());
  bool started = false;
  bool failed = false;
  for (uint32_t p = 0; p < seen.parts.size(); ++p) {
    const SeenPart& part = seen.parts[p];
    if (part.starts > 1) return wrong("its code was started more than once");
    started = started || part.starts > 0;
    failed = failed || part.failed;
    if (part.failed && !task.parts[p].will_fail &&
        !(task.parts[p].heeds_cancel && (seen.may_cancel || seen.overdue))) {
      return wrong("its code does not fail");
    }
    // What has started comes to its end, whatever becomes of the others.
    if (part.starts > 0 && !part.ended && !part.died) return wrong("its code was left behind");
    if (part.died && seen.outcome != Outcome::kEndpointFailed &&
        !((task.is_group || seen.overdue) && seen.outcome == Outcome::kTaskFailed)) {
      return wrong("it was lost with its worker");
    }
  }
  if (seen.outcome == Outcome::kLive) return wrong("it has no outcome");
  if (reads_poison(id)) {
    if (seen.outcome != Outcome::kSkipped) {
      return wrong("it reads what a failed task should have written, so it must be skipped");
    }
    if (started) return wrong("its code was started");
    return std::nullopt;
  }
  switch (seen.outcome) {
    case Outcome::kSkipped:
      // Of a group that is cancelled those run on that have started.
      if (started && !(task.is_group && seen.may_cancel)) return wrong("its code was started");
      if (failed) return wrong("a member of it has failed");
      if (!seen.may_cancel && !seen.may_lack_worker) {
        return wrong(
            "all that it reads was written, its run was not cancelled, and there was a "
            "worker");
      }
      break;
    case Outcome::kEndpointFailed:
      if (!seen.may_be_lost) return wrong("no worker was lost");
      break;
    case Outcome::kTaskFailed:
      if (!failed && !seen.overdue) return wrong("its code did not fail");
      break;
    case Outcome::kOk:
      if (const auto why = judge_ok(id, seen)) return wrong(*why);
      if (seen.ended_late) return wrong("it ended after its deadline");
      break;
    case Outcome::kLive:
      break;
  }
  return std::nullopt;
}

std::optional<std::string> Oracle::judge(const std::vector<Seen>& seen) {
  STRATA_CHECK(seen.size() == tasks_.size());
  buffers_ = initial_;
  skipped_.assign(tasks_.size(), false);
  for (uint32_t id = 0; id < tasks_.size(); ++id) {
    if (std::optional<std::string> wrong = judge_one(id, seen[id])) return wrong;
    skipped_[id] = reads_poison(id);
    if (seen[id].outcome == Outcome::kOk) {
      apply_success(id);
    } else {
      apply_failure(id, std::any_of(seen[id].parts.begin(), seen[id].parts.end(),
                                    [](const SeenPart& part) { return part.starts > 0; }));
    }
  }
  return std::nullopt;
}

std::optional<std::string> Oracle::check_content(uint32_t buffer, const uint8_t* bytes) const {
  const std::vector<Byte>& expected = buffers_[buffer];
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!expected[i].known || expected[i].value == bytes[i]) continue;
    return fmt::format("byte {} of buffer {} is {:#04x}, not {:#04x}", i, buffer, bytes[i],
                       expected[i].value);
  }
  return std::nullopt;
}

bool Oracle::poisoned(uint32_t buffer, uint64_t byte) const {
  return sees_poison(static_cast<uint32_t>(tasks_.size()), buffer, buffers_[buffer][byte]);
}

}  // namespace strata::sim
