#include "wire/codec.h"

#include <fmt/format.h>

#include "base/fault.h"
#include "wire/descriptor.h"
#include "wire/lanes.h"

namespace strata::wire {

void Writer::over(std::string_view name, size_t n, size_t most) {
  if (error_.empty()) error_ = fmt::format("{}: {}, at most {}", name, n, most);
}
void Writer::unknown(std::string_view name, uint64_t n) {
  if (error_.empty()) error_ = fmt::format("{}: {} is none of its values", name, n);
}

std::span<const std::byte> Reader::sized(std::string_view name, uint32_t bytes_max) {
  uint32_t n = 0;
  number(name, n);
  if (n > bytes_max) {
    over(name, n, bytes_max);
    return {};
  }
  // The deliberate fault 21: nobody looks whether so many bytes are left.
  if (base::fault() == 21) return {in_.get_bytes(in_.left()).data(), n};
  const std::span<const std::byte> bytes = in_.get_bytes(n);
  if (bytes.size() != n) ends_early(name);
  return bytes;
}

void Reader::finish() {
  if (ok() && in_.left() > 0) fail("the payload", fmt::format("has {} bytes more", in_.left()));
}

void Reader::ends_early(std::string_view name) {
  fail(name, "is cut off");
}
void Reader::over(std::string_view name, size_t n, size_t most) {
  fail(name, fmt::format("has {}, at most {}", n, most));
}
void Reader::unknown(std::string_view name, uint64_t n) {
  fail(name, fmt::format("is {}, which this version does not know", n));
}
void Reader::fail(std::string_view name, std::string_view why) {
  if (ok()) error_ = fmt::format("{} {}", name, why);
  // What follows reads zeros.
  in_.get_bytes(in_.left() + 1);
}

namespace {

template <class T>
Result<void> check(const T& message) {
  if constexpr (requires { message.check(); }) {
    return message.check();
  } else {
    return {};
  }
}

}  // namespace

template <class T>
Result<void> encode(const T& message, std::vector<std::byte>* out) {
  const size_t before = out->size();
  Writer writer(out);
  T::fields(writer, message);
  Result<void> checked;
  if (!writer.error().empty()) {
    checked = Error(Code::kInvalidArgument, Scope::kCall,
                    fmt::format("{}: {}", T::kName, writer.error()));
  } else {
    checked = check(message);
  }
  if (checked) return {};
  out->resize(before);
  return Error(Code::kInvalidArgument, Scope::kCall, checked.error().message());
}

template <class T>
Result<T> decode(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  T message;
  T::fields(reader, message);
  reader.finish();
  if (!reader.ok()) {
    return Error(Code::kCorrupt, Scope::kSession, fmt::format("{}: {}", T::kName, reader.error()));
  }
  if constexpr (requires { message.check(); }) {
    if (const Result<void> checked = message.check(); !checked) {
      return Error(Code::kCorrupt, Scope::kSession, checked.error().message());
    }
  }
  return message;
}

#define STRATA_WIRE_MESSAGE(T)                                        \
  template Result<void> encode<T>(const T&, std::vector<std::byte>*); \
  template Result<T> decode<T>(std::span<const std::byte>)

STRATA_WIRE_MESSAGE(Bootstrap);
STRATA_WIRE_MESSAGE(BootstrapReply);
STRATA_WIRE_MESSAGE(Hello);
STRATA_WIRE_MESSAGE(Task);
STRATA_WIRE_MESSAGE(Completion);
STRATA_WIRE_MESSAGE(Control);
STRATA_WIRE_MESSAGE(ControlReply);
STRATA_WIRE_MESSAGE(Shutdown);
STRATA_WIRE_MESSAGE(PrepareRegister);
STRATA_WIRE_MESSAGE(EndRegister);
STRATA_WIRE_MESSAGE(Unregister);
STRATA_WIRE_MESSAGE(AllocBuffer);
STRATA_WIRE_MESSAGE(BufferName);
STRATA_WIRE_MESSAGE(ExportBuffer);
STRATA_WIRE_MESSAGE(Export);
STRATA_WIRE_MESSAGE(ImportBuffer);
STRATA_WIRE_MESSAGE(Import);
STRATA_WIRE_MESSAGE(ReleaseImport);
STRATA_WIRE_MESSAGE(ChipDescriptor);
STRATA_WIRE_MESSAGE(PythonDescriptor);
STRATA_WIRE_MESSAGE(NativeDescriptor);
STRATA_WIRE_MESSAGE(CallablePayload);
STRATA_WIRE_MESSAGE(Health);
STRATA_WIRE_MESSAGE(Cancel);
STRATA_WIRE_MESSAGE(Abort);
STRATA_WIRE_MESSAGE(Revoke);
STRATA_WIRE_MESSAGE(RevokeAck);
STRATA_WIRE_MESSAGE(SetLog);
STRATA_WIRE_MESSAGE(Log);
STRATA_WIRE_MESSAGE(PeerHello);
STRATA_WIRE_MESSAGE(TransferRequest);
STRATA_WIRE_MESSAGE(Chunk);
STRATA_WIRE_MESSAGE(Ack);

}  // namespace strata::wire
