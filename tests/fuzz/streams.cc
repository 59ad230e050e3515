// The targets of whole streams: cut into frames, each payload decoded by its type, bodies and
// results by their command. Once with the checksums mended after each mutation, once with them as
// they are.
#include <algorithm>
#include <cstring>
#include <string>

#include "base/crc32c.h"
#include "tests/fuzz/frames.h"
#include "tests/fuzz/oracle.h"
#include "tests/wire/messages.h"
#include "wire/descriptor.h"

namespace strata::fuzz {
namespace {

using namespace wire;

constexpr uint32_t kAgreedBytes = 64 << 10;  // of a payload, in these streams

// fn.operator()<T>() for the payload of that type; false where there is no such type.
template <class Fn>
bool for_payload(FrameType type, Fn&& fn) {
  switch (type) {
    case FrameType::kHello:
      fn.template operator()<Hello>();
      return true;
    case FrameType::kTask:
      fn.template operator()<Task>();
      return true;
    case FrameType::kCompletion:
      fn.template operator()<Completion>();
      return true;
    case FrameType::kControl:
      fn.template operator()<Control>();
      return true;
    case FrameType::kControlReply:
      fn.template operator()<ControlReply>();
      return true;
    case FrameType::kHealth:
      fn.template operator()<Health>();
      return true;
    case FrameType::kShutdown:
      fn.template operator()<Shutdown>();
      return true;
    case FrameType::kBootstrap:
      fn.template operator()<Bootstrap>();
      return true;
    case FrameType::kBootstrapReply:
      fn.template operator()<BootstrapReply>();
      return true;
    case FrameType::kLog:
      fn.template operator()<Log>();
      return true;
    case FrameType::kCancel:
      fn.template operator()<Cancel>();
      return true;
    case FrameType::kAbort:
      fn.template operator()<Abort>();
      return true;
    case FrameType::kPeerHello:
      fn.template operator()<PeerHello>();
      return true;
    case FrameType::kRead:
    case FrameType::kWrite:
      fn.template operator()<TransferRequest>();
      return true;
    case FrameType::kData:
      fn.template operator()<Chunk>();
      return true;
    case FrameType::kAck:
      fn.template operator()<Ack>();
      return true;
    case FrameType::kRevoke:
      fn.template operator()<Revoke>();
      return true;
    case FrameType::kRevokeAck:
      fn.template operator()<RevokeAck>();
      return true;
    case FrameType::kSetLog:
      fn.template operator()<SetLog>();
      return true;
  }
  return false;
}

template <class Fn>
void for_body(ControlCommand command, Fn&& fn) {
  switch (command) {
    case ControlCommand::kPrepareRegister:
      return fn.template operator()<PrepareRegister>();
    case ControlCommand::kCommitRegister:
    case ControlCommand::kAbortRegister:
      return fn.template operator()<EndRegister>();
    case ControlCommand::kUnregister:
      return fn.template operator()<Unregister>();
    case ControlCommand::kAllocBuffer:
      return fn.template operator()<AllocBuffer>();
    case ControlCommand::kFreeBuffer:
      return fn.template operator()<BufferName>();
    case ControlCommand::kExportBuffer:
      return fn.template operator()<ExportBuffer>();
    case ControlCommand::kImportBuffer:
      return fn.template operator()<ImportBuffer>();
    case ControlCommand::kReleaseImport:
      return fn.template operator()<ReleaseImport>();
  }
}

template <class Fn>
void for_result(ControlCommand command, Fn&& fn) {
  switch (command) {
    case ControlCommand::kAllocBuffer:
      return fn.template operator()<BufferName>();
    case ControlCommand::kExportBuffer:
      return fn.template operator()<Export>();
    case ControlCommand::kImportBuffer:
      return fn.template operator()<Import>();
    default:
      return;
  }
}

// A payload that decodes is written into a frame of the same header, which has the same bytes.
template <class T>
void check_frame(const Frame& frame, std::span<const std::byte> bytes) {
  count_allocations();
  const Result<T> got = decode<T>(frame.payload);
  check_allocations(frame.payload.size());
  if (!got.ok()) return check_error(got.error());
  Bytes again;
  const bool crc = (frame.header.flags & kFlagNoCrc) == 0;
  if (!append_frame(frame.header, *got, &again, crc).ok()) found("a frame that is not written");
  check_same(bytes, again);
  if constexpr (std::is_same_v<T, Control>) {
    for_body(got->command, [&]<class Body>() {
      check_payload<Body>(got->body);
      if constexpr (std::is_same_v<Body, PrepareRegister>) {
        if (const auto prepare = decode<Body>(got->body)) {
          check_payload<CallablePayload>(prepare->payload);
        }
      }
    });
  } else if constexpr (std::is_same_v<T, ControlReply>) {
    for_result(got->command, [&]<class Body>() { check_payload<Body>(got->result); });
  }
}

// What a stream was taken for: whole frames, and why it ended.
struct Taken {
  size_t frames = 0;
  size_t bytes = 0;
  std::string error;
  friend bool operator==(const Taken&, const Taken&) = default;
};

// Gives the splitter at most `chunk` bytes at a time.
Taken take(std::span<const std::byte> stream, size_t chunk, bool check) {
  Splitter splitter(kAgreedBytes);
  Taken out;
  size_t at = 0;
  while (at < stream.size()) {
    const std::span<std::byte> space = splitter.space();
    if (space.empty()) found("a splitter without space");
    const size_t n = std::min({chunk, space.size(), stream.size() - at});
    std::copy_n(stream.begin() + static_cast<ptrdiff_t>(at), n, space.begin());
    splitter.came(n);
    at += n;
    for (;;) {
      const Result<std::optional<Frame>> next = splitter.next();
      if (!next.ok()) {
        check_error(next.error());
        out.error = next.error().message();
        if (splitter.next().ok()) found("a stream that broke gives frames again");
        return out;
      }
      if (!next->has_value()) break;
      const Frame& frame = **next;
      const size_t whole = kHeaderBytes + frame.payload.size();
      if (check && !for_payload(frame.header.type, [&]<class T>() {
            check_frame<T>(frame, stream.subspan(out.bytes, whole));
          })) {
        found("a type without a payload");
      }
      ++out.frames;
      out.bytes += whole;
    }
    if (splitter.pending() != at - out.bytes) found("a splitter that loses bytes");
  }
  return out;
}

void test_stream(std::span<const std::byte> input) {
  const Taken whole = take(input, input.size(), true);
  const size_t chunk = 1 + base::crc32c(input) % 61;
  if (take(input, chunk, false) != whole) found("other frames when the bytes come in parts");
}

// ---- mutation

struct Part {
  HeaderBytes header;
  Bytes payload;
};

std::vector<Part> parts_of(std::span<const std::byte> input) {
  std::vector<Part> out;
  while (!input.empty() && out.size() < 64) {
    Part part{load_header(input), {}};
    input = input.subspan(std::min(input.size(), kHeaderBytes));
    const size_t n = std::min<size_t>(part.header.payload_bytes, input.size());
    part.payload.assign(input.begin(), input.begin() + static_cast<ptrdiff_t>(n));
    input = input.subspan(n);
    out.push_back(std::move(part));
  }
  return out;
}

// What a PREPARE_REGISTER carries.
void change_payload(Bytes* body, Changes* changes) {
  PrepareRegister prepare;
  Loader loader(*body);
  PrepareRegister::fields(loader, prepare);
  prepare.payload = changed_payload<CallablePayload>(prepare.payload, changes);
  body->clear();
  Mutator writer(changes, Mutator::kNone, body);
  PrepareRegister::fields(writer, prepare);
}

// A control's body, or a reply's result, as what its command says it is.
void change_inner(Part* part, Changes* changes) {
  const auto type = static_cast<FrameType>(part->header.type);
  Loader loader(part->payload);
  if (type == FrameType::kControl) {
    Control control;
    Control::fields(loader, control);
    for_body(control.command, [&]<class T>() {
      if constexpr (std::is_same_v<T, PrepareRegister>) {
        if (changes->prng().chance(1, 2)) return change_payload(&control.body, changes);
      }
      control.body = changed_payload<T>(control.body, changes);
    });
    part->payload.clear();
    Mutator writer(changes, Mutator::kNone, &part->payload);
    Control::fields(writer, control);
  } else if (type == FrameType::kControlReply) {
    ControlReply reply;
    ControlReply::fields(loader, reply);
    for_result(reply.command,
               [&]<class T>() { reply.result = changed_payload<T>(reply.result, changes); });
    part->payload.clear();
    Mutator writer(changes, Mutator::kNone, &part->payload);
    ControlReply::fields(writer, reply);
  }
}

void change_part(Part* part, Changes* changes) {
  switch (changes->prng().below(4)) {
    case 0: {
      const Bytes bytes = bytes_of(part->header);
      part->header = load_header(changed_payload<HeaderBytes>(bytes, changes));
      break;
    }
    case 1:
      change_inner(part, changes);
      break;
    default:
      for_payload(static_cast<FrameType>(part->header.type),
                  [&]<class T>() { part->payload = changed_payload<T>(part->payload, changes); });
      part->header.payload_bytes = static_cast<uint32_t>(part->payload.size());
      break;
  }
}

void mend(Part* part) {
  const bool crc = (part->header.flags & kFlagNoCrc) == 0;
  part->header.payload_crc = crc ? base::crc32c(part->payload) : 0;
  Bytes bytes = bytes_of(part->header);
  mend_header(bytes);
  part->header = load_header(bytes);
}

size_t mutate_stream(uint8_t* input, size_t size, size_t size_max, uint64_t seed, bool mended) {
  Changes changes(seed);
  base::Prng& prng = changes.prng();
  if (prng.chance(1, 8)) size = mutate_bytes(input, size, size_max);
  std::vector<Part> parts = parts_of(std::as_bytes(std::span(input, size)));
  if (parts.empty()) parts.push_back({});
  const size_t one = prng.below(parts.size());
  switch (prng.below(8)) {
    case 0:
      parts.erase(parts.begin() + static_cast<ptrdiff_t>(one));
      break;
    case 1:
      parts.insert(parts.begin() + static_cast<ptrdiff_t>(one), Part(parts[one]));
      break;
    case 2:
      std::swap(parts[one], parts[prng.below(parts.size())]);
      break;
    default:
      change_part(&parts[one], &changes);
      break;
  }
  Bytes out;
  for (Part& part : parts) {
    if (mended) mend(&part);
    const Bytes header = bytes_of(part.header);
    out.insert(out.end(), header.begin(), header.end());
    out.insert(out.end(), part.payload.begin(), part.payload.end());
  }
  if (prng.chance(1, 16)) out.resize(prng.below(out.size() + 1));
  return put_over(input, size_max, out);
}

size_t mutate_mended(uint8_t* input, size_t size, size_t size_max, uint64_t seed) {
  return mutate_stream(input, size, size_max, seed, true);
}
size_t mutate_live(uint8_t* input, size_t size, size_t size_max, uint64_t seed) {
  return mutate_stream(input, size, size_max, seed, false);
}

template <class T>
Bytes one(FrameType type, const T& message, uint64_t sequence = 1, bool crc = true) {
  Bytes out;
  append_frame({type, 77, 3, 0, sequence, 0, 0}, message, &out, crc).value();
  return out;
}

Bytes body_of(const auto& message) {
  return encoded(message);
}

template <class T>
Bytes body_that_registers(const T& descriptor, std::span<const std::byte> blob) {
  PrepareRegister prepare = sample::prepare_register();
  prepare.kind = T::kKind;
  const Bytes bytes = encoded(descriptor);
  prepare.digest = base::sha256(bytes);
  prepare.payload = encoded(CallablePayload{bytes, "gemm", blob});
  return encoded(prepare);
}

std::vector<Bytes> bodies_that_register() {
  NativeDescriptor native;
  native.library = "libtile.so";
  native.symbol = "gemm";
  PythonDescriptor python;
  python.module = "pkg.tiles";
  python.qualname = "Tile.gemm";
  const Bytes blob = sample::bytes("blob");
  ChipDescriptor chip;
  chip.platform = "cpu";
  chip.entry = "gemm";
  chip.blob = base::sha256(blob);
  return {body_that_registers(native, {}), body_that_registers(python, {}),
          body_that_registers(chip, blob)};
}

// A lane's worth of frames each, and all of them.
std::vector<Bytes> seeds() {
  using T = FrameType;
  const auto all = sample::all();
  const Bytes bytes = sample::bytes("a chunk");
  const auto control = [&](ControlCommand command, Bytes body) {
    return one(T::kControl, Control{command, 1, std::move(body)});
  };
  const auto reply = [&](ControlCommand command, Bytes result) {
    return one(T::kControlReply, ControlReply{command, 1, 0, 0, "", std::move(result)});
  };
  using C = ControlCommand;
  const std::vector<std::vector<Bytes>> lanes = {
      {one(T::kBootstrap, sample::bootstrap()), one(T::kBootstrapReply, sample::bootstrap_reply())},
      {one(T::kHello, sample::hello()), one(T::kTask, sample::task()),
       one(T::kCompletion, sample::completion()), one(T::kShutdown, Shutdown{5000})},
      {control(C::kPrepareRegister, body_of(sample::prepare_register())),
       control(C::kCommitRegister, body_of(std::get<EndRegister>(all))),
       control(C::kAbortRegister, body_of(std::get<EndRegister>(all))),
       control(C::kUnregister, body_of(std::get<Unregister>(all)))},
      {control(C::kAllocBuffer, body_of(std::get<AllocBuffer>(all))),
       control(C::kFreeBuffer, body_of(std::get<BufferName>(all))),
       control(C::kExportBuffer, body_of(std::get<ExportBuffer>(all))),
       control(C::kImportBuffer, body_of(sample::import_buffer())),
       control(C::kReleaseImport, body_of(std::get<ReleaseImport>(all)))},
      {reply(C::kAllocBuffer, body_of(std::get<BufferName>(all))),
       reply(C::kExportBuffer, body_of(sample::import_buffer().exported)),
       reply(C::kImportBuffer, body_of(std::get<Import>(all))),
       one(T::kControlReply, sample::control_reply())},
      {one(T::kHealth, std::get<Health>(all)), one(T::kCancel, std::get<Cancel>(all)),
       one(T::kAbort, std::get<Abort>(all)), one(T::kRevoke, Revoke{77}),
       one(T::kRevokeAck, RevokeAck{77, 2}), one(T::kSetLog, SetLog{1}),
       one(T::kLog, std::get<Log>(all))},
      {one(T::kPeerHello, std::get<PeerHello>(all)), one(T::kRead, std::get<TransferRequest>(all)),
       one(T::kWrite, std::get<TransferRequest>(all)),
       one(T::kData, Chunk{0, bytes}, kTransferBit, false),
       one(T::kData, Chunk{7, bytes}, kTransferBit), one(T::kAck, std::get<Ack>(all))}};
  std::vector<Bytes> out;
  for (const Bytes& body : bodies_that_register()) {
    out.push_back(control(C::kPrepareRegister, body));
  }
  Bytes everything;
  for (const std::vector<Bytes>& lane : lanes) {
    Bytes stream;
    for (const Bytes& frame : lane) {
      out.push_back(frame);
      stream.insert(stream.end(), frame.begin(), frame.end());
    }
    everything.insert(everything.end(), stream.begin(), stream.end());
    out.push_back(std::move(stream));
  }
  out.push_back(std::move(everything));
  return out;
}

}  // namespace

STRATA_FUZZ_TARGET(stream_mended, test_stream, mutate_mended, seeds);
STRATA_FUZZ_TARGET(stream_live, test_stream, mutate_live, seeds);

}  // namespace strata::fuzz
