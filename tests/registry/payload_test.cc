// The payload of a PREPARE: there and back, and what is refused.
#include "registry/payload.h"

#include <gtest/gtest.h>

namespace strata::registry {
namespace {

PreparePayload callable(const std::string& symbol) {
  return {symbol, model::NativeImportDescriptor{"libk.so", symbol}, {"/opt/k/libk.so"}};
}

TEST(PreparePayload, ComesBackAndIsRefusedWhenCut) {
  const PreparePayload sent{
      "gemm", model::NativeImportDescriptor{"libk.so", "gemm"}, {"/a/libk.so", "/b/libk.so"}};
  std::vector<std::byte> bytes = encode_payload(sent).value();
  const PreparePayload got = decode_payload(bytes).value();
  EXPECT_EQ(got.name, sent.name);
  EXPECT_EQ(got.descriptor, sent.descriptor);
  EXPECT_EQ(got.library_paths, sent.library_paths);
  for (size_t n = 0; n < bytes.size(); ++n) {
    ASSERT_FALSE(decode_payload(std::vector(bytes.begin(), bytes.begin() + n)).ok()) << n;
  }
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(decode_payload(bytes).ok());
}

TEST(PreparePayload, OfAChipCallableNamesItsBlob) {
  PreparePayload sent{"scale", model::ChipCallableDescriptor{"cpu", "scale", "", {}}, {}};
  EXPECT_FALSE(encode_payload(sent).ok());
  sent.blob_offset = 4096;
  sent.blob_bytes = 77;
  const PreparePayload got = decode_payload(encode_payload(sent).value()).value();
  EXPECT_EQ(got.descriptor, sent.descriptor);
  EXPECT_EQ(got.blob_offset, 4096u);
  EXPECT_EQ(got.blob_bytes, 77u);
  sent.blob_bytes = ChipCallable::kBlobBytesMax + 1;
  EXPECT_FALSE(encode_payload(sent).ok());
}

TEST(PreparePayload, OverALimitIsRefused) {
  PreparePayload payload = callable("f");
  payload.blob_bytes = 1;
  EXPECT_FALSE(encode_payload(payload).ok());
  payload = callable("f");
  payload.library_paths.assign(kLibraryPathsMax, std::string(kPathBytesMax, 'p'));
  EXPECT_TRUE(encode_payload(payload).ok());
  payload.library_paths.emplace_back("p");
  EXPECT_FALSE(encode_payload(payload).ok());
  payload.library_paths = {std::string(kPathBytesMax + 1, 'p')};
  EXPECT_FALSE(encode_payload(payload).ok());
  payload = callable("f");
  payload.name = std::string(256, 'n');
  EXPECT_FALSE(encode_payload(payload).ok());
  payload.name = "\xff";
  EXPECT_FALSE(encode_payload(payload).ok());
  payload = callable("not an identifier");
  EXPECT_FALSE(encode_payload(payload).ok());
}

}  // namespace
}  // namespace strata::registry
