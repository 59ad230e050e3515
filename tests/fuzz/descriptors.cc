// The targets of descriptor bytes: those that travel, those of the model, and the payloads that
// carry them: PREPARE_REGISTER's between hosts and the registry's to a local child.
#include <cstring>

#include "model/descriptor.h"
#include "registry/payload.h"
#include "tests/fuzz/oracle.h"
#include "tests/wire/messages.h"
#include "wire/descriptor.h"

namespace strata::fuzz {
namespace {

// The model's kind 5, which does not travel.
struct LocalBytes {
  uint32_t schema = 1;
  CallableKind kind = CallableKind::kLocalFunction;
  Bytes build_id;
  uint64_t offset = 0;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.number("schema", self.schema);
    io.choice("kind", self.kind);
    io.blob("build_id", self.build_id, model::kBuildIdBytesMax);
    io.number("offset", self.offset);
  }
};

struct LocalPayloadBytes {
  std::string name;
  Bytes descriptor;
  std::vector<std::string> library_paths;
  uint32_t segment = 0;
  uint64_t offset = 0;
  uint64_t blob_bytes = 0;
  uint8_t inner = 0;

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.text("name", self.name, model::kNameBytesMax);
    io.blob("descriptor", self.descriptor, 64 << 10);
    io.list("library_paths", self.library_paths, registry::kLibraryPathsMax);
    io.number("segment", self.segment);
    io.number("offset", self.offset);
    io.number("blob_bytes", self.blob_bytes);
    io.number("inner", self.inner);
  }
};

Bytes changed_descriptor(std::span<const std::byte> input, Changes* changes) {
  uint32_t kind = 0;
  if (input.size() >= 8) std::memcpy(&kind, input.data() + 4, sizeof kind);
  if (changes->prng().chance(1, 16)) kind = static_cast<uint32_t>(changes->prng().below(6));
  switch (static_cast<CallableKind>(kind)) {
    case CallableKind::kChipCallable:
      return changed_payload<wire::ChipDescriptor>(input, changes);
    case CallableKind::kPythonImport:
      return changed_payload<wire::PythonDescriptor>(input, changes);
    case CallableKind::kLocalFunction:
      return changed_payload<LocalBytes>(input, changes);
    default:
      return changed_payload<wire::NativeDescriptor>(input, changes);
  }
}

size_t mutate_descriptor(uint8_t* input, size_t size, size_t size_max, uint64_t seed) {
  Changes changes(seed);
  if (changes.prng().chance(1, 8)) return mutate_bytes(input, size, size_max);
  return put_over(input, size_max,
                  changed_descriptor(std::as_bytes(std::span(input, size)), &changes));
}

wire::ChipDescriptor chip(std::span<const std::byte> blob) {
  wire::ChipDescriptor out;
  out.platform = "cpu";
  out.entry = "gemm";
  out.signature = "in,out:f32";
  out.blob = base::sha256(blob);
  return out;
}
wire::NativeDescriptor native() {
  wire::NativeDescriptor out;
  out.library = "libtile.so";
  out.symbol = "gemm";
  return out;
}
wire::PythonDescriptor python() {
  wire::PythonDescriptor out;
  out.module = "pkg.tiles";
  out.qualname = "Tile.gemm";
  return out;
}

// ---- those that travel

void test_travelling(std::span<const std::byte> input) {
  count_allocations();
  const Result<wire::Descriptor> got = wire::decode_descriptor(input);
  check_allocations(input.size());
  if (!got.ok()) return check_error(got.error());
  check_same(input, wire::encode_descriptor(*got).value());
}

// The kind says how the bytes are taken; each way must hold for any bytes.
void test_descriptor(std::span<const std::byte> input) {
  test_travelling(input);
  check_payload<wire::NativeDescriptor>(input);
  check_payload<wire::PythonDescriptor>(input);
  check_payload<wire::ChipDescriptor>(input);
}

std::vector<Bytes> travelling_seeds() {
  return {encoded(native()), encoded(python()), encoded(chip(wire::sample::bytes("blob")))};
}

// ---- the model's

void test_model(std::span<const std::byte> input) {
  count_allocations();
  const Result<model::Descriptor> got = model::decode_descriptor(input);
  check_allocations(input.size());
  if (!got.ok()) return check_error(got.error());
  check_same(input, model::descriptor_bytes(*got));
}

std::vector<Bytes> model_seeds() {
  std::vector<Bytes> out = travelling_seeds();
  out.push_back(model::descriptor_bytes(
      model::LocalFunctionDescriptor{wire::sample::bytes("build id"), 4096}));
  return out;
}

// ---- the payload of PREPARE_REGISTER

