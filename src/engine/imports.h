// Imports: what the inner tasks of one task may touch of the memory that it was given.
//
// An import is a buffer of a Worker above that arguments of the task name; each argument is a right
// to its bytes. Not the identity of these buffers, which is BufferTable's. Under the step token.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "graph/region.h"
#include "strata/error.h"
#include "strata/tensor.h"
#include "strata/types.h"

namespace strata::engine {

// One argument of the task, as this Worker's children see its memory.
struct ImportedArg {
  Tensor tensor;  // without the index
  TensorArgType tag = TensorArgType::kNoDep;
  uint32_t segment = 0;
  uint64_t buffer_offset = 0;  // of the buffer in the segment
  uint64_t buffer_bytes = 0;
};

class Imports {
 public:
  struct Import {
    uint32_t index;  // in the BufferTable
    uint32_t segment;
    uint64_t buffer_offset;
    uint64_t buffer_bytes;
    Uid uid;
  };

  // The number of the import of that buffer; none where it has none yet.
  std::optional<uint32_t> find(const Uid& uid) const;
  uint32_t add(const Import& import);
  uint32_t next_number() const { return static_cast<uint32_t>(imports_.size()); }
  const Import& at(uint32_t import) const { return imports_[import]; }
  void grant(uint32_t import, const Tensor& tensor, const graph::Region& region, TensorArgType tag);
  // Why an inner task may not use that tensor of the import, whose bytes are `region`, like that;
  // nothing where it may. The bytes lie within one argument, or the tensor is one.
  std::optional<Error> refusal(uint32_t import, const Tensor& tensor, const graph::Region& region,
                               TensorArgType tag) const;
  std::span<const Import> all() const { return imports_; }
  void clear();

 private:
  struct Right {
    uint32_t import;
    Tensor tensor;
    graph::Region region;
    TensorArgType tag;
  };
  std::vector<Import> imports_;
  std::vector<Right> rights_;  // by argument
};

}  // namespace strata::engine
