// SpiedEndpoint: an endpoint as it is, and what passes it is shown to the Placement and
// Registrations checkers. From the fibers that step the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "engine/endpoint.h"
#include "model/args.h"
#include "sim/level_world.h"
#include "sim/placement.h"
#include "sim/registrations.h"
#include "sim/shared.h"
#include "sim/task_code.h"

namespace strata::sim {

class SpiedEndpoint final : public engine::WorkerEndpoint {
 public:
  SpiedEndpoint(std::unique_ptr<engine::WorkerEndpoint> inner, Shared* shared, uint32_t worker,
                model::MappedSegment heap)
      : inner_(std::move(inner)),
        shared_(*shared),
        placement_(shared->placement),
        registrations_(shared->registrations),
        worker_(worker),
        heap_(heap) {}

  std::optional<uint64_t> dispatch(const mailbox::TaskPost& post,
                                   std::span<const std::byte> args) override {
    const Result<void> decoded = decoder_.decode(args, [this](uint32_t) { return heap_; });
    STRATA_CHECK(decoded.ok());
    const Checks::Name name = TaskOrders::decode(decoder_.scalars()).name();
    placement_.on_dispatch(worker_, name);
    registrations_.on_dispatch(worker_, post.callable);
    const std::optional<uint64_t> ticket = inner_->dispatch(post, args);
    if (ticket) {
      placement_.on_taken(worker_, name, *ticket);
      shared_.overdue.on_given(worker_, name, *ticket, shared_.level->now());
    } else {
      placement_.on_refused(worker_, name);
    }
    return ticket;
  }
  bool revoke(uint64_t ticket) override {
    if (!inner_->revoke(ticket)) return false;
    placement_.on_back(worker_, ticket, false);
    shared_.overdue.on_back(worker_, ticket);
    return true;
  }
  void abandon(engine::EndpointSink& sink) override {
    Sink spied(this, &sink);
    inner_->abandon(spied);
  }

  std::optional<int64_t> started(uint64_t ticket) const override { return inner_->started(ticket); }
  bool has_room() override { return inner_->has_room(); }
  void cancel_through(uint64_t ticket) override { inner_->cancel_through(ticket); }
  Result<void> control(uint32_t command, std::span<const std::byte> request) override {
    Result<void> posted = inner_->control(command, request);
    if (posted) registrations_.on_control(worker_, command, request);
    return posted;
  }
  bool control_outstanding() const override { return inner_->control_outstanding(); }
  bool needs_wake() override { return inner_->needs_wake(); }
  void wake() override { inner_->wake(); }
  bool asleep() const override { return inner_->asleep(); }
  void set_wake_at(uint64_t ticket) override { inner_->set_wake_at(ticket); }
  void fence() override { inner_->fence(); }
  bool has_news() const override { return inner_->has_news(); }
  bool has_news_ahead(uint32_t ahead) const override { return inner_->has_news_ahead(ahead); }
  Result<void> poll(engine::EndpointSink& sink) override {
    Sink spied(this, &sink);
    return inner_->poll(spied);
  }
  void set_where(std::string where) override { inner_->set_where(std::move(where)); }
  const std::string& where() const override { return inner_->where(); }

 private:
  class Sink final : public engine::EndpointSink {
   public:
    Sink(SpiedEndpoint* spy, engine::EndpointSink* sink) : spy_(*spy), sink_(*sink) {}
    void on_completion(const mailbox::Completion& completion) override {
      spy_.shared_.overdue.on_seen(spy_.worker_, completion.ticket);
      sink_.on_completion(completion);
    }
    void on_reply(uint32_t command, uint32_t code, std::span<const std::byte> bytes) override {
      spy_.registrations_.on_reply(spy_.worker_, code);
      sink_.on_reply(command, code, bytes);
    }
    void on_abandoned(uint64_t task, uint64_t ticket, bool started) override {
      spy_.placement_.on_back(spy_.worker_, ticket, started);
      if (!started) spy_.shared_.overdue.on_back(spy_.worker_, ticket);
      sink_.on_abandoned(task, ticket, started);
    }

   private:
    SpiedEndpoint& spy_;
    engine::EndpointSink& sink_;
  };

  std::unique_ptr<engine::WorkerEndpoint> inner_;
  Shared& shared_;
  Placement& placement_;
  Registrations& registrations_;
  uint32_t worker_;
  model::MappedSegment heap_;
  model::ArgsDecoder decoder_;
};

}  // namespace strata::sim
