// Host memory that chips map: in place, with one copy for all chips, with no more rights than the
// tag, kept warm and dropped with its buffer.
#include <signal.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "strata/formats.h"
#include "tests/runtime/chip_test_util.h"

namespace strata::test {
namespace {

constexpr Transfer kMap = Transfer::kMap;
constexpr uint64_t kTableBytes = 32 << 20;

class Maps : public ::testing::TestWithParam<StartMethod> {};

INSTANTIATE_TEST_SUITE_P(Starts, Maps, ::testing::Values(StartMethod::kInline, StartMethod::kFork),
                         [](const auto& start) {
                           return start.param == StartMethod::kInline ? "Inline" : "Fork";
                         });

// What /proc says of a process's mappings of the heap, in bytes.
struct HeapMappings {
  uint64_t size = 0;
  uint64_t rss = 0;
  uint64_t pss = 0;
  std::string rights;  // of the last one
};

HeapMappings heap_mappings(int pid) {
  HeapMappings out;
  std::ifstream file("/proc/" + std::to_string(pid) + "/smaps");
  bool ours = false;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first;
    std::string second;
    words >> first >> second;
    if (first.find('-') != std::string::npos && first.find(':') == std::string::npos) {
      ours = line.find("memfd:strata-heap") != std::string::npos;
      if (ours) out.rights = second;
      continue;
    }
    if (!ours) continue;
    const uint64_t bytes = std::strtoull(second.c_str(), nullptr, 10) * 1024;
    if (first == "Size:") out.size += bytes;
    if (first == "Rss:") out.rss += bytes;
    if (first == "Pss:") out.pss += bytes;
  }
  return out;
}

// Bytes of pages that this process's heap has, whoever maps them.
uint64_t heap_pages() {
  for (const int fd : open_fds()) {
    char name[64] = {};
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    if (::readlink(link.c_str(), name, sizeof name - 1) < 0) continue;
    if (std::string_view(name).find("memfd:strata-heap") == std::string_view::npos) continue;
    struct stat info {};
    EXPECT_EQ(::fstat(fd, &info), 0);
    return static_cast<uint64_t>(info.st_blocks) * 512;
  }
  ADD_FAILURE() << "no heap is open";
  return 0;
}

TEST_P(Maps, InOutAndInoutAreInPlace) {
  auto worker = started(chip_spec(GetParam(), 1));
  const auto copy_add_kernel = loaded(*worker, "chip_copy_add");
  const auto scale = loaded(*worker, "chip_scale");
  auto x = worker->create_buffer(8192).value();
  auto y = worker->create_buffer(8192).value();
  for (int64_t i = 0; i < 1024; ++i) x.as<int64_t>()[i] = i;
  ASSERT_TRUE(run_on_chip(*worker, copy_add_kernel,
                          TaskArgs()
                              .add_tensor(x.tensor<int64_t>({1024}), INPUT, kMap)
                              .add_tensor(y.tensor<int64_t>({1024}), OUTPUT, kMap)
                              .add_scalar(int64_t{5})));
  ASSERT_TRUE(run_on_chip(
      *worker, scale,
      TaskArgs().add_tensor(y.tensor<int64_t>({1000}, 64), INOUT, kMap).add_scalar(int64_t{2}),
      {.block_dim = 3}));
  for (int64_t i = 0; i < 1024; ++i) {
    const bool scaled = i >= 8 && i < 1008;
    ASSERT_EQ(y.as<int64_t>()[i], (i + 5) * (scaled ? 2 : 1)) << i;
  }
  const ChipUsage usage = usage_of(*worker);
  EXPECT_EQ(usage.copied_in + usage.copied_out, 0u);
  EXPECT_EQ(usage.peak_bytes, 0u);
  EXPECT_EQ(usage.mappings, 2u);
  worker->close().value();
}

TEST_P(Maps, StayWarmForLaterTasksAndGoWithTheirBuffer) {
  auto worker = started(chip_spec(GetParam(), 1));
  const auto sum = loaded(*worker, "chip_sum");
  const auto address = loaded(*worker, "chip_address");
  {
    auto table = worker->create_buffer(1 << 20).value();
    const TaskArgs args = TaskArgs().add_tensor(table.tensor<int64_t>({1 << 17}), INPUT, kMap);
    const auto first = result_on_chip<uint64_t>(*worker, address, args).value();
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(run_on_chip(*worker, sum, args));
    EXPECT_EQ(result_on_chip<uint64_t>(*worker, address, args).value(), first);
    EXPECT_EQ(usage_of(*worker).mappings_made, 1u);
    EXPECT_EQ(usage_of(*worker).mapped_bytes, 1u << 20);
  }
  // Nothing but the end of the buffer tells the chip.
  EXPECT_TRUE(await([&] { return usage_of(*worker).mappings == 0; }));
  if (GetParam() == StartMethod::kFork) {
    EXPECT_EQ(heap_mappings(worker->next_level_children().at(0).pid).size, 0u);
  }
  // A buffer in the same place is another one.
  auto next = worker->create_buffer(1 << 20).value();
  next.as<int64_t>()[0] = 77;
  EXPECT_EQ(result_on_chip<int64_t>(
                *worker, sum, TaskArgs().add_tensor(next.tensor<int64_t>({1 << 17}), INPUT, kMap))
                .value(),
            77);
  EXPECT_EQ(usage_of(*worker).mappings_made, 2u);
  worker->close().value();
}

TEST(MapsOfProcesses, OneTableIsMappedByAllChipsWithOneCopyInMemory) {
  constexpr int kChips = 3;
  auto worker = started(chip_spec(StartMethod::kFork, kChips));
  const auto sum = loaded(*worker, "chip_sum");
  auto table = worker->create_buffer(kTableBytes).value();
  for (int64_t& v : table.as<int64_t>()) v = 3;
  table.make_read_only().value();
  const uint64_t pages_before = heap_pages();
  const TaskArgs args =
      TaskArgs().add_tensor(table.tensor<int64_t>({kTableBytes / 8}), INPUT, kMap);
  for (int chip = 0; chip < kChips; ++chip) {
    EXPECT_EQ(usage_of(*worker, chip).peak_bytes, 0u);
    EXPECT_EQ(result_on_chip<int64_t>(*worker, sum, args, {}, chip).value(), 3 * kTableBytes / 8);
  }
  EXPECT_EQ(heap_pages(), pages_before);
  uint64_t pss = heap_mappings(::getpid()).pss;
  for (int chip = 0; chip < kChips; ++chip) {
    const HeapMappings mapped = heap_mappings(worker->next_level_children().at(chip).pid);
    EXPECT_EQ(mapped.size, kTableBytes);
    EXPECT_EQ(mapped.rss, kTableBytes);
    EXPECT_LT(mapped.pss, kTableBytes / 3);  // shared by four
    EXPECT_EQ(mapped.rights, "r--s");
    pss += mapped.pss;
    const ChipUsage usage = usage_of(*worker, chip);
    EXPECT_EQ(usage.peak_bytes, 0u);
    EXPECT_EQ(usage.copied_in, 0u);
    EXPECT_EQ(usage.mapped_bytes, kTableBytes);
  }
  // The heap's pages, counted once; the blob of the kernel is there too.
  EXPECT_LT(pss, kTableBytes + (1 << 20));
  worker->close().value();
}

TEST(MapsOfProcesses, AChipMapsNoMoreOfTheHeapThanItsTasksMap) {
  auto worker = started(chip_spec(StartMethod::kFork, 1));
  const auto sum = loaded(*worker, "chip_sum");
  auto copied = worker->create_buffer(1 << 20).value();
  auto mapped = worker->create_buffer(1 << 20).value();
  const int pid = worker->next_level_children().at(0).pid;
  ASSERT_TRUE(
      run_on_chip(*worker, sum, TaskArgs().add_tensor(copied.tensor<int64_t>({1 << 17}), INOUT)));
  EXPECT_EQ(heap_mappings(pid).size, 0u);
  ASSERT_TRUE(run_on_chip(*worker, sum,
                          TaskArgs().add_tensor(mapped.tensor<int64_t>({8}, 4096), INPUT, kMap)));
  EXPECT_EQ(heap_mappings(pid).size, 1u << 20);
  worker->close().value();
}

TEST(MapsOfProcesses, AWriteThroughAnInputEndsTheChip) {
  auto worker = started(chip_spec(StartMethod::kFork, 1));
  const auto poke = loaded(*worker, "chip_poke");
  auto x = worker->create_buffer(8192).value();
  expect_error(
      run_on_chip(*worker, poke, TaskArgs().add_tensor(x.tensor<uint8_t>({8192}), INPUT, kMap)),
      Code::kEndpointFailed, "killed by signal 11 (Segmentation fault) in kernel 'chip_poke'");
  EXPECT_EQ(x.as<uint8_t>()[0], 0);
  worker->close().value();
}

TEST(MapsOfProcesses, AWriteToAReadOnlyBufferWithoutATagEndsTheChip) {
  auto worker = started(chip_spec(StartMethod::kFork, 1));
  const auto poke = loaded(*worker, "chip_poke");
  auto x = worker->create_buffer(8192).value();
  x.make_read_only().value();
  expect_error(
      run_on_chip(*worker, poke, TaskArgs().add_tensor(x.tensor<uint8_t>({8192}), NO_DEP, kMap)),
      Code::kEndpointFailed, "killed by signal 11");
  worker->close().value();
}

TEST_P(Maps, ReadOnlyBuffersTakeNoWritingTagAnywhere) {
  auto worker = started(chip_spec(GetParam(), 1, 1));
  const auto on_chip = loaded(*worker, "chip_scale");
  const auto on_host = registered<fill>(*worker, "fill");
  const auto sum = loaded(*worker, "chip_sum");
  auto x = worker->create_buffer(64).value();
  const Tensor t = x.tensor<int64_t>({8});
  ASSERT_TRUE(run_on_chip(*worker, on_chip, TaskArgs().add_tensor(t, INOUT).add_scalar(1)));
  x.make_read_only().value();
  x.make_read_only().value();
  for (const TensorArgType tag : {OUTPUT, INOUT, OUTPUT_EXISTING}) {
    expect_error(run_on_chip(*worker, on_chip, TaskArgs().add_tensor(t, tag).add_scalar(1)),
                 Code::kInvalidArgument, "is read-only (Buffer::make_read_only)");
    expect_error(run_on_chip(*worker, on_chip, TaskArgs().add_tensor(t, tag, kMap).add_scalar(1)),
                 Code::kInvalidArgument, "a map for writing");
    expect_error(worker->run([&](Orchestrator& orch) -> Result<void> {
      const Result<TaskRef> task =
          orch.submit_sub(on_host, TaskArgs().add_tensor(t, tag).add_scalar(int64_t{1}));
      return task ? Result<void>() : Result<void>(task.error());
    }),
                 Code::kInvalidArgument, "is read-only (Buffer::make_read_only)");
  }
  EXPECT_TRUE(run_on_chip(*worker, sum, TaskArgs().add_tensor(t, INPUT)));
  EXPECT_TRUE(run_on_chip(*worker, sum, TaskArgs().add_tensor(t, INPUT, kMap)));
  worker->close().value();
}

TEST_P(Maps, ATaskDoesNotMapWhatItCopies) {
  auto worker = started(chip_spec(GetParam(), 1));
  const auto alias = loaded(*worker, "chip_alias");
  auto x = worker->create_buffer(64).value();
  const auto args_of = [&](uint64_t offset) {
    return TaskArgs()
        .add_tensor(x.tensor<int64_t>({2}), INOUT)
        .add_tensor(x.tensor<int64_t>({2}, offset), INPUT, kMap);
  };
  expect_error(run_on_chip(*worker, alias, args_of(8)), Code::kInvalidArgument,
               "tensor 1 maps bytes that tensor 0 copies");
  EXPECT_TRUE(run_on_chip(*worker, alias, args_of(16)));
  worker->close().value();
}

// ---------------------------------------------------------------- tables of small formats

template <class Element>
void fill_bits(Buffer& table, uint8_t keep) {
  uint64_t i = 0;
  for (uint8_t& byte : table.as<uint8_t>()) byte = static_cast<uint8_t>((i++ * 37 + 11) & keep);
}

// The kernel's sum of a mapped table is that of the same bytes here.
template <class Element>
void check_table(StartMethod start, const char* entry, uint8_t keep) {
  auto worker = started(chip_spec(start, 1));
  const auto sum = loaded(*worker, entry);
  constexpr uint64_t kElements = 4096;
  auto table = worker->create_buffer(kElements * sizeof(Element)).value();
  fill_bits<Element>(table, keep);
  double expect = 0;
  for (const Element& element : table.as<Element>()) {
    if constexpr (requires { Element::kValues; }) {
      // Scales near 1, so that the sum is exact in a double.
      const_cast<Element&>(element).scale = static_cast<uint8_t>(120 + element.scale % 16);
      for (int i = 0; i < Element::kValues; ++i) expect += element.at(i) * (i + 1);
    } else {
      expect += element.value();
    }
  }
  ASSERT_NE(expect, 0);
  table.make_read_only().value();
  const TaskArgs args =
      TaskArgs().add_tensor(table.tensor<Element>({64, kElements / 64}), INPUT, kMap);
  EXPECT_EQ(result_on_chip<double>(*worker, sum, args).value(), expect);
  EXPECT_EQ(usage_of(*worker).copied_in, 0u);
  EXPECT_EQ(usage_of(*worker).peak_bytes, 0u);
  const TaskArgs copies = TaskArgs().add_tensor(table.tensor<Element>({kElements}), INPUT);
  EXPECT_EQ(result_on_chip<double>(*worker, sum, copies).value(), expect);
  worker->close().value();
}

// `keep` leaves out the sign, so that the sum is not 0, and what makes a value no number or huge.
TEST_P(Maps, ATableOfBf16HasItsValues) {
  check_table<BF16>(GetParam(), "chip_sum_bf16", 0xbf);
}
TEST_P(Maps, ATableOfF8E4M3HasItsValues) {
  check_table<F8E4M3>(GetParam(), "chip_sum_f8e4m3", 0x7e);
}
TEST_P(Maps, ATableOfF8E5M2HasItsValues) {
  check_table<F8E5M2>(GetParam(), "chip_sum_f8e5m2", 0x3f);
}
TEST_P(Maps, ATableOfMxF8E4M3HasItsValues) {
  check_table<MxF8E4M3>(GetParam(), "chip_sum_mxf8e4m3", 0x7e);
}
TEST_P(Maps, ATableOfMxF8E5M2HasItsValues) {
  check_table<MxF8E5M2>(GetParam(), "chip_sum_mxf8e5m2", 0x3f);
}
TEST_P(Maps, ATableOfMxF4E2M1HasItsValues) {
  check_table<MxF4E2M1>(GetParam(), "chip_sum_mxf4e2m1", 0x77);
}

}  // namespace
}  // namespace strata::test
