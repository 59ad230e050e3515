// The same empty call by gRPC C++ on loopback, without TLS: one at a time, and 64 in flight.
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "bench/figure.h"
#include "call.grpc.pb.h"

namespace {

using namespace strata::bench;

constexpr int kInFlight = 64;
constexpr size_t kRequestBytes = 154, kReplyBytes = 144;

class Far final : public ::bench::Far::Service {
  grpc::Status Call(grpc::ServerContext*, const ::bench::Bytes*, ::bench::Bytes* out) override {
    out->set_body(std::string(kReplyBytes, 'y'));
    return grpc::Status::OK;
  }
};

void serve(int to) {
  Far service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  if (write(to, &port, sizeof port) != sizeof port) _exit(1);
  server->Wait();
}

struct Flight {
  grpc::ClientContext context;
  ::bench::Bytes reply;
  grpc::Status status;
  std::unique_ptr<grpc::ClientAsyncResponseReader<::bench::Bytes>> reader;
};

double rate(::bench::Far::Stub& stub, const ::bench::Bytes& request, int calls) {
  grpc::CompletionQueue queue;
  const auto launch = [&] {
    auto* const flight = new Flight;
    flight->reader = stub.AsyncCall(&flight->context, request, &queue);
    flight->reader->Finish(&flight->reply, &flight->status, flight);
  };
  const double begun = now_us();
  int launched = 0;
  for (; launched < kInFlight; ++launched) launch();
  for (int done = 0; done < launched; ++done) {
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    delete static_cast<Flight*>(tag);
    if (launched < calls) ++launched, launch();
  }
  return launched / (now_us() - begun) * 1e6;
}

}  // namespace

int main() {
  int ends[2], port = 0;
  if (pipe(ends) != 0) return 1;
  const pid_t server = fork();
  if (server == 0) {
    serve(ends[1]);
    _exit(0);
  }
  if (read(ends[0], &port, sizeof port) != sizeof port) return 1;
  const auto stub = ::bench::Far::NewStub(
      grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials()));
  ::bench::Bytes request;
  request.set_body(std::string(kRequestBytes, 'x'));
  const double rtt = median_of(scaled(5'000, 1'000), 3'000, [&] {
    grpc::ClientContext context;
    ::bench::Bytes reply;
    const double begun = now_us();
    if (!stub->Call(&context, request, &reply).ok()) std::exit(1);
    return now_us() - begun;
  });
  figure("grpc.rtt", rtt, "us");
  figure("grpc.rate", rate(*stub, request, scaled(40'000, 8'000)), "calls/s");
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
  return 0;
}
