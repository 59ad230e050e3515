// InlineEndpoint: a worker that is calls in this process. dispatch() only queues; the thread that
// steps the engine runs run_one() without the token, then polls. Tasks run one at a time, in the
// order of their dispatch.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/endpoint.h"

namespace strata::engine {

// What one call left behind.
struct InlineOutcome {
  mailbox::Outcome outcome = mailbox::Outcome::kOk;
  int32_t code = 0;
  std::vector<std::byte> result;
  std::string text;
  int64_t started_ns = 0;  // of a task that is timed
  int64_t ended_ns = 0;
};

class InlineEndpoint final : public WorkerEndpoint {
 public:
  struct Runner {
    // Both without the token, one at a time.
    std::function<InlineOutcome(const mailbox::TaskPost&, std::span<const std::byte> args,
                                const std::atomic<bool>& cancelled)>
        task;
    std::function<std::pair<uint32_t, std::vector<std::byte>>(uint32_t command,
                                                              std::span<const std::byte>)>
        control;
  };

  explicit InlineEndpoint(Runner runner) : runner_(std::move(runner)) {}

  std::optional<uint64_t> dispatch(const mailbox::TaskPost& post,
                                   std::span<const std::byte> args) override {
    queue_.push_back({post, ++ticket_, {args.begin(), args.end()}});
    return ticket_;
  }
  bool has_room() override { return true; }
  bool revoke(uint64_t ticket) override {
    for (auto it = queue_.begin(); it != queue_.end(); ++it) {
      if (it->ticket != ticket) continue;
      queue_.erase(it);
      return true;
    }
    return false;
  }
  std::optional<int64_t> started(uint64_t ticket) const override {
    return running_ == ticket ? std::optional<int64_t>(0) : std::nullopt;
  }
  void cancel_through(uint64_t ticket) override {
    if (running_ != 0 && running_ <= ticket) cancelled_ = true;
  }
  Result<void> control(uint32_t command, std::span<const std::byte> request) override {
    control_ = Control{command, {request.begin(), request.end()}};
    return {};
  }
  bool control_outstanding() const override { return control_.has_value() || reply_.has_value(); }
  bool needs_wake() override { return false; }
  void wake() override {}
  bool has_news() const override { return false; }  // there is no other thread to look for it

  bool has_news_ahead(uint32_t) const override { return false; }

  // --- for the thread that steps: take under the token, run without it, put under the token.
  bool has_work() const { return running_ == 0 && (control_ || !queue_.empty()); }
  void take() {
    cancelled_ = false;
    if (control_) {
      running_ = kControl;
      return;
    }
    current_ = std::move(queue_.front());
    queue_.pop_front();
    running_ = current_.ticket;
  }
  void run() {
    if (running_ == kControl) {
      answer_ = runner_.control(control_->command, control_->request);
    } else {
      outcome_ = runner_.task(current_.post, current_.args, cancelled_);
    }
  }
  // The ticket of the task that runs; for the runner.
  uint64_t running() const { return running_; }
  void put() {
    if (running_ == kControl) {
      reply_ = Reply{control_->command, answer_.first, std::move(answer_.second)};
      control_.reset();
    } else {
      done_.push_back({current_.post.task, current_.ticket, std::move(outcome_)});
    }
    running_ = 0;
  }

  Result<void> poll(EndpointSink& sink) override {
    while (!done_.empty()) {
      const Done done = std::move(done_.front());
      done_.pop_front();
      mailbox::Completion completion;
      completion.task = done.task;
      completion.ticket = done.ticket;
      completion.outcome = done.outcome.outcome;
      completion.code = done.outcome.code;
      completion.started_ns = done.outcome.started_ns;
      completion.ended_ns = done.outcome.ended_ns;
      completion.result = done.outcome.result;
      completion.text = std::as_bytes(std::span(done.outcome.text));
      sink.on_completion(completion);
    }
    if (reply_) {
      const Reply reply = std::move(*reply_);
      reply_.reset();
      sink.on_reply(reply.command, reply.code, reply.bytes);
    }
    return {};
  }
  void abandon(EndpointSink&) override {}
  const std::string& where() const override { return where_; }

 private:
  static constexpr uint64_t kControl = ~uint64_t{0};
  struct Queued {
    mailbox::TaskPost post;
    uint64_t ticket = 0;
    std::vector<std::byte> args;
  };
  struct Control {
    uint32_t command;
    std::vector<std::byte> request;
  };
  struct Reply {
    uint32_t command;
    uint32_t code;
    std::vector<std::byte> bytes;
  };
  struct Done {
    uint64_t task;
    uint64_t ticket;
    InlineOutcome outcome;
  };

  Runner runner_;
  uint64_t ticket_ = 0;
  uint64_t running_ = 0;  // ticket or kControl
  std::atomic<bool> cancelled_ = false;
  std::deque<Queued> queue_;
  std::deque<Done> done_;
  Queued current_;
  InlineOutcome outcome_;
  std::optional<Control> control_;
  std::pair<uint32_t, std::vector<std::byte>> answer_;
  std::optional<Reply> reply_;
  std::string where_ = "inline";
};

}  // namespace strata::engine
