// ChipExecutor: what runs tasks on one chip: its kernels by index, and the transfers of their
// tensors. One for each chip process, or for an inline chip of this one.
//
// Knows no mailbox; the backend knows no task. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/chip_backend.h"
#include "device/transfers.h"
#include "registry/payload.h"
#include "runtime/call_frame.h"

namespace strata::runtime {

class ChipExecutor {
 public:
  // `note` outlives this.
  static Result<std::unique_ptr<ChipExecutor>> create(const device::BackendOptions& options,
                                                      std::vector<device::HostSegment> host,
                                                      device::ChipNote& note, std::string path);
  ChipExecutor(const ChipExecutor&) = delete;
  ChipExecutor& operator=(const ChipExecutor&) = delete;

  // Where kernels tell of their blocks; it outlives their runs.
  void set_trace(trace::Recorder* trace) { backend_->set_trace(trace); }

  void omit_path_in_logs() { frame_.omit_path(); }
  // The four phases of a registration, and kDropMapping. 0, or a strata::Code and its text.
  uint32_t control(uint32_t command, std::span<const std::byte> request, std::string* text);
  // The spans of the outcome hold until the next run.
  void run(const mailbox::TaskPost& post, std::span<const std::byte> args, Cancelled cancelled,
           mailbox::TaskOutcome* outcome);

 private:
  struct Entry {
    uint32_t generation = 0;
    device::ChipBackend::Kernel kernel = 0;  // 0: none
    bool committed = false;
    std::string name;
  };

  ChipExecutor(const device::BackendOptions& options, std::vector<uint64_t> host_bytes,
               std::unique_ptr<device::ChipBackend> backend, std::string path);
  Result<void> phase(uint32_t command, std::span<const std::byte> request);
  Result<void> prepare(Entry& entry, uint32_t generation, std::span<const std::byte> payload);
  void forget(Entry& entry);
  Result<void> drop_mapping(std::span<const std::byte> request);
  void run_kernel(const Entry& entry, const mailbox::TaskPost& post, Cancelled cancelled,
                  mailbox::TaskOutcome* outcome);

  std::string platform_;
  std::vector<uint64_t> host_bytes_;  // of the host's segments
  std::unique_ptr<device::ChipBackend> backend_;
  device::Transfers transfers_;  // ends before the backend
  CallFrame frame_;
  std::vector<Entry> entries_;  // by index
  model::ArgsDecoder decoder_;
  std::vector<strata_tensor> tensors_;  // of the task, on the device
};

}  // namespace strata::runtime
