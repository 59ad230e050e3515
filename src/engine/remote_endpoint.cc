#include "engine/remote_endpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/result.h"
#include "engine/remote_task.h"
#include "wire/codec.h"
#include "wire/descriptor.h"

namespace strata::engine {
namespace {

constexpr uint64_t kBlobBytesMax =
    wire::kRegisterBytesMax - wire::kDescriptorBytesMax - wire::kSymbolBytesMax - 8;

Error broken(std::string text) {
  return Error(Code::kCorrupt, Scope::kSession, std::move(text));
}

// The error of a task as its own host tells it, with where its cause arose.
std::string text_of(const wire::Completion& completion) {
  const wire::Root& root = completion.root;
  std::string text = completion.message;
  if (!root.host.empty()) {
    text += fmt::format("{}at {} on host {}", text.empty() ? "it failed " : "; ",
                        root.path.empty() ? "its Worker" : root.path, root.host);
  }
  return text;
}

}  // namespace

// ---------------------------------------------------------------- tasks

std::optional<uint64_t> RemoteEndpoint::dispatch(const mailbox::TaskPost& post,
                                                 std::span<const std::byte> args) {
  if (!link_->has_credit()) return std::nullopt;
  const Sent sent{++tickets_, post.task, 0};
  const auto fail = [&](std::string why) {
    failed_.emplace_back(sent, std::move(why));
    sent_.push_back(sent);
    return sent.ticket;
  };
  const auto known = known_.find(post.callable);
  if (known == known_.end()) return fail("its callable is not registered there");
  const Result<void> decoded = decoder_.decode(args, [this](uint32_t segment) {
    return segment < segments_.size() ? segments_[segment] : model::MappedSegment{};
  });
  if (!decoded) return fail(decoded.error().message());
  wire::Task task;
  if (Result<void> packed = pack_task(post, decoder_, known->second.digest, &task); !packed) {
    return fail(packed.error().message());
  }
  const std::optional<uint64_t> sequence = link_->send(task);
  if (!sequence) {
    --tickets_;
    return std::nullopt;
  }
  sent_.push_back({sent.ticket, sent.task, *sequence});
  return sent.ticket;
}

std::optional<int64_t> RemoteEndpoint::started(uint64_t ticket) const {
  const uint64_t executing = link_->executing();
  for (const Sent& sent : sent_) {
    // When it began is told in another host's time: what counts is when it was heard of.
    if (sent.ticket == ticket && sent.sequence != 0 && sent.sequence == executing) return 0;
  }
  return std::nullopt;
}

void RemoteEndpoint::cancel_through(uint64_t ticket) {
  uint64_t first = 0, last = 0;
  for (const Sent& sent : sent_) {
    if (sent.ticket > ticket || sent.sequence == 0) continue;
    if (first == 0) first = sent.sequence;
    last = sent.sequence;
  }
  if (first != 0) link_->cancel(first, last);
}

Result<void> RemoteEndpoint::poll(EndpointSink& sink) {
  while (!failed_.empty()) {
    const auto [sent, why] = std::move(failed_.front());
    failed_.pop_front();
    std::erase_if(sent_, [&](const Sent& other) { return other.ticket == sent.ticket; });
    mailbox::Completion completion{.task = sent.task, .ticket = sent.ticket};
    completion.outcome = mailbox::Outcome::kTaskFailed;
    completion.text = std::as_bytes(std::span(why));
    sink.on_completion(completion);
  }
  if (answer_) {
    const Answer told = *std::move(answer_);
    answer_.reset();
    const uint32_t command = *std::exchange(command_, std::nullopt);
    sink.on_reply(command, told.code, std::as_bytes(std::span(told.text)));
  }
  link_->pull(&events_);
  for (const RemoteLink::Event& event : events_) {
    if (const auto* const completed = std::get_if<RemoteLink::Completed>(&event)) {
      complete(sink, *completed);
    } else {
      const auto& reply = std::get<wire::ControlReply>(event);
      if (!command_) {
        corrupt_ = broken("an answer to a control that was not sent");
        break;
      }
      const uint32_t command = *std::exchange(command_, std::nullopt);
      sink.on_reply(command, reply.code, std::as_bytes(std::span(reply.message)));
    }
  }
  events_.clear();
  if (corrupt_) return *corrupt_;
  return {};
}

void RemoteEndpoint::complete(EndpointSink& sink, const RemoteLink::Completed& event) {
  const auto sent = std::find_if(sent_.begin(), sent_.end(), [&](const Sent& other) {
    return other.sequence == event.sequence;
  });
  if (sent == sent_.end() || event.sequence == 0) {
    corrupt_ =
        broken(fmt::format("a completion of TASK {}, which is not in flight", event.sequence));
    return;
  }
  const wire::Completion& told = event.completion;
  mailbox::Completion completion{.task = sent->task, .ticket = sent->ticket};
  completion.started_ns = told.started_ns;
  completion.ended_ns = told.ended_ns;
  sent_.erase(sent);
  if (told.outcome == wire::Outcome::kOk) {
    completion.result = told.result;
    sink.on_completion(completion);
    return;
  }
  const bool late = told.code == static_cast<uint32_t>(Code::kDeadline);
  completion.outcome = late ? mailbox::Outcome::kDeadline : mailbox::Outcome::kTaskFailed;
  completion.code = static_cast<int32_t>(told.code);
  const std::string text = text_of(told);
  completion.text = std::as_bytes(std::span(text));
  sink.on_completion(completion);
}

// All that was sent may have run.
void RemoteEndpoint::abandon(EndpointSink& sink) {
  const std::deque<Sent> left = std::exchange(sent_, {});
  for (const Sent& sent : left) sink.on_abandoned(sent.task, sent.ticket, sent.sequence != 0);
  failed_.clear();
  command_.reset();
  answer_.reset();
}

// ---------------------------------------------------------------- controls

Result<void> RemoteEndpoint::control(uint32_t command, std::span<const std::byte> request) {
  if (command_) {
    return Error(Code::kWrongState, Scope::kSession, "a control stands there already");
  }
  command_ = command;
  Result<void> done;
  switch (static_cast<Command>(command)) {
    case Command::kHello:
      answer(0, {});  // it is greeted once it has said READY
      break;
    case Command::kExit:
      link_->drain();
      break;
    case Command::kPrepare:
    case Command::kCommit:
    case Command::kAbort:
    case Command::kUnregister:
    case Command::kActivate:
      done = registration(static_cast<Command>(command), request);
      break;
    default:
      answer(static_cast<uint32_t>(Code::kUnsupported),
             "a Worker of another host has the children that its RemoteWorkerSpec names");
  }
  if (!done) command_.reset();
  return done;
}

template <class Body>
Result<void> RemoteEndpoint::send(wire::ControlCommand command, const Body& body) {
  std::vector<std::byte> bytes;
  STRATA_TRY(wire::encode(body, &bytes));
  return link_->send(command, std::move(bytes));
}

Result<void> RemoteEndpoint::registration(Command command, std::span<const std::byte> request) {
  base::ByteReader in(request);
  const auto transaction = in.get<uint64_t>();
  registry::EntryRef ref;
  ref.index = in.get<uint32_t>();
  ref.generation = in.get<uint32_t>();
  if (!in.ok()) return broken("a control of a registration that is too short");
  if (command == Command::kPrepare) return prepare(transaction, ref, request.last(in.left()));
  const auto found = known_.find(ref.index);
  const bool is_it = found != known_.end() && found->second.generation == ref.generation;
  if (command == Command::kCommit || command == Command::kActivate) {
    if (!is_it) {
      answer(static_cast<uint32_t>(Code::kWrongState), "a commit of what was not prepared");
      return {};
    }
    // An inner one that is not to be used yet is committed when it is.
    if (command == Command::kCommit && found->second.held) return answer(0, {}), Result<void>();
    found->second.held = false;
    return end_registration(wire::ControlCommand::kCommitRegister, transaction, ref);
  }
  if (!is_it) return answer(0, {}), Result<void>();
  if (command == Command::kAbort) {
    return end_registration(wire::ControlCommand::kAbortRegister, transaction, ref);
  }
  const Known known = found->second;
  known_.erase(found);
  return send(wire::ControlCommand::kUnregister,
              wire::Unregister{.registry = known.registry, .digest = known.digest});
}

Result<void> RemoteEndpoint::prepare(uint64_t transaction, registry::EntryRef ref,
                                     std::span<const std::byte> payload) {
  STRATA_ASSIGN(const registry::PreparePayload decoded, registry::decode_payload(payload));
  wire::PrepareRegister body;
  body.transaction = transaction;
  body.registry = decoded.inner ? wire::RegistryKind::kInner : wire::RegistryKind::kDispatcher;
  body.kind = model::kind_of(decoded.descriptor);
  wire::CallablePayload callable{
      .descriptor = model::descriptor_bytes(decoded.descriptor), .name = decoded.name, .blob = {}};
  body.digest = model::digest_of(callable.descriptor);
  if (decoded.blob_bytes > 0) {
    const uint32_t segment = decoded.blob_segment;
    if (segment >= segments_.size() || decoded.blob_offset > segments_[segment].bytes ||
        decoded.blob_bytes > segments_[segment].bytes - decoded.blob_offset) {
      return broken("a kernel that leaves the heap");
    }
    if (decoded.blob_bytes > kBlobBytesMax) {
      return Error(Code::kResourceExhausted, Scope::kCall,
                   fmt::format("kernel '{}' has {} bytes, and at most {} go to another host",
                               decoded.name, decoded.blob_bytes, kBlobBytesMax));
    }
    callable.blob = {segments_[segment].base + decoded.blob_offset, decoded.blob_bytes};
  }
  STRATA_TRY(wire::encode(callable, &body.payload));
  known_[ref.index] = {ref.generation, body.registry, body.digest, decoded.inactive};
  return send(wire::ControlCommand::kPrepareRegister, body);
}

Result<void> RemoteEndpoint::end_registration(wire::ControlCommand command, uint64_t transaction,
                                              registry::EntryRef ref) {
  const Known& known = known_.at(ref.index);
  const wire::EndRegister body{
      .transaction = transaction, .registry = known.registry, .digest = known.digest};
  if (command == wire::ControlCommand::kAbortRegister) {
    Result<void> sent = send(command, body);
    known_.erase(ref.index);
    return sent;
  }
  return send(command, body);
}

}  // namespace strata::engine