// After most mutations the descriptor names the blob that is there.
size_t mutate_travelling_payload(uint8_t* input, size_t size, size_t size_max, uint64_t seed) {
  Changes changes(seed);
  if (changes.prng().chance(1, 8)) return mutate_bytes(input, size, size_max);
  Bytes out =
      changed_payload<wire::CallablePayload>(std::as_bytes(std::span(input, size)), &changes);
  wire::CallablePayload payload;
  Loader loader(out);
  wire::CallablePayload::fields(loader, payload);
  if (changes.prng().chance(1, 2)) {
    payload.descriptor = changed_descriptor(payload.descriptor, &changes);
  }
  const base::Sha256 digest = base::sha256(payload.blob);
  if (payload.descriptor.size() >= digest.size() && changes.prng().chance(3, 4)) {
    std::copy(digest.begin(), digest.end(), payload.descriptor.end() - digest.size());
  }
  Bytes written;
  Mutator writer(&changes, Mutator::kNone, &written);
  wire::CallablePayload::fields(writer, payload);
  return put_over(input, size_max, written);
}

// Also against a control that says the right digest.
void test_travelling_payload(std::span<const std::byte> input) {
  check_payload<wire::CallablePayload>(input);
  const Result<wire::CallablePayload> got = wire::decode<wire::CallablePayload>(input);
  if (!got.ok()) return;
  wire::PrepareRegister control;
  control.digest = base::sha256(got->descriptor);
  const Result<void> agrees = wire::check_registration(control, *got);
  const bool is_native = wire::kind_of(wire::decode_descriptor(got->descriptor).value()) ==
                         CallableKind::kNativeImport;
  if (agrees.ok() != is_native) found("a payload of another kind than its control's");
  if (!agrees.ok()) check_error(agrees.error());
  control.digest[0] ^= std::byte{1};
  if (wire::check_registration(control, *got).ok()) found("a payload of another digest");
}

std::vector<Bytes> travelling_payload_seeds() {
  const Bytes blob = wire::sample::bytes("blob");
  return {encoded(wire::CallablePayload{encoded(chip(blob)), "gemm of f32", blob}),
          encoded(wire::CallablePayload{encoded(native()), "gemm", {}}),
          encoded(wire::CallablePayload{encoded(python()), "", {}})};
}

// ---- the registry's payload to a local child

void test_local_payload(std::span<const std::byte> input) {
  count_allocations();
  const Result<registry::PreparePayload> got = registry::decode_payload(input);
  check_allocations(input.size());
  if (!got.ok()) return check_error(got.error());
  check_same(input, registry::encode_payload(*got).value());
}

size_t mutate_local_payload(uint8_t* input, size_t size, size_t size_max, uint64_t seed) {
  Changes changes(seed);
  if (changes.prng().chance(1, 8)) return mutate_bytes(input, size, size_max);
  LocalPayloadBytes payload;
  const Bytes out =
      changed_payload<LocalPayloadBytes>(std::as_bytes(std::span(input, size)), &changes);
  if (changes.prng().chance(1, 2)) return put_over(input, size_max, out);
  Loader loader(out);
  LocalPayloadBytes::fields(loader, payload);
  payload.descriptor = changed_descriptor(payload.descriptor, &changes);
  Bytes written;
  Mutator writer(&changes, Mutator::kNone, &written);
  LocalPayloadBytes::fields(writer, payload);
  return put_over(input, size_max, written);
}

std::vector<Bytes> local_payload_seeds() {
  registry::PreparePayload import{
      "gemm", model::NativeImportDescriptor{"libtile.so", "gemm"}, {"/usr/lib/libtile.so"}};
  registry::PreparePayload chip_callable;
  chip_callable.name = "gemm";
  chip_callable.descriptor = model::ChipCallableDescriptor{"cpu", "gemm", "in", {}};
  chip_callable.blob_bytes = 4096;
  registry::PreparePayload local{
      "fn", model::LocalFunctionDescriptor{wire::sample::bytes("build id"), 64}, {}};
  local.inner = local.inactive = true;
  return {registry::encode_payload(import).value(), registry::encode_payload(chip_callable).value(),
          registry::encode_payload(local).value()};
}

}  // namespace

STRATA_FUZZ_TARGET(descriptor, test_descriptor, mutate_descriptor, travelling_seeds);
STRATA_FUZZ_TARGET(model_descriptor, test_model, mutate_descriptor, model_seeds);
STRATA_FUZZ_TARGET(register_payload, test_travelling_payload, mutate_travelling_payload,
                   travelling_payload_seeds);
STRATA_FUZZ_TARGET(local_payload, test_local_payload, mutate_local_payload, local_payload_seeds);

}  // namespace strata::fuzz
