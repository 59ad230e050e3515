// Timeline: the memory that the processes of a Worker's tree write their events to, and in the
// topmost Worker the file that is made of it.
//
// Where no timeline was asked for there is no object. Recorders may be made by any thread; one
// thread writes the file, when the processes below have ended.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "os/fd.h"
#include "os/shared_region.h"
#include "strata/result.h"
#include "strata/worker_spec.h"
#include "trace/ring.h"

namespace strata::runtime {

// An environment variable with the path of WorkerSpec::timeline, for a program that sets none. The
// second Worker of a process writes "trace.2.json" where it says "trace.json"; "%p" in it stands
// for the process's number.
inline constexpr const char* kTimelineVariable = "STRATA_TIMELINE";

class Timeline {
 public:
  // For a topmost Worker; null where neither `spec` nor the environment asks for one. An Error
  // where the file could not be written later, as far as can be told now.
  static Result<std::unique_ptr<Timeline>> create(const WorkerSpec& spec);
  // Of a parent, by the descriptor and the size that it sent; it writes no file.
  static Result<std::unique_ptr<Timeline>> adopt(os::Fd fd, size_t bytes);
  // An unwritten file leaves nothing behind.
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // A ring for this process, or for one of its threads; null where all are taken.
  std::unique_ptr<trace::Recorder> recorder(trace::Role role, std::string_view path) const;

  // What a child is given.
  int fd() const { return memory_.fd(); }
  size_t bytes() const { return memory_.size(); }
  // As SharedRegion::set_inherited.
  Result<void> set_inherited(bool inherited) { return memory_.set_inherited(inherited); }

  // Once, in the process that created it. Nothing where this is another's.
  Result<void> write();
  // Instead of it.
  void drop_file();

 private:
  struct File;
  Timeline(os::SharedRegion memory, const trace::Region& region, std::unique_ptr<File> file);

  os::SharedRegion memory_;
  trace::Region region_;
  std::unique_ptr<File> file_;
};

}  // namespace strata::runtime
