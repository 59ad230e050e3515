// LocalMailboxEndpoint: a child process behind a mailbox. Over a memory policy, so that the
// simulator drives the same code; how to wake the child is handed in.
#pragma once

#include <string>
#include <utility>

#include "engine/endpoint.h"
#include "mailbox/parent_side.h"

namespace strata::engine {

// Waker: void operator()(const uint32_t* sleep_word), any thread.
template <class Memory, class Waker>
class LocalMailboxEndpoint final : public WorkerEndpoint {
 public:
  LocalMailboxEndpoint(Memory memory, void* region, Waker waker)
      : parent_(memory, region), waker_(std::move(waker)) {
    parent_.format();
  }

  const Waker& waker() const { return waker_; }

  std::optional<uint64_t> dispatch(const mailbox::TaskPost& post,
                                   std::span<const std::byte> args) override {
    return parent_.push(post, args);
  }
  bool has_room() override { return parent_.can_push(mailbox::kArgsBytesMax / 2); }
  bool revoke(uint64_t ticket) override { return parent_.revoke(ticket); }
  std::optional<int64_t> started(uint64_t ticket) const override { return parent_.started(ticket); }
  void cancel_through(uint64_t ticket) override { parent_.cancel_through(ticket); }
  Result<void> control(uint32_t command, std::span<const std::byte> request) override {
    return parent_.control_post(command, request);
  }
  bool control_outstanding() const override { return parent_.control_outstanding(); }
  bool needs_wake() override { return parent_.child_asleep_after_publish(); }
  void wake() override { waker_(parent_.child_sleep_word()); }
  bool asleep() const override { return parent_.child_asleep(); }
  void set_wake_at(uint64_t ticket) override { parent_.set_wake_at(ticket); }
  void fence() override { parent_.fence(); }
  bool has_news() const override { return parent_.has_news(); }

  bool has_news_ahead(uint32_t ahead) const override {
    return parent_.has_completion_ahead(ahead) || parent_.has_reply();
  }

  Result<void> poll(EndpointSink& sink) override {
    const mailbox::Polled polled =
        parent_.poll(kPollMax, [&](const mailbox::Completion& c) { sink.on_completion(c); });
    if (parent_.control_outstanding()) {
      parent_.control_poll([&](uint32_t command, uint32_t code, std::span<const std::byte> bytes) {
        sink.on_reply(command, code, bytes);
      });
    }
    if (polled.wake_child) waker_(parent_.child_sleep_word());
    if (parent_.corrupt() == nullptr) return {};
    return Error(Code::kCorrupt, Scope::kSession, std::string("mailbox: ") + parent_.corrupt());
  }
  void abandon(EndpointSink& sink) override {
    parent_.abandon([&](uint64_t task, uint64_t ticket, bool started) {
      sink.on_abandoned(task, ticket, started);
    });
  }

  void set_where(std::string where) override { where_ = std::move(where); }
  const std::string& where() const override { return where_; }

 private:
  static constexpr size_t kPollMax = 64;
  mailbox::ParentSide<Memory> parent_;
  Waker waker_;
  std::string where_;
};

}  // namespace strata::engine
