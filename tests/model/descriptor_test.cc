#include "model/descriptor.h"

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/prng.h"
#include "base/text.h"
#include "base/utf8.h"

namespace strata::model {
namespace {

// Spelled out: u32 schema 1, u32 kind 4, u32 13 "libkernels.so", u32 4 "gemm".
constexpr unsigned char kNativeGolden[] = {
    0x01, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x0d, 0x00, 0x00, 0x00, 'l', 'i', 'b', 'k', 'e',
    'r',  'n',  'e',  'l',  's',  '.',  's',  'o',  0x04, 0x00, 0x00, 0x00, 'g', 'e', 'm', 'm'};
// u32 schema 1, u32 kind 5, u32 4 de ad be ef, u64 0x0123456789abcdef.
constexpr unsigned char kLocalGolden[] = {0x01, 0x00, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00,
                                          0x04, 0x00, 0x00, 0x00, 0xde, 0xad, 0xbe, 0xef,
                                          0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01};

// u32 schema 1, u32 kind 1, u32 3 "cpu", u32 5 "scale", u32 2 "f4", the blob's 32 bytes 0 to 31.
constexpr unsigned char kChipGolden[] = {
    0x01, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x03, 0x00, 0x00, 0x00, 'c', 'p', 'u', 0x05,
    0x00, 0x00, 0x00, 's',  'c',  'a',  'l',  'e',  0x02, 0x00, 0x00, 0x00, 'f', '4', 0,   1,
    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,   13,   14,  15,  16,  17,
    18,   19,   20,   21,   22,   23,   24,   25,   26,   27,   28,   29,   30,  31};

std::vector<std::byte> bytes_of(std::span<const unsigned char> raw) {
  const auto bytes = std::as_bytes(raw);
  return {bytes.begin(), bytes.end()};
}

LocalFunctionDescriptor local_golden() {
  const auto id = bytes_of(std::span(kLocalGolden).subspan(12, 4));
  return {id, 0x0123456789abcdefull};
}

TEST(Descriptor, OfANativeImportHasGoldenBytesAndDigest) {
  const std::vector<std::byte> bytes =
      descriptor_bytes(NativeImportDescriptor{"libkernels.so", "gemm"});
  EXPECT_EQ(bytes, bytes_of(kNativeGolden));
  EXPECT_EQ(hashid_of(digest_of(bytes)),
            "sha256:8a8c1fd371a6fb4df77ac107fb234c14"
            "8689f9ac0fd3a435703405230693a266");
}

TEST(Descriptor, OfALocalFunctionHasGoldenBytesAndDigest) {
  const std::vector<std::byte> bytes = descriptor_bytes(local_golden());
  EXPECT_EQ(bytes, bytes_of(kLocalGolden));
  EXPECT_EQ(hashid_of(digest_of(bytes)),
            "sha256:6da8d8f96a1d5d33704e2b16303d0b40"
            "4d402292759af71918f2577b09916b5b");
}

ChipCallableDescriptor chip_golden() {
  ChipCallableDescriptor chip{"cpu", "scale", "f4", {}};
  for (size_t i = 0; i < chip.blob.size(); ++i) chip.blob[i] = static_cast<std::byte>(i);
  return chip;
}

TEST(Descriptor, OfAChipCallableHasGoldenBytesAndDigest) {
  const std::vector<std::byte> bytes = descriptor_bytes(chip_golden());
  EXPECT_EQ(bytes, bytes_of(kChipGolden));
  EXPECT_EQ(hashid_of(digest_of(bytes)),
            "sha256:8add6ea97dc484ea235792a8135961f6"
            "c85336cff2fcb59629142d4f5709a1b6");
}

TEST(Descriptor, OfAChipCallableHasAPlatformAnEntryAndASignature) {
  EXPECT_TRUE(validate(chip_golden()).ok());
  const auto text_of = [](auto&& change) {
    ChipCallableDescriptor chip = chip_golden();
    change(chip);
    const Result<void> result = validate(Descriptor(chip));
    return result.ok() ? std::string() : result.error().message();
  };
  using Chip = ChipCallableDescriptor;
  EXPECT_EQ(text_of([](Chip& c) { c.signature.clear(); }), "");
  EXPECT_EQ(text_of([](Chip& c) { c.signature = std::string(4096, 's'); }), "");
  EXPECT_NE(text_of([](Chip& c) { c.signature = std::string(4097, 's'); }).find("4097"),
            std::string::npos);
  EXPECT_NE(text_of([](Chip& c) { c.signature = "\xff"; }).find("UTF-8"), std::string::npos);
  EXPECT_NE(text_of([](Chip& c) { c.platform = ""; }).find("platform"), std::string::npos);
  EXPECT_NE(text_of([](Chip& c) { c.platform = "c pu"; }).find("'c pu'"), std::string::npos);
  EXPECT_NE(text_of([](Chip& c) { c.entry = "9"; }).find("C identifier"), std::string::npos);
  EXPECT_NE(text_of([](Chip& c) { c.entry = std::string(256, 'e'); }).find("256"),
            std::string::npos);
}

TEST(Descriptor, ComesBackFromItsBytes) {
  const Descriptor native = NativeImportDescriptor{"lib\xc3\xa4.so", "_f9"};
  EXPECT_EQ(decode_descriptor(descriptor_bytes(native)).value(), native);
  EXPECT_EQ(kind_of(native), CallableKind::kNativeImport);
  const Descriptor local = local_golden();
  EXPECT_EQ(decode_descriptor(descriptor_bytes(local)).value(), local);
  EXPECT_EQ(kind_of(local), CallableKind::kLocalFunction);
  const Descriptor chip = chip_golden();
  EXPECT_EQ(decode_descriptor(descriptor_bytes(chip)).value(), chip);
  EXPECT_EQ(kind_of(chip), CallableKind::kChipCallable);
}

TEST(Descriptor, CutAnywhereOrLongerIsRefused) {
  for (const Descriptor& d : {Descriptor(NativeImportDescriptor{"libkernels.so", "gemm"}),
                              Descriptor(local_golden()), Descriptor(chip_golden())}) {
    std::vector<std::byte> bytes = descriptor_bytes(d);
    for (size_t n = 0; n < bytes.size(); ++n) {
      const auto cut = decode_descriptor(std::span(bytes).first(n));
      ASSERT_FALSE(cut.ok()) << n;
      EXPECT_EQ(cut.error().code(), Code::kCorrupt);
    }
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(decode_descriptor(bytes).ok());
  }
}

TEST(Descriptor, WithAnyByteChangedIsAnotherOneOrRefused) {
  const std::vector<std::byte> good = bytes_of(kNativeGolden);
  base::Prng prng(1);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::byte> bad = good;
    bad[prng.below(bad.size())] ^= static_cast<std::byte>(prng.between(1, 255));
    const auto got = decode_descriptor(bad);
    if (got.ok()) {
      EXPECT_EQ(descriptor_bytes(got.value()), bad);
      EXPECT_NE(digest_of(bad), digest_of(good));
    }
  }
}

TEST(Descriptor, OfAnotherSchemaOrKindIsRefused) {
  std::vector<std::byte> schema = bytes_of(kNativeGolden);
  schema[0] = std::byte{2};
  EXPECT_NE(decode_descriptor(schema).error().message().find("schema 2"), std::string::npos);
  std::vector<std::byte> kind = bytes_of(kNativeGolden);
  kind[4] = std::byte{2};
  EXPECT_NE(decode_descriptor(kind).error().message().find("kind 2"), std::string::npos);
}

std::string refusal(const std::string& library, const std::string& symbol) {
  const Result<void> result = validate(NativeImportDescriptor{library, symbol});
  if (result.ok()) return "";
  EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
  return result.error().message();
}

TEST(Descriptor, LibraryIsAPlainFileName) {
  EXPECT_EQ(refusal("libkernels.so.1", "gemm"), "");
  EXPECT_EQ(refusal("...", "gemm"), "");
  EXPECT_EQ(refusal(std::string(255, 'a'), "gemm"), "");
  EXPECT_NE(refusal("", "gemm").find("empty"), std::string::npos);
  EXPECT_NE(refusal("a/b.so", "gemm").find("WorkerSpec::library_path"), std::string::npos);
  EXPECT_NE(refusal("/b.so", "gemm").find("folder"), std::string::npos);
  EXPECT_NE(refusal(".", "gemm").find("folder"), std::string::npos);
  EXPECT_NE(refusal("..", "gemm").find("folder"), std::string::npos);
  EXPECT_NE(refusal(std::string(256, 'a'), "gemm").find("256"), std::string::npos);
  EXPECT_NE(refusal("a\xff.so", "gemm").find("UTF-8"), std::string::npos);
  EXPECT_NE(refusal(std::string("a\0b", 3), "gemm").find("zero byte"), std::string::npos);
}

TEST(Descriptor, SymbolIsACIdentifier) {
  EXPECT_EQ(refusal("l.so", "_Z3foov"), "");
  EXPECT_EQ(refusal("l.so", std::string(255, 's')), "");
  for (const char* bad : {"", "9a", "a-b", "a b", "a.b", "\xc3\xa4", "a\xff"}) {
    EXPECT_NE(refusal("l.so", bad).find("C identifier"), std::string::npos) << bad;
  }
  EXPECT_NE(refusal("l.so", std::string(256, 's')).find("256"), std::string::npos);
}

TEST(Descriptor, LocalFunctionNeedsABuildIdOfAtMost32Bytes) {
  EXPECT_TRUE(validate(local_golden()).ok());
  EXPECT_TRUE(validate(LocalFunctionDescriptor{std::vector<std::byte>(32), 0}).ok());
  EXPECT_FALSE(validate(LocalFunctionDescriptor{std::vector<std::byte>(33), 0}).ok());
  const auto none = validate(Descriptor(LocalFunctionDescriptor{{}, 0}));
  EXPECT_NE(none.error().message().find("--build-id"), std::string::npos);
}

TEST(Utf8, TakesExactlyTheCharactersOfTheStandard) {
  for (const char* good : {"", "a", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
                           "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(base::utf8_valid(good))
        << base::hex(std::as_bytes(std::span(std::string_view(good))));
  }
  for (const char* bad :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xc2", "\xc2g", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xe1\x80",
        "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "ok\xe2\x82"}) {
    EXPECT_FALSE(base::utf8_valid(bad))
        << base::hex(std::as_bytes(std::span(std::string_view(bad))));
  }
}

}  // namespace
}  // namespace strata::model
