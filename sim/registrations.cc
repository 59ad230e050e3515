#include "sim/registrations.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "engine/core_types.h"

namespace strata::sim {
namespace {

constexpr auto kPrepare = static_cast<uint32_t>(engine::Command::kPrepare);
constexpr auto kCommit = static_cast<uint32_t>(engine::Command::kCommit);
constexpr auto kAbort = static_cast<uint32_t>(engine::Command::kAbort);
constexpr auto kUnregister = static_cast<uint32_t>(engine::Command::kUnregister);

}  // namespace

// Nobody may be told to commit while another one that was asked may still refuse.
void Registrations::check_commit(uint32_t worker, const Posted& posted) {
  for (const auto& [key, entry] : entries_) {
    if (entry.transaction != posted.transaction || entry.step != Step::kAsked) continue;
    checks_.fail(
        Verdict::kCorrectness,
        fmt::format("worker {} is told to commit callable {} before worker {} has prepared", worker,
                    posted.index, key.first));
  }
}

void Registrations::on_control(uint32_t worker, uint32_t command,
                               std::span<const std::byte> request) {
  posted_.erase(worker);
  if (command != kPrepare && command != kCommit && command != kAbort && command != kUnregister) {
    return;
  }
  base::ByteReader in(request);
  Posted posted{command};
  posted.transaction = in.get<uint64_t>();
  posted.index = in.get<uint32_t>();
  posted.generation = in.get<uint32_t>();
  posted_[worker] = posted;
  Entry& entry = entries_[{worker, posted.index}];
  if (command == kPrepare) {
    for (const auto& [key, other] : entries_) {
      if (other.transaction != posted.transaction) continue;
      if (other.step == Step::kAsked || other.step == Step::kPrepared) continue;
      checks_.fail(Verdict::kCorrectness,
                   fmt::format("worker {} is asked to prepare callable {} which worker {} commits",
                               worker, posted.index, key.first));
    }
    entry = {posted.transaction, posted.generation, Step::kAsked};
  } else if (command == kCommit) {
    check_commit(worker, posted);
    entry.step = Step::kCommitting;
  }
}

void Registrations::on_reply(uint32_t worker, uint32_t code) {
  const auto found = posted_.find(worker);
  if (found == posted_.end()) return;
  const Posted posted = found->second;
  posted_.erase(found);
  Entry& entry = entries_[{worker, posted.index}];
  if (posted.command == kAbort || posted.command == kUnregister) {
    entries_.erase({worker, posted.index});
  } else if (code == 0) {
    entry.step = posted.command == kPrepare ? Step::kPrepared : Step::kCommitted;
  }
}

void Registrations::on_dispatch(uint32_t worker, uint32_t callable) {
  const auto found = entries_.find({worker, callable});
  if (found == entries_.end() || found->second.step != Step::kCommitted) {
    checks_.fail(Verdict::kCorrectness,
                 fmt::format("worker {} is given a task of callable {}, which it has not committed",
                             worker, callable));
    return;
  }
  for (const auto& [key, entry] : entries_) {
    if (entry.transaction != found->second.transaction || entry.step == Step::kCommitted) continue;
    checks_.fail(
        Verdict::kCorrectness,
        fmt::format("worker {} is given a task of callable {}, which worker {} was asked to "
                    "take too and has not committed",
                    worker, callable, key.first));
  }
}

void Registrations::on_lost(uint32_t worker) {
  posted_.erase(worker);
  std::erase_if(entries_, [worker](const auto& item) { return item.first.first == worker; });
}

}  // namespace strata::sim
