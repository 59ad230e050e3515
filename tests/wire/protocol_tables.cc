// Prints the tables of docs/protocol.md: of every enumeration and every message of the protocol.
#include <cstdio>

#include "wire/describe.h"
#include "wire/descriptor.h"
#include "wire/lanes.h"
#include "wire/manifest.h"

namespace strata::wire {
namespace {

template <class T, class Io = Describer>
void message(const char* column = "field") {
  std::printf("\n### %s\n\n| %s | type |\n| --- | --- |\n", std::string(T::kName).c_str(), column);
  for (const Describer::Field& field : describe<T, Io>()) {
    std::printf("| %s | %s |\n", field.name.c_str(), field.type.c_str());
  }
}

template <class E>
void numbers() {
  std::string line;
  for_each_name<E>([&](E value, std::string_view name) {
    line += fmt::format("{}{} {}", line.empty() ? "" : ", ", name, static_cast<uint64_t>(value));
  });
  std::printf("| %s | %s |\n", std::string(Names<E>::kType).c_str(), line.c_str());
}

template <class... T>
void messages() {
  (message<T>(), ...);
}
template <class... T>
void manifest() {
  (message<T, ManifestDescriber>("key"), ...);
}
template <class... E>
void all_numbers() {
  (numbers<E>(), ...);
}

void print() {
  std::printf("\n## Numbers\n\n| field | values |\n| --- | --- |\n");
  all_numbers<Lane, FrameType, ControlCommand, RegistryKind, ReadyState, Outcome, Space, Place,
              Path, LogStream, LogLevel, CallableKind, TensorArgType, Transfer, DType, Code, Scope,
              HugePages>();
  std::printf("\n## Bootstrap lane\n");
  messages<Bootstrap, BootstrapReply>();
  manifest<Manifest, ManifestCallable, DataProfile, ManifestLimits, ManifestTimeouts>();
  std::printf("\n## Command lane\n");
  messages<Hello, SessionCaps, RuntimeName, Task, TaskConfig, TaskTensor, TensorDesc, Completion,
           Root, Control, ControlReply, Shutdown>();
  std::printf("\n## Bodies and results of controls\n");
  messages<PrepareRegister, EndRegister, Unregister, AllocBuffer, BufferName, ExportBuffer, Span,
           Export, ImportBuffer, Import, ReleaseImport>();
  std::printf("\n## Callables\n");
  messages<CallablePayload, ChipDescriptor, PythonDescriptor, NativeDescriptor>();
  std::printf("\n## Health lane\n");
  messages<Health, Cancel, Abort, Revoke, RevokeAck, SetLog, Log>();
  std::printf("\n## Data and peer lanes\n");
  messages<PeerHello, TransferRequest, Chunk, Ack>();
}

}  // namespace
}  // namespace strata::wire

int main() {
  strata::wire::print();
  return 0;
}
