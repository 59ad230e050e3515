#include "device/cpu_backend.h"

#include <set>

#include "strata/callable.h"
#include "tests/device/device_rig.h"

namespace strata::device {
namespace {

struct Results {
  std::vector<int64_t> values;
  std::vector<uint64_t> scalars;
};

strata_call call_of(Results* results) {
  strata_call call{};
  call.size = sizeof call;
  call.abi = STRATA_ABI;
  call.scalars = results->scalars.data();
  call.scalar_count = static_cast<uint32_t>(results->scalars.size());
  call.runtime = results;
  call.set_result = [](const strata_call* raw, const void* bytes, uint64_t n) {
    int64_t value = 0;
    if (n != sizeof value) return -1;
    std::memcpy(&value, bytes, sizeof value);
    static_cast<Results*>(raw->runtime)->values.push_back(value);
    return 0;
  };
  call.set_error = [](const strata_call*, const char*, uint64_t) {};
  return call;
}

int64_t result_of(ChipBackend& backend, ChipBackend::Kernel kernel) {
  Results results;
  strata_call call = call_of(&results);
  EXPECT_EQ(backend.run(kernel, &call, 1).code, 0);
  return results.values.at(0);
}

TEST(CpuBackend, OtherBackendsAndSizesAreRefusedByName) {
  EXPECT_TRUE(check_backend({"cpu", 4096}));
  const Result<void> cuda = check_backend({"cuda", 4096});
  ASSERT_FALSE(cuda);
  EXPECT_EQ(cuda.error().code(), Code::kUnsupported);
  EXPECT_EQ(cuda.error().message(),
            "ChipSpec::backend 'cuda': this build has the backend 'cpu' only");
  EXPECT_EQ(check_backend({"cpu", 4095}).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(check_backend({"cpu", ~uint64_t{0}}).error().code(), Code::kInvalidArgument);
}

TEST(CpuBackend, LoadsEachObjectForItself) {
  Rig rig;
  const auto one = kernel_bytes("chip_version_1");
  const auto two = kernel_bytes("chip_version_2");
  const auto first = rig.backend->load({"v", "version", one}).value();
  const auto second = rig.backend->load({"v", "version", two}).value();
  const auto again = rig.backend->load({"v", "version", one}).value();
  EXPECT_EQ(result_of(*rig.backend, first), 1001);
  EXPECT_EQ(result_of(*rig.backend, first), 1002);
  EXPECT_EQ(result_of(*rig.backend, second), 2001);
  EXPECT_EQ(result_of(*rig.backend, again), 1001);  // the same bytes, with state of their own
}

TEST(CpuBackend, UnloadsAndLoadsAgainManyTimesWithoutMixingThemUp) {
  Rig rig;
  const std::vector<std::byte> blobs[] = {kernel_bytes("chip_version_1"),
                                          kernel_bytes("chip_version_2")};
  std::set<ChipBackend::Kernel> names;
  for (int round = 0; round < 50; ++round) {
    const auto kernel = rig.backend->load({"v", "version", blobs[round % 2]}).value();
    EXPECT_TRUE(names.insert(kernel).second);
    EXPECT_EQ(result_of(*rig.backend, kernel), (round % 2 + 1) * 1000 + 1);
    rig.backend->unload(kernel);
  }
}

TEST(CpuBackend, ObjectsThatAreNoKernelsAreRefusedInWords) {
  Rig rig;
  const auto text_of = [&](const std::vector<std::byte>& blob, const char* entry) {
    const auto loaded = rig.backend->load({"k", entry, blob});
    return loaded.ok() ? std::string("loaded") : loaded.error().to_string();
  };
  const std::vector<std::byte> junk(1000, std::byte{7});
  EXPECT_NE(text_of(junk, "k").find("NOT_FOUND [call]: the object of kernel 'k' does not load: the "
                                    "object: invalid ELF header"),
            std::string::npos)
      << text_of(junk, "k");
  EXPECT_NE(text_of(kernel_bytes("chip_without_abi"), "plain").find("exports no strata_abi"),
            std::string::npos);
  EXPECT_NE(text_of(kernel_bytes("chip_of_another_abi"), "plain").find("Strata ABI 999"),
            std::string::npos);
  EXPECT_NE(text_of(kernel_bytes("chip_kernels"), "absent").find("exports no symbol absent"),
            std::string::npos);
}

TEST(CpuBackend, AKernelThatFailsEndsItsTaskAtThatBlock) {
  Rig rig;
  const auto blob = kernel_bytes("chip_kernels");
  const auto kernel = rig.backend->load({"t", "chip_throw", blob}).value();
  Results results{{}, {3}};
  strata_call call = call_of(&results);
  const KernelOutcome outcome = rig.backend->run(kernel, &call, 8);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.block, 3);
  EXPECT_EQ(rig.note.block, 3);
  EXPECT_EQ(rig.note.where(), "");
}

TEST(ChipNote, SaysWhatTheChipDoes) {
  ChipNote note{};
  EXPECT_EQ(note.where(), "");
  note.begin(ChipNote::Doing::kLoading, "gemm", 0);
  EXPECT_EQ(note.where(), " while it loaded kernel 'gemm'");
  note.begin(ChipNote::Doing::kRunning, "gemm", 8);
  note.block = 3;
  EXPECT_EQ(note.where(), " in kernel 'gemm', block 3 of 8");
  note.end();
  EXPECT_EQ(note.where(), "");
  note.begin(ChipNote::Doing::kRunning, std::string(1000, 'k'), 1);
  note.name_bytes = 100'000;  // as a kernel that scribbles may leave it
  EXPECT_EQ(note.where(), " in kernel '" + std::string(256, 'k') + "', block 0 of 1");
}

}  // namespace
}  // namespace strata::device
