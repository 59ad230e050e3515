// The streams of bytes between the two ends of a session.
#include "sim/session_life.h"

namespace strata::sim {

using wire::Lane;

namespace {

Error reset_error() {
  return Error(Code::kSystem, Scope::kSession, "connection reset by peer");
}

}  // namespace

// Moves what waits in the outputs of one side into the links; `all`: whether there is room or not.
void SessionWorld::pump(Life& life, bool runner, bool all) {
  bool left = false;
  for (const Lane lane : session::kLanes) {
    if (!life.up[session::index_of(lane)][runner]) continue;
    std::vector<std::byte>& out = runner ? life.runner->output(lane) : life.parent->output(lane);
    if (out.empty()) continue;
    write(life, lane, runner ? 1 : 0, out, all);
    left = left || !out.empty();
  }
  if (!left || all || life.pumping[runner]) return;
  life.pumping[runner] = true;
  push(now_ + around(5'000'000), Kind::kPump, life.index, 0, runner);
}

void SessionWorld::write(Life& life, Lane lane, uint32_t direction, std::vector<std::byte>& bytes,
                         bool all) {
  Link& link = life.link(lane, direction);
  if (link.gone || link.ended) {
    bytes.clear();
    return;
  }
  const bool small = prng_.chance(options_.pieces, 1000);
  size_t done = 0;
  while (done < bytes.size() && (all || link.bytes < options_.link_bytes)) {
    size_t n = bytes.size() - done;
    if (!all) n = std::min<size_t>(n, options_.link_bytes - link.bytes);
    if (small) n = std::min<size_t>(n, prng_.between(1, 64));
    link.last = std::max(link.last, now_ + options_.delay_ns +
                                        static_cast<int64_t>(prng_.below(options_.jitter_ns + 1)));
    const auto begin = bytes.begin() + static_cast<ptrdiff_t>(done);
    link.pieces.push_back({link.last, {begin, begin + static_cast<ptrdiff_t>(n)}, false});
    link.bytes += n;
    done += n;
    push(link.last, Kind::kArrive, life.index, static_cast<uint32_t>(lane), direction);
  }
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(done));
}

void SessionWorld::close_all(Life& life, bool runner) {
  for (const Lane lane : session::kLanes) {
    if (!life.up[session::index_of(lane)][runner]) continue;
    Link& link = life.link(lane, runner ? 1 : 0);
    if (link.gone || link.ended) continue;
    link.ended = true;
    link.last = std::max(link.last, now_ + options_.delay_ns);
    link.pieces.push_back({link.last, {}, true});
    push(link.last, Kind::kArrive, life.index, static_cast<uint32_t>(lane), runner ? 1 : 0);
  }
}

void SessionWorld::arrive(Life& life, Lane lane, uint32_t direction) {
  Link& link = life.link(lane, direction);
  const bool to_parent = direction == 1;
  if (to_parent ? life.parent_over : life.runner_over) return;
  if (!life.up[session::index_of(lane)][to_parent ? 0 : 1]) {
    // Nobody reads it yet; where nobody ever will, the deadline of the start ends it.
    push(now_ + 10'000'000, Kind::kArrive, life.index, static_cast<uint32_t>(lane), direction);
    return;
  }
  if (link.stalled_until > now_) {
    push(link.stalled_until, Kind::kArrive, life.index, static_cast<uint32_t>(lane), direction);
    return;
  }
  while (!link.gone && !link.pieces.empty() && link.pieces.front().at <= now_) {
    Piece piece = std::move(link.pieces.front());
    link.pieces.pop_front();
    link.bytes -= piece.bytes.size();
    if (piece.end) {
      tell_closed(life, lane, to_parent, false);
      break;
    }
    const bool reset = link.carried + piece.bytes.size() >= link.reset_at;
    if (reset) piece.bytes.resize(link.reset_at - std::min(link.carried, link.reset_at));
    link.carried += piece.bytes.size();
    if (!piece.bytes.empty()) give(life, lane, to_parent, piece.bytes);
    if (reset) {
      fired(SessionFault::kReset);
      break_lane(life, lane);
    }
    if (to_parent ? life.parent_over : life.runner_over) break;
  }
  after(life, !to_parent);
}

void SessionWorld::give(Life& life, Lane lane, bool to_parent, std::span<const std::byte> bytes) {
  note("arrives", life.index * 8 + static_cast<uint64_t>(lane), to_parent, bytes.size());
  const uint32_t process = to_parent ? kParent : life.process;
  if (lane == Lane::kHealth) {
    life.truth.on_health_bytes(to_parent, bytes, processes_[process], now_);
  }
  if (to_parent) {
    life.parent->on_bytes(lane, bytes, local(kParent));
  } else {
    life.runner->on_bytes(lane, bytes, local(process));
  }
}

// Both directions are gone; each end learns of it when it looks.
void SessionWorld::break_lane(Life& life, Lane lane) {
  note("reset", life.index, static_cast<uint64_t>(lane));
  for (uint32_t direction = 0; direction < 2; ++direction) {
    Link& link = life.link(lane, direction);
    link.pieces.clear();
    link.bytes = 0;
    link.reset_at = UINT64_MAX;
    link.pieces.push_back({now_ + options_.delay_ns, {}, true});
    link.ended = true;
    push(now_ + options_.delay_ns, Kind::kArrive, life.index, static_cast<uint32_t>(lane),
         direction);
  }
}

void SessionWorld::tell_closed(Life& life, Lane lane, bool to_parent, bool reset) {
  Link& link = life.link(lane, to_parent ? 1 : 0);
  if (link.told) return;
  link.told = true;
  note("closed", life.index, static_cast<uint64_t>(lane), to_parent);
  std::optional<Error> why;
  if (reset) why = reset_error();
  if (to_parent) {
    const bool draining = life.parent->draining();
    life.parent->on_lane_closed(lane, why, local(kParent));
    if (!life.parent_over && !draining) {
      checks_.fail(Verdict::kCorrectness, "a closed lane has not ended the parent's side");
    }
  } else {
    life.runner->on_lane_closed(lane, why, local(life.process));
    if (!life.runner_over) {
      checks_.fail(Verdict::kCorrectness, "a closed lane has not ended the runner's side");
    }
  }
}

}  // namespace strata::sim
