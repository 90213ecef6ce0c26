/* Attention from C: compares libflashattention with double precision on the CPU, then times it.
 *
 * With LIB, the folder that `flashdepot get` printed (a library of head dim 64 and bf16: any profile has them):
 *
 *   gcc -O2 attention.c -I../common -I$LIB/include -L$LIB/lib/shared -Wl,-rpath,$LIB/lib/shared -lflashattention \
 *       -ldl -lm -o attention                                                                  # shared
 *   gcc -O2 attention.c -I../common $(flashdepot link flags --static --library $LIB) -lm -o attention      # static
 *
 * Exit status: 0 right, 1 wrong, 77 no NVIDIA GPU. Neither needs a CUDA toolkit. */
#include <flash_attention.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda_driver.h"
#include "reference.h"

#define RUNS 20

static cuda_driver driver;

static void require(CUresult result, const char *what) {
  if (result == CUDA_SUCCESS) return;
  printf("%s failed: %s\n", what, cuda_error(&driver, result));
  exit(EXIT_WRONG);
}

static CUdeviceptr device_buffer(size_t bytes, const void *values) {
  CUdeviceptr buffer = 0;
  require(driver.cuMemAlloc(&buffer, bytes), "cuMemAlloc");
  if (values) require(driver.cuMemcpyHtoD(buffer, values, bytes), "cuMemcpyHtoD");
  return buffer;
}

static uint16_t *host_buffer(size_t count, uint64_t seed) {
  uint16_t *values = malloc(count * sizeof *values);
  if (!values) abort();
  fill(values, count, seed);
  return values;
}

/* (batch, seqlen, heads, dim), contiguous: strides are in elements. */
static fa_tensor tensor(CUdeviceptr data, int seqlen, int heads, int dim) {
  return fa_make_tensor((void *)(uintptr_t)data, (int64_t)seqlen * heads * dim, (int64_t)heads * dim, dim);
}

static fa_const_tensor input(CUdeviceptr data, int seqlen, int heads, int dim) {
  return fa_make_const_tensor((void *)(uintptr_t)data, (int64_t)seqlen * heads * dim, (int64_t)heads * dim, dim);
}

/* A problem on the host and on the device. */
typedef struct buffers {
  uint16_t *q, *k, *v;
  CUdeviceptr q_device, k_device, v_device, o_device, lse_device;
} buffers;

static buffers prepare(const problem *p) {
  buffers b;
  b.q = host_buffer(count_q(p), 1);
  b.k = host_buffer(count_k(p), 2);
  b.v = host_buffer(count_k(p), 3);
  b.q_device = device_buffer(count_q(p) * 2, b.q);
  b.k_device = device_buffer(count_k(p) * 2, b.k);
  b.v_device = device_buffer(count_k(p) * 2, b.v);
  b.o_device = device_buffer(count_q(p) * 2, NULL);
  b.lse_device = device_buffer(count_lse(p) * 4, NULL);
  return b;
}

static void discard(buffers *b) {
  free(b->q);
  free(b->k);
  free(b->v);
  const CUdeviceptr all[] = {b->q_device, b->k_device, b->v_device, b->o_device, b->lse_device};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) require(driver.cuMemFree(all[i]), "cuMemFree");
}

static void attend(const problem *p, const buffers *b, CUstream stream) {
  fa_fwd_args args = FA_FWD_ARGS_INIT;
  args.flags = p->causal ? FA_FLAG_CAUSAL : 0;
  args.dtype = FA_DTYPE_BF16;
  args.stream = stream;
  args.batch = p->batch;
  args.seqlen_q = p->seqlen_q;
  args.seqlen_k = p->seqlen_k;
  args.heads_q = p->heads_q;
  args.heads_k = p->heads_k;
  args.head_dim = p->head_dim;
  args.num_splits = 1; /* needs no workspace */
  args.q = input(b->q_device, p->seqlen_q, p->heads_q, p->head_dim);
  args.k = tensor(b->k_device, p->seqlen_k, p->heads_k, p->head_dim);
  args.v = tensor(b->v_device, p->seqlen_k, p->heads_k, p->head_dim);
  args.o = tensor(b->o_device, p->seqlen_q, p->heads_q, p->head_dim);
  args.lse = (float *)(uintptr_t)b->lse_device;
  if (fa_fwd(&args) != FA_STATUS_OK) {
    printf("fa_fwd failed: %s\n", fa_last_error());
    exit(EXIT_WRONG);
  }
}

