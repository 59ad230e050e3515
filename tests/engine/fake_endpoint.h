// FakeEndpoint: a worker that does what the test says, and misbehaves on demand. Deterministic.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"
#include "engine/endpoint.h"

namespace strata::engine {

class FakeEndpoint final : public WorkerEndpoint {
 public:
  struct Entry {
    mailbox::TaskPost post;
    uint64_t ticket;
    std::vector<std::byte> args;
    bool started = false;
    int64_t started_ns = 0;
  };
  struct Control {
    uint32_t command;
    std::vector<std::byte> request;
  };

  // ---- what the engine calls
  std::optional<uint64_t> dispatch(const mailbox::TaskPost& post,
                                   std::span<const std::byte> args) override {
    if (queue.size() >= room) {
      ++refusals;
      return std::nullopt;
    }
    queue.push_back({post, ++last_ticket, {args.begin(), args.end()}});
    posted_ = true;
    return last_ticket;
  }
  bool has_room() override { return queue.size() < room; }
  bool revoke(uint64_t ticket) override {
    ++revokes;
    const auto it =
        std::ranges::find_if(queue, [&](const Entry& entry) { return entry.ticket == ticket; });
    if (it == queue.end() || it->started) return false;
    queue.erase(it);
    return true;
  }
  std::optional<int64_t> started(uint64_t ticket) const override {
    for (const Entry& entry : queue) {
      if (entry.ticket == ticket && entry.started) return entry.started_ns;
    }
    return std::nullopt;
  }
  void cancel_through(uint64_t ticket) override { cancelled_through = ticket; }
  Result<void> control(uint32_t command, std::span<const std::byte> request) override {
    if (refuse_controls) return Error(Code::kResourceExhausted, Scope::kCall, "no such control");
    if (posted_control) return Error(Code::kWrongState, Scope::kCall, "one is outstanding");
    posted_control = Control{command, {request.begin(), request.end()}};
    commands.push_back(command);
    posted_ = true;
    return {};
  }
  bool control_outstanding() const override { return posted_control.has_value(); }
  bool needs_wake() override { return std::exchange(posted_, false) && asleep; }
  void wake() override { ++wakes; }
  bool has_news_ahead(uint32_t) const override { return has_news(); }
  bool has_news() const override {
    return !done_.empty() || reply_.has_value() || corrupt != nullptr;
  }
  Result<void> poll(EndpointSink& sink) override {
    while (!done_.empty()) {
      const Done done = std::move(done_.front());
      done_.pop_front();
      mailbox::Completion completion = done.completion;
      completion.result = done.result;
      completion.text = std::as_bytes(std::span(done.text));
      sink.on_completion(completion);
    }
    if (reply_) {
      const Reply reply = *std::exchange(reply_, std::nullopt);
      posted_control.reset();
      sink.on_reply(reply.command, reply.code, std::as_bytes(std::span(reply.text)));
    }
    if (corrupt != nullptr) return Error(Code::kCorrupt, Scope::kSession, corrupt);
    return {};
  }
  void abandon(EndpointSink& sink) override {
    const std::deque<Entry> left = std::exchange(queue, {});
    for (const Entry& entry : left) sink.on_abandoned(entry.post.task, entry.ticket, entry.started);
  }
  void set_where(std::string where) override { where_ = std::move(where); }
  const std::string& where() const override { return where_; }

  // ---- what the test calls
  void start(size_t count = 1) {
    for (size_t i = 0; i < count && i < queue.size(); ++i) queue[i].started = true;
  }
  // The oldest one, and it says when.
  void start_at(base::Instant when) {
    queue.front().started = true;
    queue.front().started_ns = when.ns;
  }
  // The oldest task ends.
  void end(std::string_view result = {}) {
    const auto bytes = std::as_bytes(std::span(result));
    complete(take(), mailbox::Outcome::kOk, 0, {bytes.begin(), bytes.end()}, {});
  }
  void fail(std::string text, int32_t code = 1) {
    complete(take(), mailbox::Outcome::kTaskFailed, code, {}, std::move(text));
  }
  void end_late(base::Instant began, base::Instant ended, std::string text = {}) {
    complete(take(), mailbox::Outcome::kDeadline, 0, {}, std::move(text));
    done_.back().completion.started_ns = began.ns;
    done_.back().completion.ended_ns = ended.ns;
  }
  void complete_unknown(uint64_t task, uint64_t ticket) {
    mailbox::TaskPost post;
    post.task = task;
    complete({post, ticket, {}}, mailbox::Outcome::kOk, 0, {}, {});
  }
  // The answer to the control that is posted.
  void answer(uint32_t code = 0, std::string text = {}) {
    reply_ = Reply{posted_control->command, code, std::move(text)};
  }
  void answer_as(uint32_t command) { reply_ = Reply{command, 0, {}}; }
  bool answered() const { return reply_.has_value(); }

  std::deque<Entry> queue;  // outstanding, oldest first
  size_t room = 1000;
  bool refuse_controls = false;
  bool asleep = false;
  const char* corrupt = nullptr;
  std::optional<Control> posted_control;
  std::vector<uint32_t> commands;  // all controls that were posted
  uint64_t last_ticket = 0;
  uint64_t cancelled_through = 0;
  int refusals = 0;
  int revokes = 0;
  int wakes = 0;

 private:
  struct Done {
    mailbox::Completion completion;
    std::vector<std::byte> result;
    std::string text;
  };
  struct Reply {
    uint32_t command;
    uint32_t code;
    std::string text;
  };

  Entry take() {
    Entry entry = std::move(queue.front());
    queue.pop_front();
    return entry;
  }
  void complete(const Entry& entry, mailbox::Outcome outcome, int32_t code,
                std::vector<std::byte> result, std::string text) {
    mailbox::Completion completion;
    completion.task = entry.post.task;
    completion.ticket = entry.ticket;
    completion.outcome = outcome;
    completion.code = code;
    done_.push_back({completion, std::move(result), std::move(text)});
  }

  std::deque<Done> done_;
  std::optional<Reply> reply_;
  std::string where_ = "fake";
  bool posted_ = false;
};

}  // namespace strata::engine
