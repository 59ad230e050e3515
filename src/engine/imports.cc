#include "engine/imports.h"

#include <fmt/format.h>

namespace strata::engine {
namespace {

std::string text_of(const graph::Region& region) {
  if (region.rows <= 1) return fmt::format("bytes {} to {}", region.begin, region.end());
  return fmt::format("{} rows of {} bytes, {} apart, from byte {}", region.rows, region.row_bytes,
                     region.pitch, region.begin);
}

bool same_view(const Tensor& a, const Tensor& b) {
  return a.offset == b.offset && a.dtype == b.dtype && a.rank == b.rank && a.shape == b.shape &&
         a.stride == b.stride;
}

}  // namespace

std::optional<uint32_t> Imports::find(const Uid& uid) const {
  for (uint32_t i = 0; i < imports_.size(); ++i) {
    if (imports_[i].uid == uid) return i;
  }
  return std::nullopt;
}

uint32_t Imports::add(const Import& import) {
  imports_.push_back(import);
  return static_cast<uint32_t>(imports_.size() - 1);
}

void Imports::grant(uint32_t import, const Tensor& tensor, const graph::Region& region,
                    TensorArgType tag) {
  rights_.push_back({import, tensor, region, tag});
}

std::optional<Error> Imports::refusal(uint32_t import, const Tensor& tensor,
                                      const graph::Region& region, TensorArgType tag) const {
  bool may_read = !reads(tag);
  bool may_write = !writes(tag);
  bool named = false;
  for (const Right& right : rights_) {
    if (right.import != import) continue;
    // A cover contains nothing surely, but the same view names the same bytes.
    if (!graph::contains(right.region, region) && !same_view(right.tensor, tensor)) continue;
    named = true;
    may_read = may_read || reads(right.tag);
    may_write = may_write || writes(right.tag);
  }
  if (named && may_read && may_write) [[likely]]
    return std::nullopt;
  const auto refused = [&](std::string_view why) {
    return Error(
        Code::kInvalidArgument, Scope::kCall,
        fmt::format("an inner task's {} of {} of buffer {:016x}-{}: {}", name_of(tag),
                    text_of(region), imports_[import].uid.high, imports_[import].uid.low, why));
  };
  if (!named) {
    return refused(region.cover
                       ? "whether the bytes of this view lie within one argument of the task "
                         "cannot be decided: pass a range or a rectangle"
                       : "no argument of the task surely names all of these bytes; inner tasks may "
                         "use only what lies within one argument");
  }
  if (!may_read) {
    return refused(
        "no argument of the task that names these bytes gives the right to read them: "
        "pass them to it as INPUT or INOUT");
  }
  return refused(
      "no argument of the task that names these bytes gives the right to write them: "
      "pass them to it as OUTPUT, OUTPUT_EXISTING or INOUT");
}

void Imports::clear() {
  imports_.clear();
  rights_.clear();
}

}  // namespace strata::engine
