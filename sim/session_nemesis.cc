// The faults of the simulated world of sessions.
#include "sim/session_life.h"
#include "wire/codec.h"

namespace strata::sim {

using wire::Lane;

void SessionWorld::fault() {
  if (healed_) return;
  push(now_ + around(options_.faults_ns / 12), Kind::kFault);
  std::vector<Life*> live;
  for (const auto& life : lives_) {
    if (!life->parent_over && !life->runner_over && processes_[life->process].alive) {
      live.push_back(life.get());
    }
  }
  if (live.empty()) return;
  Life& life = *live[prng_.below(live.size())];
  std::vector<SessionFault> kinds;
  for (size_t i = 0; i < left_.size(); ++i) {
    if (left_[i] > 0) kinds.push_back(static_cast<SessionFault>(i));
  }
  if (kinds.empty()) return;
  const SessionFault kind = kinds[prng_.below(kinds.size())];
  --left_[static_cast<size_t>(kind)];
  note("fault", static_cast<uint64_t>(kind), life.index);
  const Lane lane = session::kLanes[prng_.below(session::kLaneCount)];
  const auto direction = static_cast<uint32_t>(prng_.below(2));
  switch (kind) {
    case SessionFault::kKill:
      return kill(life);
    case SessionFault::kPause: {
      const int64_t ns = around(6'000'000'000);
      if (ns > options_.timing.beat.ns * 2) fired(kind);
      return pause(prng_.chance(1, 2) ? kParent : life.process, ns);
    }
    case SessionFault::kSleep: {
      fired(kind);
      const int64_t ns = 1'000'000'000 + around(15'000'000'000);
      for (uint32_t process = 0; process < processes_.size(); ++process) pause(process, ns);
      return;
    }
    case SessionFault::kReset: {
      Link& link = life.link(lane, direction);
      link.reset_at = link.carried + prng_.between(1, 2000);
      return;
    }
    case SessionFault::kStall: {
      const int64_t ns = around(4'000'000'000);
      if (ns > options_.timing.beat.ns * 2) fired(kind);
      stall(life, lane, direction, ns);
      if (prng_.chance(1, 2)) stall(life, lane, 1 - direction, ns);
      return;
    }
    case SessionFault::kPartition:
      fired(kind);
      return partition(life);
    case SessionFault::kSwizzle:
      fired(kind);
      return swizzle(life);
    case SessionFault::kOldFrame:
      return old_frame(life);
    case SessionFault::kGarbage:
      return garbage(life);
    case SessionFault::kParentDies:
      return parent_dies();
    case SessionFault::kHang:
    case SessionFault::kCount:
      return;
  }
}

void SessionWorld::kill(Life& life) {
  fired(SessionFault::kKill);
  processes_[life.process].alive = false;
  life.runner_over = true;
  life.closed = true;
  // What it wrote arrives; the rest ends with it.
  close_all(life, true);
}

void SessionWorld::pause(uint32_t process, int64_t ns) {
  SimProcess& p = processes_[process];
  if (!p.alive || p.paused) return;
  p.paused = true;
  p.paused_since = now_;
  ++p.pauses;
  note("paused", process, static_cast<uint64_t>(ns));
  push(now_ + ns, Kind::kResume, process, 0, 0, p.pauses);
}

void SessionWorld::stall(Life& life, Lane lane, uint32_t direction, int64_t ns) {
  Link& link = life.link(lane, direction);
  link.stalled_until = std::max(link.stalled_until, now_ + ns);
}

// All lanes, one way or both, for a while or until the end of the faults.
void SessionWorld::partition(Life& life) {
  const int64_t ns = prng_.chance(1, 4) ? options_.faults_ns : around(8'000'000'000);
  const uint64_t ways = prng_.below(3);
  for (const Lane lane : session::kLanes) {
    for (uint32_t direction = 0; direction < 2; ++direction) {
      if (ways == 2 || ways == direction) stall(life, lane, direction, ns);
    }
  }
}

// The links stop one by one and come back in another order.
void SessionWorld::swizzle(Life& life) {
  for (const Lane lane : session::kLanes) {
    for (uint32_t direction = 0; direction < 2; ++direction) {
      if (prng_.chance(3, 4)) stall(life, lane, direction, around(3'000'000'000));
    }
  }
}

// A frame that the session before it might have left behind, between two frames of this one.
void SessionWorld::old_frame(Life& life) {
  const Lane lane = session::kLanes[prng_.below(session::kLaneCount)];
  const bool to_parent = prng_.chance(1, 2);
  if (!life.up[session::index_of(lane)][to_parent]) return;
  std::vector<std::byte>& out = to_parent ? life.runner->output(lane) : life.parent->output(lane);
  Link& link = life.link(lane, to_parent ? 1 : 0);
  if (!out.empty() || link.gone || link.ended) return;  // in the middle of a frame, or closed
  wire::FrameHeader header;
  const bool of_worker = prng_.chance(1, 5);  // this session's, but another worker's
  header.session_id = of_worker ? life.truth.id() : life.old_id;
  header.worker_id = static_cast<int32_t>(life.slot) + (of_worker ? 1 : 0);
  const uint64_t sent = life.truth.command().size();
  std::vector<std::byte> bytes;
  Result<void> made;
  if (lane == Lane::kHealth) {
    header.type = wire::FrameType::kHealth;
    header.sequence = prng_.between(1, 40);
    made = wire::append_frame(header, wire::Health{.sent_ns = 1}, &bytes);
  } else if (lane == Lane::kData) {
    header.type = to_parent ? wire::FrameType::kControlReply : wire::FrameType::kControl;
    header.sequence = prng_.between(1, 4);
    wire::Control control;
    control.command = wire::ControlCommand::kAllocBuffer;
    wire::ControlReply reply;
    reply.command = control.command;
    made = to_parent ? wire::append_frame(header, reply, &bytes)
                     : wire::append_frame(header, control, &bytes);
  } else if (to_parent) {
    header.type = wire::FrameType::kCompletion;
    header.sequence = sent > 4 ? sent - prng_.below(4) : sent;
    for (size_t i = 0; i < life.truth.command().size(); ++i) {
      if (!life.truth.command()[i].answered) {
        header.sequence = i + 1;
        break;
      }
    }
    made = wire::append_frame(header, wire::Completion{}, &bytes);
  } else {
    header.type = wire::FrameType::kTask;
    header.sequence = sent + 1;
    wire::Task task;
    task.scalars = {life.old_id, header.sequence};
    made = wire::append_frame(header, task, &bytes);
  }
  if (!made) return checks_.fail(Verdict::kCrash, made.error().to_string());
  fired(SessionFault::kOldFrame);
  write(life, lane, to_parent ? 1 : 0, bytes, true);
}

// One bit of what is under way.
void SessionWorld::garbage(Life& life) {
  for (const Lane lane : session::kLanes) {
    for (Link& link : life.links[session::index_of(lane)]) {
      if (link.pieces.empty() || link.pieces.front().bytes.empty() || link.ended) continue;
      std::vector<std::byte>& bytes = link.pieces.front().bytes;
      bytes[prng_.below(bytes.size())] ^= static_cast<std::byte>(1u << prng_.below(8));
      fired(SessionFault::kGarbage);
      return;
    }
  }
  // Nothing is under way: bytes that nobody sent.
  const Lane lane = session::kLanes[prng_.below(session::kLaneCount)];
  const auto direction = static_cast<uint32_t>(prng_.below(2));
  if (!life.up[session::index_of(lane)][direction] || life.link(lane, direction).ended) return;
  std::vector<std::byte> bytes(prng_.between(48, 300));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng_.below(256));
  fired(SessionFault::kGarbage);
  write(life, lane, direction, bytes, true);
}

void SessionWorld::parent_dies() {
  fired(SessionFault::kParentDies);
  processes_[kParent].alive = false;
  for (const auto& life : lives_) {
    if (!life->parent_over) close_all(*life, false);
  }
}

// From here on all that can finish must finish.
void SessionWorld::heal() {
  healed_ = true;
  note("healed");
  for (const auto& life : lives_) {
    for (auto& both : life->links) {
      for (Link& link : both) {
        link.stalled_until = std::min(link.stalled_until, now_);
        link.reset_at = UINT64_MAX;
      }
    }
  }
  for (uint32_t process = 0; process < processes_.size(); ++process) {
    if (processes_[process].paused) {
      push(now_, Kind::kResume, process, 0, 0, processes_[process].pauses);
    }
  }
}

}  // namespace strata::sim
