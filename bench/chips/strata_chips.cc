// What chips cost: bandwidth of a mapped table against memory of the chip's own, of copies, and the
// time of a launch. See ../README.md.
#include <cinttypes>
#include <cstring>

#include "bench/figure.h"
#include "strata/strata.h"

namespace strata::bench {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr uint64_t kScratchBytes = 64 * 1024;  // stays in the cache
// The table and the memory that it is compared with are both held; neither fits any cache.
uint64_t table_bytes() {
  return (quick() ? 64ull : 256ull) << 20;
}

class Bench {
 public:
  Bench() {
    WorkerSpec spec;
    spec.chips = 1;
    spec.chip.memory_bytes = table_bytes() + (16 << 20);
    worker_ = Worker::create(spec).value();
    worker_->init().value();
    empty_ = load("bench_empty");
    read_ = load("bench_read");
    scratch_ = worker_->create_buffer(kScratchBytes).value();
    table_ = worker_->create_buffer(table_bytes()).value();
    std::memset(table_.data(), 1, table_.size());
    table_.make_read_only().value();
  }
  ~Bench() { worker_->close().value(); }

  void run() {
    const ChipUsage before = worker_->chip_usage(0).value();
    const double first = read(Transfer::kMap);
    std::vector<double> mapped;
    std::vector<double> own;
    // In turn, so that both see the same machine.
    for (int i = 0; i < scaled(12, 5); ++i) {
      mapped.push_back(read(Transfer::kMap));
      if (i == 0) report_map(before);
      own.push_back(read(Transfer::kCopy));
    }
    figure("strata.map.first", first, "GiB/s");
    figure("strata.map.warm", median(mapped), "GiB/s");
    figure("limit.memcpy", median(own), "GiB/s");
    figure("strata.copy", copy_rate(), "GiB/s");
    figure("strata.launch", launch_us(), "us");
  }

 private:
  CallableHandle load(const char* entry) {
    return worker_->register_callable(*ChipCallable::from_file(BENCH_KERNELS, entry)).value();
  }

  // GiB/s of a kernel that reads the table, by its own clock.
  double read(Transfer transfer) {
    TaskRef task;
    RunHandle run =
        worker_
            ->submit([&](Orchestrator& orch) {
              const TaskArgs args =
                  TaskArgs()
                      .add_tensor(table_.tensor<uint8_t>({table_.size()}), INPUT, transfer)
                      .add_tensor(scratch_.tensor<uint8_t>({kScratchBytes}), OUTPUT,
                                  Transfer::kCopy);
              task = orch.submit_next_level(read_, args).value();
            })
            .value();
    run.wait().value();
    return static_cast<double>(table_.size()) / kGiB / run.result_as<double>(task).value();
  }

  // What the reads through the map have moved and taken on the device.
  void report_map(const ChipUsage& before) {
    const ChipUsage after = worker_->chip_usage(0).value();
    figure("strata.map.copied_bytes", static_cast<double>(after.copied_in - before.copied_in), "B");
    figure("strata.map.device_bytes", static_cast<double>(after.peak_bytes - kScratchBytes), "B");
    figure("strata.map.mappings", static_cast<double>(after.mappings_made - before.mappings_made),
           "maps");
  }

  // A task that has the table copied to it, from submit to the end, without its kernel's own time.
  double copy_rate() {
    return static_cast<double>(table_.size()) / kGiB / 1e-6 / median_of(scaled(8, 4), 5000, [&] {
             const TaskArgs args =
                 TaskArgs().add_tensor(table_.tensor<uint8_t>({table_.size()}), INPUT);
             return timed_us(empty_, args);
           });
  }

  double launch_us() {
    return median_of(scaled(20'000, 2'000), 3000, [&] { return timed_us(empty_, {}); });
  }

  double timed_us(const CallableHandle& kernel, const TaskArgs& args) {
    const double begin = now_us();
    worker_->run([&](Orchestrator& orch) { orch.submit_next_level(kernel, args).value(); }).value();
    return now_us() - begin;
  }

  std::unique_ptr<Worker> worker_;
  CallableHandle empty_;
  CallableHandle read_;
  Buffer scratch_;
  Buffer table_;
};

}  // namespace
}  // namespace strata::bench

int main() {
  strata::bench::Bench().run();
}
