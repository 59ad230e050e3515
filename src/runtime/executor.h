// Executor: what runs tasks: a table of resolved callables and the mapped heaps. One for each child
// process, or for each inline worker of this one.
//
// Knows no mailbox. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/core_types.h"
#include "mailbox/child_side.h"
#include "mailbox/parent_side.h"
#include "model/args.h"
#include "registry/payload.h"
#include "runtime/call_frame.h"
#include "runtime/inner_worker.h"
#include "strata/call.h"

namespace strata::runtime {

class Executor {
 public:
  // `segments`: the heaps, the parent's first; they outlive this. `path` is the worker's, for logs
  // ("L3/1"). `inner`: this is a child Worker, whose tasks are orchestration functions of it; null
  // for a helper process.
  Executor(std::vector<model::MappedSegment> segments, std::string path,
           InnerWorker* inner = nullptr);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  void omit_path_in_logs() { frame_.omit_path(); }
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
    bool inner = false;  // known to the inner Worker; fn is null
    std::string name;
  };

  Result<void> prepare(Entry& entry, registry::EntryRef ref, std::span<const std::byte> payload);
  uint32_t add_children(std::span<const std::byte> request, std::string* text);
  Result<void> apply(engine::Command command, registry::EntryRef ref,
                     std::span<const std::byte> payload);
  Result<strata_entry> resolve(const registry::PreparePayload& payload);
  Result<strata_entry> resolve_native(const registry::PreparePayload& payload,
                                      const model::NativeImportDescriptor& import);
  Result<void*> load(const registry::PreparePayload& payload,
                     const model::NativeImportDescriptor& import, std::string* path);
  static int32_t call(const Entry& entry, strata_call* raw, std::string* text);

  std::vector<model::MappedSegment> segments_;
  CallFrame frame_;
  InnerWorker* inner_;
  std::vector<Entry> entries_;  // by index
  std::map<std::string, void*>
      libraries_;  // loaded, by path; never unloaded: they may have threads
  model::ArgsDecoder decoder_;
};

}  // namespace strata::runtime
