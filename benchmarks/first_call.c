/* What the first call and later ones cost a C program, in microseconds of wall time on the CPU:
 *
 *   gcc -O2 benchmarks/first_call.c -Iexamples/common -I$LIB/include -L$LIB/lib/shared -Wl,-rpath,$LIB/lib/shared \
 *       -lflashattention -ldl -o first_call && ./first_call
 *
 * Prints: the first call, the second, and the median of 200 rounds of 50 calls that end with a wait for the GPU, the
 * wait left out. With the argument `preload`, fa_preload is called and timed first. Compiles with the header of 0.x,
 * which had other names, as well. One bf16 problem: batch 1, 128 queries and keys, 4 heads of 64. */
#include <flash_attention.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cuda_driver.h"

#ifndef FA_FWD_ARGS_INIT
#define FA_FWD_ARGS_INIT {sizeof(fa_fwd_args)}
#define FA_DTYPE_BF16 FA_BF16
#endif

enum { ROWS = 128, HEADS = 4, HEAD_DIM = 64, ROUNDS = 200, CALLS = 50 };

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return at.tv_sec * 1e6 + at.tv_nsec / 1e3;
}

static void call(const fa_fwd_args *args) {
  if (fa_fwd(args) != 0) printf("%s\n", fa_last_error()), exit(1);
}

static int ascending(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

int main(int count, char **words) {
  cuda_driver driver;
  CUdeviceptr tensors[4], lse = 0, workspace = 0;
  static double rounds[ROUNDS];
  int i, j;
  const int opened = cuda_open(&driver);
  if (opened != EXIT_RIGHT) return opened;
  for (i = 0; i < 4; ++i)
    if (driver.cuMemAlloc(&tensors[i], (size_t)ROWS * HEADS * HEAD_DIM * 2)) return 1;
  if (driver.cuMemAlloc(&lse, (size_t)ROWS * HEADS * 4)) return 1;

  fa_fwd_args args = FA_FWD_ARGS_INIT;
  args.dtype = FA_DTYPE_BF16, args.batch = 1, args.seqlen_q = args.seqlen_k = ROWS;
  args.heads_q = args.heads_k = HEADS, args.head_dim = HEAD_DIM;
  args.q.data = (void *)(uintptr_t)tensors[0], args.k.data = (void *)(uintptr_t)tensors[1];
  args.v.data = (void *)(uintptr_t)tensors[2], args.o.data = (void *)(uintptr_t)tensors[3];
  args.q.row_stride = args.k.row_stride = args.v.row_stride = args.o.row_stride = HEADS * HEAD_DIM;
  args.q.head_stride = args.k.head_stride = args.v.head_stride = args.o.head_stride = HEAD_DIM;
  args.lse = (float *)(uintptr_t)lse;

  double start = now();
  if (fa_fwd_workspace(&args, &args.workspace_bytes, NULL) != 0) return printf("%s\n", fa_last_error()), 1;
  printf("fa_fwd_workspace %.1f, ", now() - start);
  if (args.workspace_bytes && driver.cuMemAlloc(&workspace, args.workspace_bytes)) return 1;
  args.workspace = (void *)(uintptr_t)workspace;
#ifdef FA_VERSION_MAJOR
  if (count > 1) {
    start = now();
    if (fa_preload(&args, NULL) != 0) return printf("%s\n", fa_last_error()), 1;
    printf("fa_preload %.1f, ", now() - start);
  }
#else
  (void)count;
#endif
  (void)words;
  for (i = 0; i < 2; ++i) {
    start = now();
    call(&args);
    printf("call %d %.1f, ", i + 1, now() - start);
    driver.cuStreamSynchronize(NULL);
  }
  for (i = 0; i < ROUNDS; ++i) {
    start = now();
    for (j = 0; j < CALLS; ++j) call(&args);
    rounds[i] = (now() - start) / CALLS;
    driver.cuStreamSynchronize(NULL);
  }
  qsort(rounds, ROUNDS, sizeof *rounds, ascending);
  printf("a call %.2f (%.2f to %.2f)\n", rounds[ROUNDS / 2], rounds[ROUNDS / 10], rounds[ROUNDS * 9 / 10]);
  return 0;
}
