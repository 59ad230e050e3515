// The body of WorkerCore::add_inline; see worker_core.h.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "runtime/worker_core.h"

namespace strata {

template <class Exec>
void WorkerCore::add_inline(Exec& executor, engine::WorkerCaps caps) {
  const auto number = static_cast<uint32_t>(inline_traces_.size());
  inline_traces_.push_back(inline_trace(path_ + "/" + std::to_string(number)));
  InlineTrace* const traced = inline_traces_.back().get();
  auto run = [&executor, traced](const mailbox::TaskPost& post, std::span<const std::byte> args,
                                 const std::atomic<bool>& cancelled) {
    mailbox::TaskOutcome outcome;
    const bool timed = mailbox::is_timed(post.deadline_ms, post.flags);
    const int64_t began = timed ? os::monotonic_now().ns : 0;
    if (traced != nullptr) traced->trace.begin(traced->endpoint->running(), post.callable);
    executor.run(
        post, args,
        {[](const void* flag) { return static_cast<const std::atomic<bool>*>(flag)->load(); },
         &cancelled},
        &outcome);
    if (timed) {
      outcome.started_ns = began;
      outcome.ended_ns = os::monotonic_now().ns;
      mailbox::judge_deadline(post.deadline_ms, &outcome);
    }
    if (traced != nullptr) traced->trace.end(outcome.outcome != mailbox::Outcome::kOk);
    return engine::InlineOutcome{
        outcome.outcome,
        outcome.code,
        {outcome.result.begin(), outcome.result.end()},
        {reinterpret_cast<const char*>(outcome.text.data()), outcome.text.size()},
        outcome.started_ns,
        outcome.ended_ns};
  };
  auto control = [&executor, traced](uint32_t command, std::span<const std::byte> request) {
    std::string text;
    uint32_t code = 0;
    const uint64_t since = traced != nullptr ? traced->trace.now() : 0;
    if (command != mailbox::kCommandHello) {
      code = executor.control(command, request, &text);
      if (traced != nullptr) traced->trace.control(since, command, request, code);
    }
    const auto bytes = std::as_bytes(std::span(text));
    return std::pair(code, std::vector<std::byte>(bytes.begin(), bytes.end()));
  };
  auto endpoint =
      std::make_unique<engine::InlineEndpoint>(engine::InlineEndpoint::Runner{run, control});
  if (traced != nullptr) traced->endpoint = endpoint.get();
  front_->call([&](engine::Core& core) {
    STRATA_CHECK(core.add_worker(std::move(endpoint), caps) == number);
    core.start_worker(number, os::monotonic_now());
  });
}

}  // namespace strata
