// The part of Core that lends the memory of a Worker above to the inner tasks of one task.
#include <fmt/format.h>

#include "base/check.h"
#include "base/result.h"
#include "engine/core.h"

namespace strata::engine {

Result<void> Core::begin_imports(std::span<const ImportedArg> args,
                                 std::vector<uint32_t>* indices) {
  STRATA_CHECK(imports_.all().empty());
  indices->clear();
  for (const ImportedArg& arg : args) {
    const Result<uint32_t> import = import_of(arg);
    Result<graph::Region> region =
        import ? graph::region_of(arg.tensor, arg.buffer_bytes) : import.error();
    if (!region) {
      end_imports();
      return std::move(region).error();
    }
    imports_.grant(*import, arg.tensor, *region, arg.tag);
    indices->push_back(imports_.at(*import).index);
  }
  return {};
}

Result<uint32_t> Core::import_of(const ImportedArg& arg) {
  if (const auto known = imports_.find(arg.tensor.uid)) {
    const Imports::Import& import = imports_.at(*known);
    if (import.segment == arg.segment && import.buffer_offset == arg.buffer_offset &&
        import.buffer_bytes == arg.buffer_bytes) {
      return *known;
    }
    return Error(Code::kCorrupt, Scope::kTask,
                 fmt::format("two arguments place buffer {:016x}-{} differently",
                             arg.tensor.uid.high, arg.tensor.uid.low));
  }
  STRATA_ASSIGN(const uint32_t index, buffers_.create_import(arg.tensor.uid,
                                                             {.bytes = arg.buffer_bytes,
                                                              .segment = arg.segment,
                                                              .segment_offset = arg.buffer_offset},
                                                             imports_.next_number()));
  return imports_.add({index, arg.segment, arg.buffer_offset, arg.buffer_bytes, arg.tensor.uid});
}

void Core::end_imports() {
  for (const Imports::Import& import : imports_.all()) buffers_.release_owner(import.index);
  imports_.clear();
  if (buffers_.has_freed()) collect_freed();
}

}  // namespace strata::engine
