// The part of WorkerCore that starts child processes, replaces them and tells of them.
#include <fmt/format.h>

#include "base/result.h"
#include "engine/local_mailbox_endpoint.h"
#include "engine/remote_endpoint.h"
#include "os/clock.h"
#include "os/fork_server.h"
#include "os/futex.h"
#include "runtime/context.h"
#include "runtime/spec.h"
#include "runtime/worker_core.h"

namespace strata {
namespace {

// Wakes the child of one mailbox, and holds the mailbox's memory.
struct MailboxWaker {
  os::SharedRegion region;
  void operator()(const uint32_t* word) const {
    os::futex_wake(reinterpret_cast<const std::atomic<uint32_t>*>(word), 1);
  }
};
using Endpoint = engine::LocalMailboxEndpoint<mailbox::PlainMemory, MailboxWaker>;

constexpr uint32_t bit(TensorArgType tag) {
  return 1u << static_cast<uint32_t>(tag);
}
constexpr uint32_t kAllTags =
    bit(INPUT) | bit(OUTPUT) | bit(INOUT) | bit(OUTPUT_EXISTING) | bit(NO_DEP);

}  // namespace

// ---------------------------------------------------------------- start

Result<void> WorkerCore::start_children() {
  STRATA_TRY(start_server());
  STRATA_TRY(check_local_functions());
  STRATA_TRY(capture_output());
  STRATA_TRY(make_chip_notes());
  world_->set_maker(maker());
  STRATA_TRY(world_->watch_server(*server_));
  roster_ = runtime::Roster(spec_, next_is_remote_);
  for (uint32_t i = 0; i < roster_.size(); ++i) {
    STRATA_ASSIGN(std::unique_ptr<engine::WorkerEndpoint> endpoint, endpoint_of(i));
    STRATA_TRY(front_->call([&](engine::Core& core) {
      STRATA_CHECK(core.add_worker(std::move(endpoint), caps_of(i)) == i);
      return world_->spawn(core, i);
    }));
  }
  front_->call([](engine::Core& core) { core.expect_no_more_workers(); });
  return start_engine();
}

// This Worker's own server, in place of one that was lost.
Result<void> WorkerCore::start_server() {
  // Else the process's server, which outlives this Worker, would keep the heap's pages with it.
  STRATA_TRY(heap_.set_inherited(false));
  if (timeline_) STRATA_TRY(timeline_->set_inherited(false));
  server_.reset();
  STRATA_ASSIGN(runtime::MadeServer made, runtime::make_server(spec_));
  server_ = std::move(made.server);
  set_start_report(std::move(made.report));
  STRATA_TRY(heap_.set_inherited(true));
  if (timeline_) STRATA_TRY(timeline_->set_inherited(true));
  return {};
}

runtime::ThreadWorld::Maker WorkerCore::maker() {
  return {.endpoint = [](uint32_t) { return make_endpoint(); },
          .spawn = [this](engine::Core& core, uint32_t worker) { return spawn(core, worker); },
          .server = [this]() -> Result<os::ForkServer*> {
            STRATA_TRY(start_server());
            return server_.get();
          }};
}

Result<std::unique_ptr<engine::WorkerEndpoint>> WorkerCore::make_endpoint() {
  STRATA_ASSIGN(os::SharedRegion region,
                os::SharedRegion::create("strata-mailbox", mailbox::kRegionBytes));
  std::byte* const at = region.data();
  return std::unique_ptr<engine::WorkerEndpoint>(
      std::make_unique<Endpoint>(mailbox::PlainMemory{}, at, MailboxWaker{std::move(region)}));
}

Result<std::unique_ptr<engine::WorkerEndpoint>> WorkerCore::endpoint_of(uint32_t worker) {
  const auto remote = remotes_.find(worker);
  if (remote == remotes_.end()) return make_endpoint();
  return std::make_unique<engine::RemoteEndpoint>(remote->second, segments());
}

Result<void> WorkerCore::spawn(engine::Core& core, uint32_t worker) {
  if (roster_.is_remote(worker)) {
    const std::shared_ptr<runtime::RemoteWorker>& remote = remotes_.at(worker);
    world_->expect_remote(core, worker, remote);
    return remote_service_->add(remote);
  }
  const bool is_chip = roster_.kind(worker) == runtime::RosterEntry::Kind::kChip;
  device::ChipNote* const note = is_chip ? &chip_note(worker) : nullptr;
  const uint64_t id = world_->expect_child(core, worker, note);
  const auto& endpoint = static_cast<const Endpoint&>(core.endpoint(worker));
  std::vector<int> fds = {endpoint.waker().region.fd(), hub_.fd(), world_->signal_fd(), heap_.fd()};
  for (const WorkerPlace::Heap& heap : place_.heaps) fds.push_back(heap.fd);
  if (place_.timeline != nullptr) fds.push_back(place_.timeline->fd());
  if (is_chip) {
    fds.push_back(chip_notes_[worker].fd());
    note->reset();
  }
  if (output_) {
    STRATA_ASSIGN(const auto more, output_->open(worker));
    fds.insert(fds.end(), more.begin(), more.end());
  }
  return server_->spawn(id, runtime::encode(child_spec(core, worker)), fds);
}

// ---------------------------------------------------------------- what is told of them

Worker::Child WorkerCore::child(const engine::Core& core, uint32_t worker) const {
  const runtime::ThreadWorld::Child& at = world_->child(worker);
  Worker::Child out;
  out.pid = at.pid;
  out.alive = at.asked && !at.gone;
  out.tasks_done = core.tasks_done(worker);
  out.id = static_cast<int>(worker);
  out.incarnation = core.incarnation(worker);
  switch (core.worker_state(worker)) {
    case engine::WorkerState::kAdded:
    case engine::WorkerState::kGreeted:
    case engine::WorkerState::kReplaying:
      out.state = ChildState::kStarting;
      break;
    case engine::WorkerState::kReady:
      out.state =
          core.scheduler().queues().length(worker) > 0 ? ChildState::kRunning : ChildState::kReady;
      break;
    case engine::WorkerState::kReplaced:
      out.state = ChildState::kReplaced;
      break;
    case engine::WorkerState::kLost:
      out.state = ChildState::kDead;
      break;
  }
  if (out.alive && at.stopped) out.state = ChildState::kStopped;
  const engine::WorkerCaps caps = caps_of(worker);
  out.caps = {caps.kinds, kAllTags, !caps.remote, caps.nested};
  if (at.remote != nullptr) {
    out.where = at.remote->endpoint();
    out.caps.kinds &= at.caps.kinds;
    out.caps.tags = at.caps.directions;
  }
  return out;
}

std::vector<Worker::Child> WorkerCore::children(engine::Pool pool) {
  if (!must_be_home("children")) return {};
  return front_->call([&](engine::Core& core) {
    std::vector<Worker::Child> out;
    // Until then init() is still making what is looked at here.
    const Life life = life_.load(std::memory_order_acquire);
    if (life == Life::kCreated || life == Life::kStarting || !server_) return out;
    // While nothing runs nobody listens for deaths.
    world_->collect(core, false);
    for (uint32_t worker = 0; worker < roster_.size(); ++worker) {
      if (roster_.is_sub(worker) == (pool == engine::Pool::kSub))
        out.push_back(child(core, worker));
    }
    return out;
  });
}

std::vector<Worker::Child> WorkerCore::sub_children() {
  return children(engine::Pool::kSub);
}

std::vector<Worker::Child> WorkerCore::next_level_children() {
  return children(engine::Pool::kNext);
}

}  // namespace strata
