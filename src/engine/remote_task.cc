#include "engine/remote_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/result.h"
#include "model/extent.h"

namespace strata::engine {
namespace {

constexpr size_t kAlign = 64;

// Elements of a view in their order, one after the other.
void gather(const strata_tensor& t, uint32_t d, const std::byte* from, size_t element,
            std::byte** to) {
  if (d == t.rank) {
    std::memcpy(*to, from, element);
    *to += element;
    return;
  }
  if (d + 1 == t.rank && t.stride[d] == 1) {
    std::memcpy(*to, from, t.shape[d] * element);
    *to += t.shape[d] * element;
    return;
  }
  for (uint64_t i = 0; i < t.shape[d]; ++i) {
    gather(t, d + 1, from, element, to);
    from += t.stride[d] * static_cast<int64_t>(element);
  }
}

// False where it is more than goes inline.
bool add_bytes(uint8_t dtype, uint32_t rank, const uint64_t* shape, uint64_t* bytes) {
  uint64_t own = size_of(static_cast<DType>(dtype));
  for (uint32_t d = 0; d < rank; ++d) {
    if (__builtin_mul_overflow(own, shape[d], &own)) return false;
  }
  *bytes += own;
  return own <= TaskArgs::kInlineBytesMax && *bytes <= TaskArgs::kInlineBytesMax;
}

void make_contiguous(wire::TaskTensor* tensor) {
  int64_t stride = 1;
  for (uint32_t d = tensor->rank; d-- > 0;) {
    tensor->stride[d] = stride;
    stride *= static_cast<int64_t>(tensor->shape[d]);
  }
}

void put(std::vector<std::byte>* out, const void* from, size_t n) {
  if (n == 0) return;
  const size_t at = out->size();
  out->resize(at + n);
  std::memcpy(out->data() + at, from, n);
}

std::string too_large() {
  return fmt::format(
      "its INPUT tensors and inline bytes are more than {} bytes, and what goes to another host "
      "with a task is at most that",
      TaskArgs::kInlineBytesMax);
}

std::string not_input(size_t number, std::string_view tag) {
  return fmt::format(
      "tensor {} is {}, and another host has no part in this Worker's memory: only an INPUT goes "
      "there, by value; give what is made there back by Call::set_result",
      number, tag);
}

}  // namespace

std::string why_not_remote(const TaskArgs& args) {
  uint64_t bytes = args.inline_bytes().size();
  for (size_t i = 0; i < args.tensors().size(); ++i) {
    const TensorArg& arg = args.tensors()[i];
    if (arg.tag != TensorArgType::kInput) return not_input(i, name_of(arg.tag));
    if (!add_bytes(static_cast<uint8_t>(arg.tensor.dtype), arg.tensor.rank, arg.tensor.shape.data(),
                   &bytes)) {
      return too_large();
    }
  }
  return {};
}

Result<void> pack_task(const mailbox::TaskPost& post, const model::ArgsDecoder& args,
                       const base::Sha256& digest, wire::Task* out) {
  const auto refuse = [](std::string text) {
    return Error(Code::kInvalidArgument, Scope::kTask, std::move(text));
  };
  *out = {};
  out->digest = digest;
  out->config.block_dim = post.block_dim;
  out->config.flags = post.flags & (wire::kFlagTimeline | wire::kFlagDumpArgs);
  out->config.deadline_ms = post.deadline_ms;
  out->scalars.assign(args.scalars().begin(), args.scalars().end());
  out->inline_bytes.assign(args.inline_bytes().begin(), args.inline_bytes().end());
  uint64_t bytes = out->inline_bytes.size();
  for (size_t i = 0; i < args.tensors().size(); ++i) {
    const strata_tensor& t = args.tensors()[i];
    const auto tag = static_cast<TensorArgType>(t.tag);
    if (tag != TensorArgType::kInput) return refuse(not_input(i, name_of(tag)));
    const uint64_t begin = bytes;
    if (!add_bytes(t.dtype, t.rank, t.shape, &bytes)) return refuse(too_large());
    wire::TaskTensor& tensor = out->tensors.emplace_back();
    tensor.dtype = static_cast<DType>(t.dtype);
    tensor.rank = t.rank;
    std::copy_n(t.shape, t.rank, tensor.shape.begin());
    make_contiguous(&tensor);
    tensor.desc.space = wire::Space::kHostInline;
    tensor.desc.inline_offset = static_cast<uint32_t>(begin);
    tensor.desc.inline_len = static_cast<uint32_t>(bytes - begin);
    out->inline_bytes.resize(bytes);
    std::byte* to = out->inline_bytes.data() + begin;
    if (bytes > begin) {
      gather(t, 0, static_cast<const std::byte*>(t.data), size_of(tensor.dtype), &to);
    }
  }
  return {};
}

Result<void> unpack_task(const wire::Task& task, std::span<std::byte> arena, Uid* uid,
                         mailbox::TaskPost* post, std::vector<std::byte>* args) {
  post->flags = task.config.flags;
  post->block_dim = task.config.block_dim;
  post->deadline_ms = task.config.deadline_ms;
  args->clear();
  size_t own = task.inline_bytes.size();  // of the arguments, before any tensor's
  for (const wire::TaskTensor& tensor : task.tensors) {
    if (tensor.desc.space == wire::Space::kHostInline) {
      own = std::min<size_t>(own, tensor.desc.inline_offset);
    }
  }
  const model::ArgsHeader header{static_cast<uint32_t>(task.tensors.size()),
                                 static_cast<uint32_t>(task.scalars.size()),
                                 static_cast<uint32_t>(own), model::kArgsWithRefs};
  put(args, &header, sizeof header);
  std::vector<model::ArgsRef> refs;
  size_t used = 0;
  for (size_t i = 0; i < task.tensors.size(); ++i) {
    const wire::TaskTensor& t = task.tensors[i];
    if (t.desc.space != wire::Space::kHostInline) {
      return Error(Code::kUnsupported, Scope::kTask,
                   fmt::format("tensor {} is {}, and this version takes HOST_INLINE alone", i,
                               wire::wire_name(t.desc.space)));
    }
    const size_t n = t.desc.inline_len;
    if (used >= arena.size() || n > arena.size() - used) {
      return Error(Code::kResourceExhausted, Scope::kTask,
                   fmt::format("the tensors are more than {} bytes", arena.size()));
    }
    if (n > 0) {
      std::memcpy(arena.data() + used, task.inline_bytes.data() + t.desc.inline_offset, n);
    }
    model::Extent extent;
    if (!model::extent_inside(t.dtype, t.rank, 0, t.shape.data(), t.stride.data(), n, &extent)) {
      return Error(Code::kCorrupt, Scope::kSession,
                   fmt::format("tensor {} leaves its {} inline bytes", i, n));
    }
    const model::ArgsTensor fixed{0,
                                  static_cast<uint8_t>(t.dtype),
                                  t.rank,
                                  static_cast<uint8_t>(t.tag),
                                  static_cast<uint8_t>(t.transfer),
                                  used,
                                  extent.end};
    put(args, &fixed, sizeof fixed);
    put(args, t.shape.data(), 8 * size_t{t.rank});
    put(args, t.stride.data(), 8 * size_t{t.rank});
    refs.push_back({*uid, 0, std::max<size_t>(n, 1), 1});
    ++uid->low;
    used = (used + n + kAlign - 1) / kAlign * kAlign;
  }
  put(args, refs.data(), refs.size() * sizeof(model::ArgsRef));
  put(args, task.scalars.data(), 8 * task.scalars.size());
  put(args, task.inline_bytes.data(), own);
  args->resize((args->size() + 7) / 8 * 8);
  return {};
}

}  // namespace strata::engine
