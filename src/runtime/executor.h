// Executor: what runs tasks: a table of resolved callables and the mapped heap. One for each child
// process, or for the inline worker of this one.
//
// Knows no mailbox. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "model/args.h"
#include "registry/payload.h"
#include "runtime/call_frame.h"
#include "strata/call.h"

namespace strata::runtime {

class Executor {
 public:
  // `heap` outlives this. `path` is the worker's, for logs ("L3/1").
  Executor(std::span<std::byte> heap, std::string path);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // The four phases of a registration. 0, or a strata::Code and its text.
  uint32_t control(uint32_t command, std::span<const std::byte> request, std::string* text);

  // The spans of the outcome hold until the next run.
  void run(const mailbox::TaskPost& post, std::span<const std::byte> args, Cancelled cancelled,
           mailbox::TaskOutcome* outcome);

 private:
  struct Entry {
    uint32_t generation = 0;
    strata_entry fn = nullptr;
    bool committed = false;
    std::string name;
  };

  Result<strata_entry> resolve(const registry::PreparePayload& payload);
  Result<strata_entry> resolve_native(const registry::PreparePayload& payload,
                                      const model::NativeImportDescriptor& import);
  Result<void*> load(const registry::PreparePayload& payload,
                     const model::NativeImportDescriptor& import, std::string* path);
  static int32_t call(const Entry& entry, strata_call* raw, std::string* thrown);

  std::span<std::byte> heap_;
  CallFrame frame_;
  std::vector<Entry> entries_;  // by index
  std::map<std::string, void*>
      libraries_;  // loaded, by path; never unloaded: they may have threads
  model::ArgsDecoder decoder_;
};

}  // namespace strata::runtime
