// The targets of one message each.
#include "tests/wire/messages.h"
#include "tests/fuzz/oracle.h"
#include "wire/descriptor.h"

namespace strata::fuzz {

using namespace wire;

// Each is reached from its own program alone.
#define STRATA_FUZZ_MESSAGE(name, T, ...)                              \
  static std::vector<Bytes> all_seeds_of_##name() {                    \
    std::vector<Bytes> out;                                            \
    for (const T& one : {__VA_ARGS__}) out.push_back(encoded<T>(one)); \
    return out;                                                        \
  }                                                                    \
  STRATA_FUZZ_TARGET(name, check_payload<T>, mutate_payload<T>, all_seeds_of_##name)

STRATA_FUZZ_MESSAGE(bootstrap, Bootstrap, sample::bootstrap());
STRATA_FUZZ_MESSAGE(bootstrap_reply, BootstrapReply, sample::bootstrap_reply());
STRATA_FUZZ_MESSAGE(hello, Hello, sample::hello(), Hello{});
STRATA_FUZZ_MESSAGE(task, Task, sample::task());
STRATA_FUZZ_MESSAGE(completion, Completion, sample::completion(), Completion{});
STRATA_FUZZ_MESSAGE(shutdown, Shutdown, Shutdown{5000});
STRATA_FUZZ_MESSAGE(control, Control, sample::control());
STRATA_FUZZ_MESSAGE(control_reply, ControlReply, sample::control_reply(), ControlReply{});

STRATA_FUZZ_MESSAGE(prepare_register, PrepareRegister, sample::prepare_register());
STRATA_FUZZ_MESSAGE(end_register, EndRegister, std::get<EndRegister>(sample::all()));
STRATA_FUZZ_MESSAGE(unregister, Unregister, std::get<Unregister>(sample::all()));
STRATA_FUZZ_MESSAGE(alloc_buffer, AllocBuffer, std::get<AllocBuffer>(sample::all()),
                    AllocBuffer{64, Place::kHost, -1, 0});
STRATA_FUZZ_MESSAGE(buffer_name, BufferName, std::get<BufferName>(sample::all()));
STRATA_FUZZ_MESSAGE(export_buffer, ExportBuffer, std::get<ExportBuffer>(sample::all()));
STRATA_FUZZ_MESSAGE(export_result, Export, sample::import_buffer().exported);
STRATA_FUZZ_MESSAGE(import_buffer, ImportBuffer, sample::import_buffer());
STRATA_FUZZ_MESSAGE(import_result, Import, std::get<Import>(sample::all()));
STRATA_FUZZ_MESSAGE(release_import, ReleaseImport, std::get<ReleaseImport>(sample::all()));

STRATA_FUZZ_MESSAGE(health, Health, std::get<Health>(sample::all()));
STRATA_FUZZ_MESSAGE(cancel, Cancel, std::get<Cancel>(sample::all()));
STRATA_FUZZ_MESSAGE(abort_session, Abort, std::get<Abort>(sample::all()));
STRATA_FUZZ_MESSAGE(revoke, Revoke, Revoke{77});
STRATA_FUZZ_MESSAGE(revoke_ack, RevokeAck, RevokeAck{77, 2});
STRATA_FUZZ_MESSAGE(set_log, SetLog, SetLog{1});
STRATA_FUZZ_MESSAGE(log, Log, std::get<Log>(sample::all()));
STRATA_FUZZ_MESSAGE(peer_hello, PeerHello, std::get<PeerHello>(sample::all()));
STRATA_FUZZ_MESSAGE(transfer, TransferRequest, std::get<TransferRequest>(sample::all()));
STRATA_FUZZ_MESSAGE(ack, Ack, std::get<Ack>(sample::all()), Ack{});

// DATA's bytes stand in what was decoded: the seeds' must live as long.
namespace {
std::vector<Bytes> chunk_seeds() {
  const Bytes bytes = sample::bytes("a chunk of bytes");
  return {encoded(Chunk{512, bytes})};
}
}  // namespace
STRATA_FUZZ_TARGET(data, check_payload<Chunk>, mutate_payload<Chunk>, chunk_seeds);

}  // namespace strata::fuzz
