// TASK and COMPLETION: what a remote task is called with, and how it ended. No address and no
// transport key is ever in a TASK. Values; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "strata/task_args.h"
#include "wire/codec.h"

namespace strata::wire {

inline constexpr uint32_t kPathBytesMax = 255;      // of a worker's path, a host, a callable
inline constexpr uint32_t kMessageBytesMax = 8192;  // of an Error
inline constexpr uint32_t kResultBytesMax = 64 << 10;
inline constexpr uint32_t kOutputPrefixBytesMax = 1024;

inline constexpr uint32_t kFlagTimeline = 1, kFlagDumpArgs = 2;

struct TaskConfig {
  static constexpr std::string_view kName = "CallConfig";
  int32_t block_dim = 1;
  uint32_t flags = 0;
  uint32_t deadline_ms = 0;   // 0: none
  std::string output_prefix;  // relative, and no ".." in it

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.number("block_dim", self.block_dim);
    io.number("flags", self.flags);
    io.number("deadline_ms", self.deadline_ms);
    io.template zero<uint8_t>();  // priority
    io.template zero<uint8_t>();  // attempts
    io.template zero<uint16_t>();
    io.text("output_prefix", self.output_prefix, kOutputPrefixBytesMax);
  }
};

// Where the bytes of a tensor are. HOST_INLINE has only the two inline fields and is an INPUT,
// OWNED and IMPORTED have all but these (OWNED no import_id), METADATA_ONLY has nothing.
struct TensorDesc {
  static constexpr std::string_view kName = "desc";
  Space space = Space::kMetadataOnly;
  Uid uid{};
  uint64_t generation = 0;
  uint64_t import_id = 0;
  uint64_t offset = 0;  // bytes from the buffer's start to the first element
  uint64_t nbytes = 0;  // from the first element to the end of the last
  uint32_t inline_offset = 0;
  uint32_t inline_len = 0;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.choice("space", self.space);
    io.uid("uid", self.uid);
    io.number("generation", self.generation);
    io.number("import_id", self.import_id);
    io.number("offset", self.offset);
    io.number("nbytes", self.nbytes);
    io.number("inline_offset", self.inline_offset);
    io.number("inline_len", self.inline_len);
  }
};

struct TaskTensor {
  static constexpr std::string_view kName = "TensorArg";
  DType dtype = DType::kU8;
  uint8_t rank = 0;
  TensorArgType tag = TensorArgType::kInput;
  Transfer transfer = Transfer::kCopy;
  std::array<uint64_t, Tensor::kRankMax> shape{};  // elements, outermost first
  std::array<int64_t, Tensor::kRankMax> stride{};
  TensorDesc desc;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.choice8("dtype", self.dtype);
    io.number("rank", self.rank);
    io.choice8("tag", self.tag);
    io.choice8("transfer", self.transfer);
    io.places("shape", self.shape, self.rank);
    io.places("stride", self.stride, self.rank);
    io.nested("desc", self.desc);
  }
};

struct Task {
  static constexpr std::string_view kName = "TASK";
  base::Sha256 digest{};
  TaskConfig config;
  std::vector<TaskTensor> tensors;
  std::vector<uint64_t> scalars;
  std::vector<std::byte> inline_bytes;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.raw("digest", self.digest);
    io.nested("config", self.config);
    io.list("tensors", self.tensors, TaskArgs::kTensorsMax);
    io.list("scalars", self.scalars, TaskArgs::kScalarsMax);
    io.blob("inline", self.inline_bytes, TaskArgs::kInlineBytesMax);
  }
  // Flags, paths, spaces, ranges and overflow of every tensor.
  Result<void> check() const;
};

// Where the first cause arose.
struct Root {
  static constexpr std::string_view kName = "root";
  std::string host;
  std::string path;
  std::string callable;
  uint64_t sequence = 0;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.text("host", self.host, kPathBytesMax);
    io.text("path", self.path, kPathBytesMax);
    io.text("callable", self.callable, kPathBytesMax);
    io.number("sequence", self.sequence);
  }
};

struct Completion {
  static constexpr std::string_view kName = "COMPLETION";
  Outcome outcome = Outcome::kOk;
  uint32_t code = 0;       // of Code, 0 where the outcome is OK
  uint32_t scope = 0;      // of Scope, likewise
  int64_t started_ns = 0;  // of the runner's CLOCK_BOOTTIME
  int64_t ended_ns = 0;
  Root root;
  std::string message;
  std::vector<std::byte> result;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.choice("outcome", self.outcome);
    io.number("code", self.code);
    io.number("scope", self.scope);
    io.number("started_ns", self.started_ns);
    io.number("ended_ns", self.ended_ns);
    io.nested("root", self.root);
    io.text("message", self.message, kMessageBytesMax);
    io.blob("result", self.result, kResultBytesMax);
  }
  // OK has no code, no scope and no message; the others have a code and a scope and no result.
  Result<void> check() const;
};

// A path below the daemon's folder: no "..", not absolute, no NUL.
bool is_inside_folder(std::string_view path);
// The rule for `code` and `scope` of anything that may fail.
Result<void> check_failure(std::string_view what, bool failed, uint32_t code, uint32_t scope);

}  // namespace strata::wire
