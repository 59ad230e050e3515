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

  void* orchestrator; /* of the inner Worker; null in SUB and chip tasks */
  void* runtime;      /* opaque */

  const struct strata_tensor_ref* refs; /* what stands behind each tensor; null in SUB and chip */
  int32_t block_idx;                    /* of a chip kernel: this call's block, below block_dim */
  uint32_t reserved1;
} strata_call;

typedef int32_t (*strata_entry)(const strata_call* call);

#ifdef __cplusplus
}
#endif
