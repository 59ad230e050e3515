// A task on its way to a Worker of another host, and back into the form of a mailbox there: what
// has no common memory takes the bytes of its INPUT tensors with it. Pure; any thread.
//
// In a TASK the inline bytes of the arguments come first, and the bytes of the tensors after them:
// each contiguous in the order of its elements, whatever its strides were.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/sha256.h"
#include "mailbox/parent_side.h"
#include "model/args.h"
#include "strata/task_args.h"
#include "wire/task.h"

namespace strata::engine {

// Bytes for the tensors of any task: each begins at a multiple of 64.
inline constexpr size_t kRemoteArenaBytes =
    TaskArgs::kInlineBytesMax + 64 * (TaskArgs::kTensorsMax + 1);

// Why a task with these arguments cannot go to another host; empty where it can. The answer says
// what to do instead.
std::string why_not_remote(const TaskArgs& args);

// `args`: decoded where its segments are mapped. kInvalidArgument for what why_not_remote tells.
Result<void> pack_task(const mailbox::TaskPost& post, const model::ArgsDecoder& args,
                       const base::Sha256& digest, wire::Task* out);

// Of a TASK that was decoded. The tensors' bytes go to `arena`, which is segment 0 of `args`, and
// get uids that count up from `uid`.
Result<void> unpack_task(const wire::Task& task, std::span<std::byte> arena, Uid* uid,
                         mailbox::TaskPost* post, std::vector<std::byte>* args);

}  // namespace strata::engine
