#include "runtime/call_frame.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/text.h"
#include "os/clock.h"

namespace strata::runtime {

void CallFrame::clear() {
  result_.clear();
  text_.clear();
}

strata_call CallFrame::open(const mailbox::TaskPost& post, const model::ArgsDecoder& args,
                            Cancelled cancelled) {
  cancelled_ = cancelled;
  deadline_ = post.deadline_ms == 0
                  ? base::Instant::never()
                  : os::monotonic_now() + base::Duration::from_ms(post.deadline_ms);
  strata_call raw{};
  raw.size = sizeof raw;
  raw.abi = STRATA_ABI;
  raw.scalars = args.scalars().data();
  raw.scalar_count = static_cast<uint32_t>(args.scalars().size());
  raw.inline_bytes = args.inline_bytes().data();
  raw.inline_nbytes = args.inline_bytes().size();
  raw.block_dim = post.block_dim;
  raw.flags = post.flags & ~mailbox::kFlagTimed;
  raw.deadline_ms = post.deadline_ms;
  raw.set_result = &CallFrame::set_result;
  raw.set_error = &CallFrame::set_error;
  raw.cancelled = &CallFrame::is_cancelled;
  raw.log = &CallFrame::log;
  raw.runtime = this;
  return raw;
}

void CallFrame::succeed(mailbox::TaskOutcome* outcome) {
  outcome->result = result_;
}

void CallFrame::fail(int32_t code, std::string_view text, mailbox::TaskOutcome* outcome) {
  text_ = std::string(base::cut_text(text, mailbox::kTextBytesMax));  // it may be text_ itself
  outcome->outcome = mailbox::Outcome::kTaskFailed;
  outcome->code = code;
  outcome->text = std::as_bytes(std::span(text_));
}

int32_t CallFrame::set_result(const strata_call* raw, const void* bytes, uint64_t n) {
  if (n > mailbox::kResultBytesMax) return -1;
  const auto* const from = static_cast<const std::byte*>(bytes);
  static_cast<CallFrame*>(raw->runtime)->result_.assign(from, from + n);
  return 0;
}

void CallFrame::set_error(const strata_call* raw, const char* text, uint64_t n) {
  static_cast<CallFrame*>(raw->runtime)
      ->text_.assign(base::cut_text({text, n}, mailbox::kTextBytesMax));
}

bool CallFrame::told_to_stop() const {
  if (deadline_ != base::Instant::never() && os::monotonic_now() >= deadline_) return true;
  return cancelled_.ask(cancelled_.context);
}

Cancelled CallFrame::cancelled() const {
  return {[](const void* self) { return static_cast<const CallFrame*>(self)->told_to_stop(); },
          this};
}

int32_t CallFrame::is_cancelled(const strata_call* raw) {
  return static_cast<const CallFrame*>(raw->runtime)->told_to_stop() ? 1 : 0;
}

void CallFrame::log(const strata_call* raw, int32_t level, const char* text, uint64_t n) {
  static constexpr const char* kLevels[] = {"trace", "debug", "info", "warning", "error"};
  const auto* const self = static_cast<const CallFrame*>(raw->runtime);
  const char* const name = level >= 0 && level <= 4 ? kLevels[level] : "info";
  const std::string_view shown = base::cut_text({text, n}, 8192);
  if (self->path_in_logs_) {
    fmt::print(stderr, "[{} {}] {}\n", self->path_, name, shown);
  } else {
    fmt::print(stderr, "{}: {}\n", name, shown);
  }
}

}  // namespace strata::runtime
