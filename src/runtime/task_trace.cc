#include "runtime/task_trace.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "engine/core_types.h"
#include "registry/payload.h"

namespace strata::runtime {
namespace {

constexpr uint32_t kIndexMax = 1u << 24;  // as Executor::control

const char* verb(uint32_t command) {
  switch (static_cast<engine::Command>(command)) {
    case engine::Command::kPrepare:
      return "prepare";
    case engine::Command::kCommit:
      return "commit";
    case engine::Command::kAbort:
      return "abort";
    case engine::Command::kUnregister:
      return "unregister";
    default:
      return nullptr;
  }
}

}  // namespace

void TaskTrace::control(uint64_t since, uint32_t command, std::span<const std::byte> request,
                        uint32_t code) {
  const uint64_t now = recorder_->now();
  base::ByteReader in(request);
  in.get<uint64_t>();  // the transaction
  const uint32_t index = in.get<uint32_t>();
  in.get<uint32_t>();  // the generation
  std::string text;
  if (const char* const what = verb(command); what != nullptr && in.ok() && index < kIndexMax) {
    if (index >= names_.size()) {
      names_.resize(index + 1);
      texts_.resize(index + 1);
    }
    if (command == static_cast<uint32_t>(engine::Command::kPrepare)) {
      const Result<registry::PreparePayload> payload =
          registry::decode_payload(request.last(in.left()));
      texts_[index] = payload ? payload->name : std::string("?");
      names_[index] = recorder_->name(texts_[index]);
    }
    text = fmt::format("{} {}", what, texts_[index]);
  } else if (command == static_cast<uint32_t>(engine::Command::kDropMapping)) {
    text = "drop mapping";
  } else {
    text = fmt::format("control {}", command);
  }
  trace::Event event;
  event.kind = trace::Kind::kControl;
  event.id = command;
  event.start = since;
  event.end = now;
  event.name = recorder_->name(text);
  if (code != 0) event.mark = trace::Mark::kFailed;
  recorder_->push(event);
}

}  // namespace strata::runtime
