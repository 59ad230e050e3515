// RemoteEndpoint: a Worker of another host behind a session: what the engine says to a mailbox, in
// TASKs and controls, and the answers back. Pure; the session is a RemoteLink's.
//
// A task that was sent is not revoked: its cancel travels, and comes back as a completion.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/core_types.h"
#include "engine/endpoint.h"
#include "engine/remote_link.h"
#include "model/args.h"
#include "registry/payload.h"

namespace strata::engine {

class RemoteEndpoint final : public WorkerEndpoint {
 public:
  // `segments`: the heaps that arguments name, this Worker's first; they outlive this.
  RemoteEndpoint(std::shared_ptr<RemoteLink> link, std::vector<model::MappedSegment> segments)
      : link_(std::move(link)), segments_(std::move(segments)) {}

  std::optional<uint64_t> dispatch(const mailbox::TaskPost& post,
                                   std::span<const std::byte> args) override;
  bool has_room() override { return link_->has_credit(); }
  bool revoke(uint64_t) override { return false; }
  std::optional<int64_t> started(uint64_t ticket) const override;
  void cancel_through(uint64_t ticket) override;
  Result<void> control(uint32_t command, std::span<const std::byte> request) override;
  bool control_outstanding() const override { return command_.has_value(); }
  bool needs_wake() override { return link_->unsent(); }
  void wake() override { link_->flush(); }
  bool looks_cost() const override { return true; }
  bool wakes_up() const override { return link_->wakes_up(); }
  bool has_news() const override { return answer_ || !failed_.empty() || link_->readable(); }
  bool has_news_ahead(uint32_t) const override { return has_news(); }
  Result<void> poll(EndpointSink& sink) override;
  void abandon(EndpointSink& sink) override;
  void set_where(std::string where) override { where_ = std::move(where); }
  const std::string& where() const override { return where_; }

 private:
  struct Sent {
    uint64_t ticket;
    uint64_t task;
    uint64_t sequence;
  };
  // What the engine names by index.
  struct Known {
    uint32_t generation = 0;
    wire::RegistryKind registry = wire::RegistryKind::kDispatcher;
    base::Sha256 digest{};
    bool held = false;  // its COMMIT waits until it may be used
  };
  struct Answer {
    uint32_t code = 0;
    std::string text;
  };

  Result<void> prepare(uint64_t transaction, registry::EntryRef ref,
                       std::span<const std::byte> payload);
  Result<void> end_registration(wire::ControlCommand command, uint64_t transaction,
                                registry::EntryRef ref);
  Result<void> registration(Command command, std::span<const std::byte> request);
  template <class Body>
  Result<void> send(wire::ControlCommand command, const Body& body);
  void answer(uint32_t code, std::string text) { answer_ = Answer{code, std::move(text)}; }
  void complete(EndpointSink& sink, const RemoteLink::Completed& event);

  std::shared_ptr<RemoteLink> link_;
  std::vector<model::MappedSegment> segments_;
  model::ArgsDecoder decoder_;
  std::deque<Sent> sent_;  // not completed yet, oldest first
  uint64_t tickets_ = 0;
  std::map<uint32_t, Known> known_;
  std::optional<uint32_t> command_;                  // the engine's, whose answer is to come
  std::optional<Answer> answer_;                     // that needs nothing of the other side
  std::deque<std::pair<Sent, std::string>> failed_;  // that could not be sent
  std::vector<RemoteLink::Event> events_;
  std::optional<Error> corrupt_;
  std::string where_;
};

}  // namespace strata::engine