static int check(const problem *p, CUstream stream) {
  buffers b = prepare(p);
  attend(p, &b, stream);
  require(driver.cuStreamSynchronize(stream), "the kernel");
  uint16_t *o = malloc(count_q(p) * sizeof *o);
  float *lse = malloc(count_lse(p) * sizeof *lse);
  if (!o || !lse) abort();
  require(driver.cuMemcpyDtoH(o, b.o_device, count_q(p) * 2), "cuMemcpyDtoH");
  require(driver.cuMemcpyDtoH(lse, b.lse_device, count_lse(p) * 4), "cuMemcpyDtoH");
  const difference d = compare(p, b.q, b.k, b.v, o, lse, 17);
  printf("%s: largest error %.2e, %.2f of what rounding allows; lse %.1e; %d rows\n", p->causal ? "causal" : "full  ",
         d.largest, d.of_bound, d.of_lse, d.rows);
  free(o);
  free(lse);
  discard(&b);
  return is_right(d);
}

static void measure(const problem *p, CUstream stream) {
  buffers b = prepare(p);
  CUevent begin, end;
  require(driver.cuEventCreate(&begin, 0), "cuEventCreate");
  require(driver.cuEventCreate(&end, 0), "cuEventCreate");
  for (int i = 0; i < 3; ++i) attend(p, &b, stream); /* the first ones load the kernel and wake the clocks */
  require(driver.cuEventRecord(begin, stream), "cuEventRecord");
  for (int i = 0; i < RUNS; ++i) attend(p, &b, stream);
  require(driver.cuEventRecord(end, stream), "cuEventRecord");
  require(driver.cuEventSynchronize(end), "the kernels");
  float milliseconds = 0;
  require(driver.cuEventElapsedTime(&milliseconds, begin, end), "cuEventElapsedTime");
  printf("%s: %dx%d heads x%dx%d: %.3f ms, %.1f TFLOP/s\n", p->causal ? "causal" : "full  ", p->batch, p->heads_q,
         p->seqlen_q, p->head_dim, milliseconds / RUNS,
         floating_point_operations(p) * RUNS / milliseconds / 1e9);
  discard(&b);
}

static int describe_library(void) {
  fa_info info = FA_INFO_INIT;
  if (fa_build_info(&info) != FA_STATUS_OK) {
    printf("fa_build_info failed: %s\n", fa_last_error());
    return 0;
  }
  const fa_family *kernels = info.families; /* the best of them */
  printf("libflashattention: %s %s, C ABI %d.%d, CUDA %d.%d, SASS", kernels->name, kernels->upstream,
         info.version / 10000, info.version / 100 % 100, info.cuda / 1000, info.cuda % 1000 / 10);
  for (int i = 0; i < kernels->sass_count; ++i) printf("%c%d", i ? ',' : ' ', kernels->sass[i]);
  printf(", %d units\n", kernels->units_count);
  return 1;
}

int main(void) {
  if (!describe_library()) return EXIT_WRONG;
  const int opened = cuda_open(&driver);
  if (opened != EXIT_RIGHT) return opened;
  CUstream stream;
  require(driver.cuStreamCreate(&stream, 0), "cuStreamCreate");
  int right = 1;
  for (int causal = 0; causal < 2; ++causal) {
    const problem p = {2, 600, 1000, 8, 2, 64, causal}; /* four query heads share a key head; no length is round */
    right &= check(&p, stream);
  }
  if (!right) {
    puts("WRONG");
    return EXIT_WRONG;
  }
  for (int causal = 0; causal < 2; ++causal) {
    const problem p = {4, 4096, 4096, 16, 16, 64, causal};
    measure(&p, stream);
  }
  puts("right");
  return EXIT_RIGHT;
}
