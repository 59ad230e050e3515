// One valid value of each message with every field set, for tests and fuzzers.
#pragma once

#include <tuple>

#include "wire/lanes.h"
#include "wire/manifest.h"

namespace strata::wire::sample {

inline std::vector<std::byte> bytes(std::string_view text) {
  const auto* const begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}
template <size_t kBytes>
std::array<std::byte, kBytes> counted(uint8_t from) {
  std::array<std::byte, kBytes> out;
  for (std::byte& b : out) b = static_cast<std::byte>(from++);
  return out;
}
inline constexpr Uid kUid{0x1122334455667788, 0x99aabbccddeeff00};

inline Bootstrap bootstrap() {
  return {1, 1, "strata 0.1.0", bytes("layout"), R"({"session":1})"};
}
inline BootstrapReply bootstrap_reply() {
  return {
      0,   "", 1, "strata 0.1.0", bytes("layout"), counted<16>(1), counted<16>(33), counted<16>(65),
      4711};
}
inline Hello hello() {
  return {0x5e551077,
          3,
          1,
          0x1,
          ReadyState::kReady,
          16,
          {0x18, 1, 6, 3},
          {{"tensormap_and_ringbuffer", "1", "cpu"}},
          "host-a",
          4711,
          ""};
}
inline TaskTensor owned() {
  TaskTensor t;
  t.dtype = DType::kF64;
  t.rank = 2;
  t.tag = TensorArgType::kInout;
  t.transfer = Transfer::kMap;
  t.shape = {4, 8};
  t.stride = {16, 1};
  t.desc = {Space::kOwned, kUid, 3, 0, 64, 4 * 16 * 8, 0, 0};
  return t;
}
inline TaskTensor inlined() {
  TaskTensor t;
  t.dtype = DType::kF32;
  t.rank = 1;
  t.shape = {2};
  t.stride = {1};
  t.desc.space = Space::kHostInline;
  t.desc.inline_offset = 4;
  t.desc.inline_len = 8;
  return t;
}
inline Task task() {
  return {counted<32>(7),
          {2, kFlagDumpArgs, 1500, "out/a"},
          {owned(), inlined()},
          {1, 0xfffffffffffffffe},
          bytes("abcdefghijkl")};
}
inline Completion completion() {
  return {Outcome::kTaskFailed,     7, 2, 1'000, 2'000, {"host-a", "L4/1/0", "gemm", 12},
          "it threw: no such tile", {}};
}
inline Control control() {
  return {ControlCommand::kUnregister, 1, bytes("body")};
}
inline ControlReply control_reply() {
  return {ControlCommand::kAllocBuffer, 1, 4, 1, "the heap is full", {}};
}
inline PrepareRegister prepare_register() {
  return {9, RegistryKind::kInner, CallableKind::kChipCallable, counted<32>(1), 1, bytes("blob")};
}
inline ImportBuffer import_buffer() {
  return {{kUid, 3, 64, 4096, 3},
          77,
          "L4/0",
          {5, counted<16>(9), {"host-a:7070", "[fe80::1]:7070"}, bytes("rkey")}};
}

inline Manifest manifest() {
  Manifest m;
  m.session_id = 0x5e551077'5e551077;
  m.parent_path = "L5/2";
  m.parent_level = 5;
  m.level = 4;
  m.worker_id = 7;
  m.build = "strata 0.1.0";
  m.device_ids = {0, 2};
  m.sub_workers = 3;
  m.cpus = {4, 5, 6};
  m.env = {{"OMP_NUM_THREADS", "1"}, {"GREETING", "say \"h\xc3\xa9\"\n"}};
  m.cwd = "runs/a";
  m.limits.depth = 8;
  m.early_controls = 2;
  m.features = 1;
  m.dispatcher = {{CallableKind::kNativeImport, "libtile.so", "gemm"},
                  {CallableKind::kPythonImport, "pkg.tiles", "Tile.gemm"}};
  m.inner = {{CallableKind::kNativeImport, "libtile.so", "trsm"}};
  m.log_level = LogLevel::kWarning;
  return m;
}

// All messages.
inline auto all() {
  return std::tuple(
      bootstrap(), bootstrap_reply(), hello(), task(), completion(), control(), control_reply(),
      Shutdown{5000}, prepare_register(), EndRegister{9, RegistryKind::kInner, counted<32>(1)},
      Unregister{RegistryKind::kDispatcher, counted<32>(1)}, AllocBuffer{4096, Place::kChip, 1, 0},
      BufferName{kUid, 3}, ExportBuffer{{kUid, 3, 64, 4096, 1}, "L4/1"}, import_buffer().exported,
      import_buffer(), Import{6, Path::kRelayed}, ReleaseImport{{kUid, 3}, 6},
      Health{100, 90, 12, 11, 3, 1 << 20}, Cancel{3, 9}, Abort{6, "the user asked for it"},
      Revoke{77}, RevokeAck{77, 2}, SetLog{1},
      Log{LogStream::kStderr, LogLevel::kWarning, 12, 3, "a line"}, PeerHello{counted<16>(9), 77},
      TransferRequest{kUid, 3, 5, 64, 4096}, Ack{13, "the CRC is wrong", 512});
}

}  // namespace strata::wire::sample
