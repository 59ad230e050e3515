// KernelObject: a shared object that came as bytes, loaded into this process, and its entry.
//
// The bytes stand in a sealed memfd and are loaded under a path that this process never uses again:
// the loader takes objects of the same path for the same object. Unloaded with this. One thread.
#pragma once

#include <string>
#include <utility>

#include "device/chip_backend.h"

namespace strata::device {

class KernelObject {
 public:
  static Result<KernelObject> load(const KernelSource& source);
  KernelObject(KernelObject&& other) noexcept
      : name_(std::move(other.name_)),
        handle_(std::exchange(other.handle_, nullptr)),
        entry_(other.entry_) {}
  KernelObject& operator=(KernelObject&&) = delete;
  ~KernelObject();

  const std::string& name() const { return name_; }
  strata_entry entry() const { return entry_; }

 private:
  KernelObject(std::string name, void* handle) : name_(std::move(name)), handle_(handle) {}

  std::string name_;
  void* handle_;
  strata_entry entry_ = nullptr;
};

}  // namespace strata::device
