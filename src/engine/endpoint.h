// WorkerEndpoint: what the engine drives: one worker, wherever it lives.
//
// All calls but has_news() and wake() by the thread that holds the step token. An endpoint never
// blocks and never sleeps.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "mailbox/parent_side.h"
#include "strata/result.h"

namespace strata::engine {

// What came back from a worker. The spans are valid inside the call.
class EndpointSink {
 public:
  virtual void on_completion(const mailbox::Completion& completion) = 0;
  virtual void on_reply(uint32_t command, uint32_t code, std::span<const std::byte> bytes) = 0;
  // A task that a lost worker did not complete.
  virtual void on_abandoned(uint64_t task, uint64_t ticket, bool started) = 0;

 protected:
  ~EndpointSink() = default;
};

class WorkerEndpoint {
 public:
  virtual ~WorkerEndpoint() = default;

  // Puts a task where the worker finds it, and gives the name by which it is revoked. None where
  // there is no room now.
  virtual std::optional<uint64_t> dispatch(const mailbox::TaskPost& post,
                                           std::span<const std::byte> args) = 0;
  virtual bool has_room() = 0;
  // True: the task never starts. False: it has started or ended.
  virtual bool revoke(uint64_t ticket) = 0;
  // When the task began, by the worker's word; 0: it has, and nobody knows when. Nothing where it
  // has not, or where that is not known.
  virtual std::optional<int64_t> started(uint64_t /*ticket*/) const { return std::nullopt; }
  // The callables of all tickets up to this one see that they are cancelled.
  virtual void cancel_through(uint64_t ticket) = 0;
  // One control at a time; its answer comes by on_reply.
  virtual Result<void> control(uint32_t command, std::span<const std::byte> request) = 0;
  virtual bool control_outstanding() const = 0;

  // After dispatch, control: true where somebody must call wake(), once the token is released.
  virtual bool needs_wake() = 0;
  virtual void wake() = 0;  // any thread

  // A look at whether it sleeps; what it says may be past.
  virtual bool asleep() const { return false; }
  // has_news() is a system call now and then.
  virtual bool looks_cost() const { return false; }
  // Whether it slept when it was given what it has now, and has not answered since: to look for an
  // answer for a while is too short then, and keeps its core busy.
  virtual bool wakes_up() const { return false; }
  // While the engine sleeps it need not hear of completions of earlier tickets than this one, as
  // long as the worker has more to do. 0: it hears of every one.
  virtual void set_wake_at(uint64_t) {}
  virtual void fence() {}

  // A look; any thread. Whoever sees something polls, or makes another thread look.
  virtual bool has_news() const = 0;
  // The same, but of completions only the one after `ahead` others counts; any thread.
  virtual bool has_news_ahead(uint32_t ahead) const = 0;
  // Gives what came to `sink`. An Error: what the worker wrote does not hold together.
  virtual Result<void> poll(EndpointSink& sink) = 0;
  // The worker is gone and poll() finds no more.
  virtual void abandon(EndpointSink& sink) = 0;

  // "pid 4711", for texts.
  virtual void set_where(std::string) {}
  virtual const std::string& where() const = 0;
};

}  // namespace strata::engine
