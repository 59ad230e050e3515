// What others ask the registry for: where a callable is usable, and why not.
#include <fmt/format.h>

#include "registry/registry.h"

namespace strata::registry {
namespace {

Error wrong_state(std::string text) {
  return Error(Code::kWrongState, Scope::kCall, std::move(text));
}

}  // namespace

bool Registry::will_have(EntryRef entry, uint32_t worker, uint32_t kinds) const {
  if (!visible(entry)) return false;
  const Entry& at = entries_[entry.index];
  if (!at.everywhere) return std::binary_search(at.listed.begin(), at.listed.end(), worker);
  return !at.inner && (kinds >> static_cast<uint32_t>(at.kind) & 1) != 0;
}

std::vector<uint32_t> Registry::usable_workers(EntryRef entry, uint32_t pool) const {
  std::vector<uint32_t> out;
  for (uint32_t worker = 0; worker < workers_.size(); ++worker) {
    if (workers_[worker].pool != pool || !worker_ready(worker) || !usable(entry, worker)) continue;
    out.push_back(worker);
  }
  return out;
}

std::optional<Registry::Info> Registry::info(uint32_t index) const {
  if (index >= entries_.size() || entries_[index].state == State::kFree) return std::nullopt;
  const Entry& entry = entries_[index];
  return Info{entry.digest,
              entry.kind,
              entry.name,
              EntryRef{index, entry.generation},
              entry.handles,
              entry.references,
              entry.state == State::kVisible};
}

std::optional<EntryRef> Registry::find(const model::Digest& digest, bool inner) const {
  const auto it = by_key_.find({digest, inner});
  if (it == by_key_.end() || entries_[it->second].state != State::kVisible) return std::nullopt;
  return EntryRef{it->second, entries_[it->second].generation};
}

Error Registry::why_unusable(EntryRef ref, std::optional<uint32_t> worker) const {
  const auto not_found = [](std::string text) {
    return Error(Code::kNotFound, Scope::kCall, std::move(text));
  };
  if (ref.generation == 0 || ref.index >= entries_.size() ||
      ref.generation > entries_[ref.index].generation) {
    return not_found("a callable handle that this Worker never gave");
  }
  const Entry& entry = entries_[ref.index];
  if (entry.generation != ref.generation || entry.state == State::kFree) {
    return not_found("a callable handle whose callable was unregistered");
  }
  if (entry.state == State::kPreparing) {
    return wrong_state(fmt::format("callable '{}' is still being registered", entry.name));
  }
  if (entry.state != State::kVisible) {
    return not_found(fmt::format("callable '{}' was unregistered", entry.name));
  }
  if (worker && uncertain(ref.index, *worker)) {
    return wrong_state(
        fmt::format("callable '{}' failed to be taken back from worker {}, so it "
                    "may not be used there until that worker is replaced",
                    entry.name, *worker));
  }
  const std::string where = worker ? fmt::format("worker {}", *worker) : "every worker";
  return not_found(fmt::format("callable '{}' is not registered on {}", entry.name, where));
}

}  // namespace strata::registry
