// Descriptor bytes and the payload of PREPARE_REGISTER: golden, the same as the model's, refusals.
#include "wire/descriptor.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "messages.h"
#include "model/descriptor.h"

namespace strata::wire {
namespace {

const NativeDescriptor kNative{1, CallableKind::kNativeImport, "libtile.so", "gemm"};
const PythonDescriptor kPython{1, CallableKind::kPythonImport, "pkg.tiles", "Tile.gemm"};

ChipDescriptor chip() {
  return {1,
          CallableKind::kChipCallable,
          "cpu",
          "gemm",
          "in,out:f32",
          base::sha256(sample::bytes("blob"))};
}

template <class T>
std::string refusal(const T& descriptor) {
  const auto got = encode_descriptor(descriptor);
  return got.ok() ? "" : got.error().message();
}

std::string decode_refusal(std::span<const std::byte> bytes) {
  const auto got = decode_descriptor(bytes);
  return got.ok() ? "" : got.error().message();
}

TEST(DescriptorBytes, AreTheModelsForTheSameCallable) {
  EXPECT_EQ(encode_descriptor(kNative).value(),
            model::descriptor_bytes(model::NativeImportDescriptor{"libtile.so", "gemm"}));
  const ChipDescriptor c = chip();
  EXPECT_EQ(encode_descriptor(c).value(), model::descriptor_bytes(model::ChipCallableDescriptor{
                                              c.platform, c.entry, c.signature, c.blob}));
}

TEST(DescriptorBytes, OfAPythonImportAreGolden) {
  EXPECT_EQ(base::hex(encode_descriptor(kPython).value()),
            "0100000003000000"
            "09000000706b672e74696c6573"
            "0900000054696c652e67656d6d");
}

TEST(DescriptorBytes, ComeBackAndNoByteIsIgnored) {
  for (const Descriptor& descriptor :
       {Descriptor(kNative), Descriptor(kPython), Descriptor(chip())}) {
    std::vector<std::byte> bytes = encode_descriptor(descriptor).value();
    EXPECT_EQ(kind_of(decode_descriptor(bytes).value()), kind_of(descriptor));
    for (size_t n = 0; n < bytes.size(); ++n) {
      EXPECT_FALSE(decode_descriptor(std::span(bytes).first(n)).ok()) << n;
    }
    for (size_t i = 0; i < bytes.size(); ++i) {
      for (const uint8_t flip : {0x01, 0x80, 0xff}) {
        bytes[i] ^= std::byte{flip};
        if (const auto back = decode_descriptor(bytes)) {
          EXPECT_EQ(encode_descriptor(*back).value(), bytes) << i;
        }
        bytes[i] ^= std::byte{flip};
      }
    }
    bytes.push_back({});
    EXPECT_FALSE(decode_descriptor(bytes).ok());
  }
}

TEST(DescriptorBytes, OfAnotherSchemaOrKindAreUnsupported) {
  std::vector<std::byte> bytes = encode_descriptor(kNative).value();
  bytes[0] = std::byte{2};
  EXPECT_EQ(decode_descriptor(bytes).error().code(), Code::kUnsupported);
  EXPECT_EQ(decode_refusal(bytes), "descriptor: schema 2, this version knows 1");
  bytes[0] = std::byte{1};
  for (const uint8_t kind : {0, 2, 5, 6}) {
    bytes[4] = static_cast<std::byte>(kind);
    EXPECT_EQ(decode_descriptor(bytes).error().code(), Code::kUnsupported);
    EXPECT_EQ(decode_refusal(bytes),
              "descriptor: kind " + std::to_string(kind) + ", which does not travel");
  }
}

TEST(DescriptorBytes, ThatSayTwoThingsOfThemselvesAreNotSent) {
  NativeDescriptor native = kNative;
  native.kind = CallableKind::kPythonImport;
  EXPECT_EQ(refusal(native), "descriptor of a NATIVE_IMPORT: another kind");
  native = kNative;
  native.schema = 2;
  EXPECT_EQ(refusal(native), "descriptor of a NATIVE_IMPORT: schema 2");
}

TEST(DescriptorBytes, NamesFollowTheirRules) {
  for (const char* bad : {"", "..", "a/b", "/a"}) {
    NativeDescriptor native = kNative;
    native.library = bad;
    EXPECT_NE(refusal(native), "") << bad;
  }
  for (const char* bad : {"", ".", "a:b", "a b", "a.", ".a", "a..b", "a\tb", "a/b"}) {
    PythonDescriptor python = kPython;
    python.module = bad;
    EXPECT_EQ(refusal(python),
              "descriptor of a PYTHON_IMPORT: module is no name of a Python module");
    python = kPython;
    python.qualname = bad;
    EXPECT_EQ(refusal(python),
              "descriptor of a PYTHON_IMPORT: qualname is no qualified name of Python");
  }
  ChipDescriptor c = chip();
  c.entry = "1a";
  EXPECT_NE(refusal(c), "");
  c = chip();
  c.platform = "a b";
  EXPECT_NE(refusal(c), "");
}

TEST(DescriptorBytes, OverALimitAreRefused) {
  ChipDescriptor c = chip();
  c.platform.assign(kPlatformBytesMax, 'a');
  c.signature.assign(kSignatureBytesMax, 'a');
  EXPECT_EQ(refusal(c), "");
  c.platform += 'a';
  EXPECT_EQ(refusal(c), "descriptor of a CHIP_CALLABLE: platform: 33, at most 32");
  c = chip();
  c.signature.assign(kSignatureBytesMax + 1, 'a');
  EXPECT_EQ(refusal(c), "descriptor of a CHIP_CALLABLE: signature: 4097, at most 4096");
  EXPECT_EQ(decode_refusal(std::vector<std::byte>(kDescriptorBytesMax + 1)),
            "descriptor: 8193 bytes, at most 8192");
}

// ---- what PREPARE_REGISTER carries

std::string refusal_of(const CallablePayload& payload) {
  std::vector<std::byte> out;
  const Result<void> done = encode(payload, &out);
  return done.ok() ? "" : done.error().message();
}

TEST(RegisterPayload, ComesBackWithItsBlob) {
  const std::vector<std::byte> blob = sample::bytes("blob");
  const CallablePayload payload{encode_descriptor(chip()).value(), "gemm of f32", blob};
  std::vector<std::byte> bytes;
  encode(payload, &bytes).value();
  const CallablePayload got = decode<CallablePayload>(bytes).value();
  EXPECT_EQ(got.name, "gemm of f32");
  EXPECT_TRUE(std::equal(got.blob.begin(), got.blob.end(), blob.begin(), blob.end()));
}

TEST(RegisterPayload, HasTheBlobThatItsDescriptorNames) {
  const std::vector<std::byte> blob = sample::bytes("blob"), other = sample::bytes("blot");
  CallablePayload payload{encode_descriptor(chip()).value(), "n", {}};
  EXPECT_EQ(refusal_of(payload), "PREPARE_REGISTER's payload: a CHIP_CALLABLE without its blob");
  payload.blob = other;
  EXPECT_EQ(refusal_of(payload),
            "PREPARE_REGISTER's payload: the blob is not the one that the descriptor names");
  payload.descriptor = encode_descriptor(kNative).value();
  EXPECT_EQ(refusal_of(payload), "PREPARE_REGISTER's payload: a blob of what is no CHIP_CALLABLE");
  payload.blob = {};
  EXPECT_EQ(refusal_of(payload), "");
  payload.descriptor = {};
  EXPECT_EQ(refusal_of(payload), "PREPARE_REGISTER's payload: descriptor: is cut off");
}

TEST(RegisterPayload, IsWhatTheControlSays) {
  const CallablePayload payload{encode_descriptor(kNative).value(), "n", {}};
  PrepareRegister control = sample::prepare_register();
  control.kind = CallableKind::kNativeImport;
  control.digest = base::sha256(payload.descriptor);
  EXPECT_TRUE(check_registration(control, payload).ok());
  control.digest[0] ^= std::byte{1};
  EXPECT_TRUE(check_registration(control, payload)
                  .error()
                  .message()
                  .starts_with("PREPARE_REGISTER: a payload of digest "));
  control.kind = CallableKind::kPythonImport;
  EXPECT_EQ(check_registration(control, payload).error().message(),
            "PREPARE_REGISTER: a payload of kind NATIVE_IMPORT, where PYTHON_IMPORT was said");
  EXPECT_FALSE(check_registration(control, CallablePayload{}).ok());
}

}  // namespace
}  // namespace strata::wire
