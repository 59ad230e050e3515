// OutputReader: reads what the children of one Worker write to stdout and stderr, and hands it on
// in whole lines: the topmost Worker to its program, a Worker below to the one above it.
//
// It has a thread, asleep while nothing runs and nobody writes. A child tells it after each task
// that wrote something; what a task writes while it runs is looked for every kLookMs while the
// Worker has work. No child waits for it, and it does not wait for a program's stdout that takes
// nothing: such lines are dropped and counted. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "os/event_fd.h"
#include "os/output_file.h"
#include "runtime/output_lines.h"
#include "strata/output.h"

namespace strata::runtime {

class OutputReader {
 public:
  static constexpr int kLookMs = 100;
  // How long the program's stdout may take nothing before lines for it are dropped.
  static constexpr int kSinkMs = 100;

  struct Options {
    OutputSpec spec;
    std::string path;    // of the Worker whose children these are
    bool relay = false;  // it has a Worker above that reads its lines
    int above = -1;      // wakes that one's reader
  };
  // `busy`: whether children may be running something. Asked on the reader's thread.
  static Result<std::unique_ptr<OutputReader>> create(Options options, std::function<bool()> busy);
  ~OutputReader();
  OutputReader(const OutputReader&) = delete;
  OutputReader& operator=(const OutputReader&) = delete;

  // A process of that worker is started next. Gives the descriptors of its stdout, its stderr and
  // what it signals by, which stay this object's.
  Result<std::array<int, 3>> open(uint32_t worker);
  // The same with files that are there already.
  std::array<int, 3> open(uint32_t worker, os::OutputFile out, os::OutputFile err);
  void started(uint32_t worker, int pid);
  // Of the task that the worker's process runs or ran last; see last_lines.h.
  std::string last_lines(uint32_t worker) const;
  // The process has ended: its output is read to the end.
  void ended(uint32_t worker);

  // The thread, once the process may have threads.
  Result<void> start();
  // Work has begun: output is looked for until `busy` says no.
  void watch() {
    if (!watching_.load(std::memory_order_relaxed)) begin_watch();
  }
  // Reads all there is, and ends the thread.
  void stop();
  bool is_this_thread() const { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  struct Stream {
    os::OutputFile file;
    bool is_stderr;
    uint64_t at = os::OutputFile::kBegin;         // the reader's thread
    uint64_t forgotten = os::OutputFile::kBegin;  // the reader's thread
    OutputLines lines;
    std::string batch;  // lines that are written in one go
    uint64_t batched = 0;
  };
  struct Child {
    uint32_t worker;
    std::string path;
    std::atomic<int> pid{0};
    std::atomic<bool> ended{false};
    Stream out;
    Stream err;
    LineBudget budget;
    bool done = false;  // read to its end; the reader's thread
  };

  OutputReader(Options options, std::function<bool()> busy, os::EventFd wake)
      : options_(std::move(options)), busy_(std::move(busy)), wake_(std::move(wake)) {}
  void begin_watch();
  void main();
  void read_all();
  void read(Child& child);
  void read(Child& child, Stream& stream);
  void end(Child& child);
  void tell_dropped(Child& child, bool ended);
  void show(Child& child, Stream& stream, const ReadLine& line);
  void show_unlimited(Child& child, Stream& stream, const ReadLine& line);
  void flush(Child& child, Stream& stream);
  bool write(int fd, std::string_view text);
  // Of the worker's latest process; null: none. Under mutex_.
  Child* latest(uint32_t worker) const;

  Options options_;
  std::function<bool()> busy_;
  os::EventFd wake_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Child>> children_;  // in: open; out: read to its end. Shared: a
                                                  // thread that asks for last lines holds it too
  std::atomic<bool> watching_{false};
  std::atomic<bool> stop_{false};
  // The reader's thread:
  bool sink_stuck_ = false;
  bool told_of_callback_ = false;
  bool relayed_ = false;  // lines since the last read_all
  bool much_ = false;     // somebody writes faster than a look in a while is good for
  std::vector<char> buffer_;
  std::thread thread_;
};

}  // namespace strata::runtime
