// Error: what failed, where, why, and how far the damage reaches.
//
// Not an exception: Strata throws nothing. A value; copy it, keep it, print it.
// Any thread may read a const Error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "strata/export.h"

namespace strata {

// What the caller can do about it. Numbers are never reused.
enum class Code : uint32_t {
  kInvalidArgument = 1,    // the call can never succeed as written
  kNotFound = 2,           // the thing named does not exist here
  kWrongState = 3,         // right call, wrong moment or wrong place
  kResourceExhausted = 4,  // a named limit was reached; the text names the option that raises it
  kDeadline = 5,           // a wait passed its deadline
  kCancelled = 6,          // the user asked for it
  kTaskFailed = 7,         // user code returned non-zero or threw
  kEndpointFailed = 8,     // a worker was lost; the task may have run
  kSkipped = 9,            // not run, because it reads what a failed task should have written
  kPoisoned = 10,          // the bytes asked for were never written: their producer failed
  kAbiMismatch = 11,       // an object or peer was built for another Strata
  kUnsupported = 12,       // this build or machine lacks what was asked for
  kSystem = 13,            // the operating system refused; the text has its reason
  kNoWorker = 14,          // no live worker may take the task
  kCorrupt = 15,           // bytes that must hold a structure do not
  kUserCode = 16,          // an orchestration function returned or threw an error of its own
};

// The blast radius: the largest thing that is affected for good.
enum class Scope : uint32_t {
  kCall = 1,
  kTask = 2,
  kBuffer = 3,
  kSession = 4,
  kGeneration = 5,
  kProcess = 6,
};

STRATA_PUBLIC std::string_view name_of(Code code);
STRATA_PUBLIC std::string_view name_of(Scope scope);

class STRATA_PUBLIC Error {
 public:
  // Texts longer than this are cut on a character border.
  static constexpr size_t kMessageBytesMax = 8192;

  Error(Code code, Scope scope, std::string message, std::string where = {});

  Code code() const { return code_; }
  Scope scope() const { return scope_; }
  // What failed, why, and what to do; one line unless it carries the text of user code.
  const std::string& message() const { return message_; }
  // Worker path, process and task where it arose ("L3/1 pid 4711, task 12 'gemm'"); may be empty.
  const std::string& where() const { return where_; }
  // "TASK_FAILED [task] at L3/1 pid 4711: ..."
  std::string to_string() const;

  // The same error with a place, when the place is known only further up. Keeps a place it has.
  Error at(std::string where) &&;

 private:
  Code code_;
  Scope scope_;
  std::string message_;
  std::string where_;
};

}  // namespace strata
