// A pod: Workers in a Worker. An L4 hands each of its two L3s half of a buffer; the code that runs
// there splits the half again over the L3's own helper processes. The numbers stay where they are.
#include <strata/strata.h>

#include <cstdio>

using strata::TaskArgs;

// In a helper of an L3: the sum of the squares of a piece.
static void square_sum(strata::Call& call) {
  int64_t sum = 0;
  for (const int64_t v : call.tensor<const int64_t>(0).span()) sum += v * v;
  call.tensor<int64_t>(1)(0) = sum;
}

// In a helper too: all pieces' sums into one.
static void add_up(strata::Call& call) {
  int64_t sum = 0;
  for (const int64_t v : call.tensor<const int64_t>(0).span()) sum += v;
  call.tensor<int64_t>(1)(0) = sum;
}

// In an L3: an orchestration function of its own. It submits to its helpers by what its parent made
// known to it, passes its arguments on, and may use temporaries of the L3.
static void half(strata::Call& call) {
  strata::InnerOrchestrator orch = call.orchestrator();
  const auto square_sum_task = orch.inner_handle<square_sum>();
  const uint64_t pieces = 4, size = call.tensor<const int64_t>(0).size() / pieces;
  const strata::Tensor sums = orch.temporary<int64_t>({pieces});
  for (uint64_t i = 0; i < pieces; ++i) {
    strata::Tensor piece = call.ref(0), sum = sums;
    piece.offset += i * size * sizeof(int64_t);
    piece.shape[0] = size;
    sum.offset += i * sizeof(int64_t);
    sum.shape[0] = 1;
    orch.submit_sub(square_sum_task,
                    TaskArgs().add_tensor(piece, strata::INPUT).add_tensor(sum, strata::OUTPUT));
  }
  orch.submit_sub(
      orch.inner_handle<add_up>(),
      TaskArgs().add_tensor(sums, strata::INPUT).add_tensor(call.ref(1), strata::OUTPUT));
}

int main() {
  strata::WorkerSpec host;
  host.level = 3;
  host.sub_workers = 2;
  strata::WorkerSpec spec;
  spec.level = 4;
  auto pod = strata::Worker::create(spec).value();
  pod->add_worker(host).value();  // L4/0
  pod->add_worker(host).value();  // L4/1
  const auto half_task = pod->register_callable(strata::local_function<half>("half")).value();
  pod->register_inner(strata::local_function<square_sum>("square_sum")).value();
  pod->register_inner(strata::local_function<add_up>("add_up")).value();
  pod->init().value();  // every process of the tree is there when it returns

  auto numbers = pod->create_buffer(1000 * sizeof(int64_t)).value();
  auto sums = pod->create_buffer(2 * sizeof(int64_t)).value();
  for (int64_t i = 0; i < 1000; ++i) numbers.as<int64_t>()[static_cast<size_t>(i)] = i;
  pod->run([&](strata::Orchestrator& orch) {
       for (int i = 0; i < 2; ++i) {  // each half to the L3 of that number
         const auto n = static_cast<uint64_t>(i);
         TaskArgs args;
         args.add_tensor(numbers.tensor<int64_t>({500}, n * 500 * sizeof(int64_t)), strata::INPUT);
         args.add_tensor(sums.tensor<int64_t>({1}, n * sizeof(int64_t)), strata::OUTPUT);
         orch.submit_next_level(half_task, args, {}, i).value();
       }
     })
      .value();
  std::printf("%lld + %lld\n", static_cast<long long>(sums.as<int64_t>()[0]),
              static_cast<long long>(sums.as<int64_t>()[1]));
  pod->close().value();
}
