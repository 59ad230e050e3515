/* The one C entry of every native callable:
 *
 *   extern "C" int32_t name(const strata_call* call);     0 = success, anything else = task failure
 *
 * Plain C, self-contained: an object that exports such functions needs this header and nothing of
 * libstrata. The struct only ever grows; read `size` before a field that your Strata may lack.
 * C++ authors want strata/callable.h, which wraps this and writes the exports. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The number an object exports as `const uint32_t strata_abi`; checked when it is registered. */
#define STRATA_ABI 1u

#define STRATA_TENSOR_RANK_MAX 8

/* One tensor argument: shape and strides in elements, outermost dimension first. */
typedef struct strata_tensor {
  void* data;      /* first element, in this process; null where the tensor has no storage */
  uint64_t nbytes; /* bytes from the first element to the end of the last */
  uint8_t dtype;   /* strata::DType */
  uint8_t rank;
  uint8_t tag;      /* strata::TensorArgType: what the submitter promised */
  uint8_t transfer; /* 1 copy, 2 map */
  uint32_t reserved;
  uint64_t shape[STRATA_TENSOR_RANK_MAX];
  int64_t stride[STRATA_TENSOR_RANK_MAX];
} strata_tensor;

/* Names one memory at every level, and a place in it. */
typedef struct strata_tensor_ref {
  uint64_t uid_high;
  uint64_t uid_low;
  uint32_t buffer_index; /* where the inner Worker's table holds it, while this task runs */
  uint32_t reserved;
  uint64_t offset; /* bytes from the buffer's start to the first element */
} strata_tensor_ref;

struct strata_orchestrator;

typedef struct strata_call {
  uint32_t size; /* sizeof(strata_call) of the caller */
  uint32_t abi;  /* STRATA_ABI of the caller */

  const strata_tensor* tensors;
  const uint64_t* scalars;
  uint32_t tensor_count;
  uint32_t scalar_count;
  const void* inline_bytes; /* small by-value payload of the task, at most 64 KiB */
  uint64_t inline_nbytes;

  int32_t block_dim;
  uint32_t flags;
  uint32_t deadline_ms; /* 0: none */
  uint32_t reserved;

  /* Gives the task a result of n bytes (at most 64 KiB); the last call counts. 0, or -1 if too
   * large. */
  int32_t (*set_result)(const struct strata_call* call, const void* bytes, uint64_t n);
  /* The text of this task's failure, where the return value alone says too little. */
  void (*set_error)(const struct strata_call* call, const char* text, uint64_t n);
  /* Non-zero once the run was cancelled or the task's deadline has passed. Cheap; ask often. */
  int32_t (*cancelled)(const struct strata_call* call);
  /* level: 0 trace, 1 debug, 2 info, 3 warning, 4 error. */
  void (*log)(const struct strata_call* call, int32_t level, const char* text, uint64_t n);

  const struct strata_orchestrator* orchestrator; /* null in SUB and chip tasks */
  void* runtime;                                  /* opaque */

  const strata_tensor_ref* refs; /* one for each tensor; null in SUB and chip tasks */
  int32_t block_idx;             /* of this call among the block_dim of a chip kernel */
  uint32_t reserved1;
} strata_call;

typedef int32_t (*strata_entry)(const strata_call* call);

/* ---- Inside a task of a child Worker: the graph of its inner Worker. C++ authors want
 * strata/inner.h. All calls from the thread that runs the task, until it returns. Each gives 0 or a
 * number of strata::Code, and last_error the text that goes with it. */

/* One tensor argument of an inner task. */
typedef struct strata_task_tensor {
  strata_tensor_ref ref;
  uint8_t dtype;
  uint8_t rank;
  uint8_t tag;
  uint8_t transfer; /* 0 as is usual for the target, 1 copy, 2 map */
  uint32_t reserved;
  uint64_t shape[STRATA_TENSOR_RANK_MAX];
  int64_t stride[STRATA_TENSOR_RANK_MAX];
} strata_task_tensor;

typedef struct strata_task_args {
  uint32_t size; /* sizeof(strata_task_args) of the caller */
  uint32_t tensor_count;
  uint32_t scalar_count;
  uint32_t reserved;
  const strata_task_tensor* tensors;
  const uint64_t* scalars;
  const void* inline_bytes;
  uint64_t inline_nbytes;
} strata_task_args;

typedef struct strata_task_config {
  int32_t block_dim;
  uint32_t flags;
  uint32_t deadline_ms;
  uint32_t reserved;
} strata_task_config;

typedef struct strata_inner_handle {
  uint64_t worker;
  uint32_t index;
  uint32_t generation;
} strata_inner_handle;

typedef struct strata_task_ref {
  uint64_t run;
  uint64_t task;
} strata_task_ref;

typedef struct strata_orchestrator {
  uint32_t size; /* sizeof(strata_orchestrator) of the Strata that calls; only ever grows */
  uint32_t reserved;
  void* context; /* the first argument of every call */

  int32_t (*submit_sub)(void* context, const strata_inner_handle* callable,
                        const strata_task_args* args, const strata_task_config* config,
                        strata_task_ref* out);
  /* worker: an id of the inner Worker, or -1 for any. */
  int32_t (*submit_next_level)(void* context, const strata_inner_handle* callable,
                               const strata_task_args* args, const strata_task_config* config,
                               int32_t worker, strata_task_ref* out);
  int32_t (*submit_sub_group)(void* context, const strata_inner_handle* callable,
                              const strata_task_args* members, uint32_t member_count,
                              const strata_task_config* config, strata_task_ref* out);
  /* worker_count: 0, or one worker for each member. */
  int32_t (*submit_next_level_group)(void* context, const strata_inner_handle* callable,
                                     const strata_task_args* members, uint32_t member_count,
                                     const strata_task_config* config, const int32_t* workers,
                                     uint32_t worker_count, strata_task_ref* out);
  int32_t (*begin_scope)(void* context, uint64_t* scope);
  void (*end_scope)(void* context, uint64_t scope);
  /* A contiguous tensor of storage in the innermost scope. */
  int32_t (*temporary)(void* context, uint8_t dtype, uint32_t rank, const uint64_t* shape,
                       strata_task_tensor* out);
  int32_t (*wait)(void* context, const strata_task_ref* task);

  /* A callable that a parent made known by register_inner. */
  int32_t (*find_hashid)(void* context, const char* hashid, uint64_t n, strata_inner_handle* out);
  int32_t (*find_native)(void* context, const char* library, const char* symbol,
                         strata_inner_handle* out);
  int32_t (*find_function)(void* context, strata_entry entry, strata_inner_handle* out);

  /* Of the last call that did not give 0; until the next call. */
  const char* (*last_error)(void* context);
} strata_orchestrator;

#ifdef __cplusplus
}
#endif
