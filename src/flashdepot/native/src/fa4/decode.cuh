// The kernels behind decode.h.
//
// Scores are made transposed, K q^T, so that eight rows of queries fill a product of tensor cores. A
// warp has keys of its own, which it copies to shared memory several tiles ahead; warps meet when
// all keys are done.
#pragma once

#include <algorithm>

#include "error.h"
#include "fa4/decode.h"

namespace flashdepot::fa4 {

// Blocks of the kernel begin when those of the one before have told or ended, and wait for what they have written.
// cluster: blocks of one, of x.
template <typename Argument>
fa_status launch_early(const void *kernel, const char *name, const Argument &argument, dim3 grid, int threads, int shared,
                       cudaStream_t stream, unsigned cluster = 1) {
  if (shared > 0) {
    FLASHDEPOT_TRY(check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
                              "cudaFuncSetAttribute"));
  }
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = cluster > 1 ? 2 : 1;
  void *arguments[] = {const_cast<Argument *>(&argument)};
  return check_cuda(cudaLaunchKernelExC(&config, kernel, arguments), name);
}

// For head dims up to kDim and tiles of 8 * kEights rows. Each of kWarps warps has kAhead tiles of kKeys
// keys, and as many of values, in shared memory.
template <int Dim, int Eights, int Warps, int Keys, int Ahead>
struct DecodeShape {
  static constexpr int kDim = Dim, kEights = Eights, kWarps = Warps, kKeys = Keys, kAhead = Ahead;
  static constexpr int kThreads = Warps * 32;
  static constexpr int kRows = 8 * Eights;
  static constexpr int kPitch = Dim + 8;  // no two of eight rows begin in the same bank
  static constexpr int kTile = Keys * kPitch;
  static constexpr int kRing = Warps * 2 * Ahead * kTile * 2;  // bytes
  static constexpr int kShared = kRing + kRows * kPitch * 2 + 2 * (Warps + 1) * kRows * 4;
  // Blocks on an SM of Hopper, which registers must not limit, up to 16 warps.
  static constexpr int kRoom = std::min(227 * 1024 / (kShared + 1024), 16 / Warps);
  // Of a warp that has no more keys, the ring has its sums: floats of a row, and from a warp's to the next one's.
  static constexpr int kSums = Dim + 4, kSumsApart = Ahead * kTile;
  static_assert(kRows * kSums <= kSumsApart);
};

constexpr int kJoinThreads = 256;

#ifdef __CUDACC__
template <typename T>
struct Half;
template <>
struct Half<__nv_bfloat16> {
  static __device__ std::uint32_t pack(float a, float b) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(a, b);
    return reinterpret_cast<const std::uint32_t &>(both);
  }
  static __device__ float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
  static __device__ __nv_bfloat16 narrow(float value) { return __float2bfloat16_rn(value); }
  static __device__ void multiply(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                  std::uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};
template <>
struct Half<__half> {
  static __device__ std::uint32_t pack(float a, float b) {
    const __half2 both = __floats2half2_rn(a, b);
    return reinterpret_cast<const std::uint32_t &>(both);
  }
  static __device__ float widen(__half value) { return __half2float(value); }
  static __device__ __half narrow(float value) { return __float2half_rn(value); }
  static __device__ void multiply(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                  std::uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};

__device__ inline std::uint32_t shared_address(const void *pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// 16 bytes, or as many zeros.
__device__ inline void copy_ahead(std::uint32_t to, const void *from, bool there) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(there ? 16 : 0)
               : "memory");
}
__device__ inline void end_of_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Pending>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

__device__ inline void load_matrices(std::uint32_t (&r)[4], std::uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}
__device__ inline void load_matrices_turned(std::uint32_t (&r)[4], std::uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}
__device__ inline std::uint32_t turned(std::uint32_t matrix) {
  std::uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(matrix));
  return result;
}
__device__ inline float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#if __CUDA_ARCH__ >= 900
__device__ inline void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ inline void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ inline std::uint32_t address_in(std::uint32_t address, std::uint32_t rank) {
  std::uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
__device__ inline float read_in_cluster(std::uint32_t address) {
  float value;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}
__device__ inline float4 read4_in_cluster(std::uint32_t address) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
#endif

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;
constexpr float kLeast = -3.0e38f;  // stands for a score of -inf: comparisons need no infinity

// Off by some 1e-7, however small x is.
__device__ inline float tanh_of(float x) {
  return 1.0f - 2.0f / (1.0f + exp2_of(2.0f * kLog2E * x));
}

// Or 0; off by an ulp of the float.
__device__ inline float reciprocal(float total) { return total > 0.0f ? __fdividef(1.0f, total) : 0.0f; }

// The first tile of a block that has an even share of them.
__device__ inline int tile_of(int block, int each, int rest) { return block * each + min(block, rest); }

template <typename T>
__device__ void write_four(T *at, const float4 &sum, float factor) {
  uint2 packed;
  packed.x = Half<T>::pack(sum.x * factor, sum.y * factor);
  packed.y = Half<T>::pack(sum.z * factor, sum.w * factor);
  *reinterpret_cast<uint2 *>(at) = packed;
}

// What follows is done to the scores of a lane: two rows of queries, and of each 16 keys two.

// Scores become exponents of 2.
template <int Blocks>
__device__ __forceinline__ void scale_scores(float (&x)[Blocks][4], float to_log2, float to_cap) {
#pragma unroll
  for (int j = 0; j < Blocks; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) x[j][i] = to_log2 * (to_cap > 0.0f ? tanh_of(x[j][i] * to_cap) : x[j][i]);
  }
}

// Hides what `row` and the one after it do not see, of a sequence's keys from `begin` to `end`.
template <int Blocks>
__device__ __forceinline__ void hide_scores(float (&x)[Blocks][4], const Decoding &p, int row, int shift, int begin, int end,
                                            int first_key, int lane) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int query = (row + i) / p.group + shift;
    const int lowest = p.left >= 0 ? max(begin, query - p.left) : begin;
    const int highest = p.right >= 0 ? min(end, query + p.right + 1) : end;
#pragma unroll
    for (int j = 0; j < Blocks; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int key = first_key + j * 16 + e * 8 + lane / 4;
        if (key < lowest || key >= highest) x[j][2 * e + i] = kLeast;
      }
    }
  }
}

// Scores become weights, for a product with values. m: the largest scores so far; l: the sums of weights, and o of values.
template <typename T, int Blocks, int Columns>
__device__ __forceinline__ void weigh(float (&x)[Blocks][4], float (&o)[Columns][4], float (&m)[2], float (&l)[2],
                                      std::uint32_t (&weights)[Blocks][2]) {
  float top[2] = {m[0], m[1]};
#pragma unroll
  for (int j = 0; j < Blocks; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) top[i % 2] = fmaxf(top[i % 2], x[j][i]);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int apart = 4; apart < 32; apart *= 2) top[i] = fmaxf(top[i], __shfl_xor_sync(~0u, top[i], apart));
  }
  if (__any_sync(~0u, top[0] > m[0] || top[1] > m[1])) {
    const float down[2] = {exp2_of(m[0] - top[0]), exp2_of(m[1] - top[1])};
#pragma unroll
    for (int i = 0; i < 2; ++i) m[i] = top[i], l[i] *= down[i];
#pragma unroll
    for (int d = 0; d < Columns; ++d) {
#pragma unroll
      for (int i = 0; i < 4; ++i) o[d][i] *= down[i % 2];
    }
  }
#pragma unroll
  for (int j = 0; j < Blocks; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // A row without a key so far has no largest score; what is masked weighs nothing.
      x[j][i] = x[j][i] > kLeast ? exp2_of(x[j][i] - m[i % 2]) : 0.0f;
      l[i % 2] += x[j][i];
    }
    weights[j][0] = turned(Half<T>::pack(x[j][0], x[j][1]));
    weights[j][1] = turned(Half<T>::pack(x[j][2], x[j][3]));
  }
}

// Of a warp, those of eight rows.
__device__ __forceinline__ void put_statistics(float *largest, float *weight, const float (&m)[2], float (&l)[2], int lane) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int apart = 4; apart < 32; apart *= 2) l[i] += __shfl_xor_sync(~0u, l[i], apart);
    if (lane < 4) largest[lane * 2 + i] = m[i], weight[lane * 2 + i] = l[i];
  }
}

template <typename T, typename Shape>
struct DecodeKernel : Shape {
  using Shape::kPitch, Shape::kRows, Shape::kSums, Shape::kSumsApart, Shape::kThreads, Shape::kTile;
  static constexpr int Dim = Shape::kDim, Eights = Shape::kEights, Warps = Shape::kWarps,
                       Keys = Shape::kKeys, Ahead = Shape::kAhead;
  static constexpr int kChunks = Dim / 8;  // of 16 bytes, in a row
  static constexpr int kCopies = Keys * kChunks / 32;
  static constexpr int kBlocks = Keys / 16;
  static constexpr int kQuarters = Dim / 4, kItems = kRows * kQuarters / kThreads;  // of four sums, in a row and of a thread
  static constexpr int kQueryCopies = (kRows * kChunks + kThreads - 1) / kThreads;
  static constexpr bool kQueriesInRegisters = Dim * Eights <= 256;
  static constexpr bool kTwoSums = kBlocks * Eights == 1;  // of scores: a product waits for the one before

  static_assert(Keys * kChunks % 32 == 0 && Keys % 16 == 0 && kRows * kChunks % 32 == 0 && kRows * kQuarters % kThreads == 0);

  struct Sequence {
    std::int64_t q_first, k_first;  // rows before it
    int index;                      // in k and v
    int queries;
    int begin, cached, end;  // keys: the first, where new ones begin, after the last
  };

  static __device__ Sequence sequence_of(const Decoding &p, int b) {
    Sequence s{0, 0, b, p.seqlen_q, 0, 0, 0};
    int length = p.seqlen_k;
    if (p.cu_seqlens_q != nullptr) {
      s.q_first = p.cu_seqlens_q[b];
      s.queries = p.cu_seqlens_q[b + 1] - p.cu_seqlens_q[b];
      if (p.block_table == nullptr) s.k_first = p.cu_seqlens_k[b];
      length = p.cu_seqlens_k[b + 1] - p.cu_seqlens_k[b];
    }
    if (p.used_k != nullptr) length = p.used_k[b];
    if (p.batch_index != nullptr) s.index = p.batch_index[b];
    if (p.leftpad_k != nullptr) s.begin = p.leftpad_k[b];
    s.cached = length;
    s.end = length + p.seqlen_new;
    return s;
  }

  // A row of queries. Lanes have one each, and say where it is to those that copy or write it.
  struct Row {
    int query, member;  // member: of all query heads
  };
  static __device__ Row row_of(const Decoding &p, int row, int head) { return {row / p.group, head * p.group + row % p.group}; }
  static __device__ std::int64_t place_of(const Decoding &p, const Place &tensor, const Sequence &s, int b, const Row &row) {
    return (p.cu_seqlens_q != nullptr ? 0 : b * tensor.batch) + (s.q_first + row.query) * tensor.row + row.member * tensor.head;
  }
  static __device__ std::int64_t place_of_lse(const Decoding &p, const Sequence &s, int b, const Row &row) {
    return p.cu_seqlens_q != nullptr
               ? std::int64_t{row.member} * p.total_q + s.q_first + row.query
               : (std::int64_t{b} * p.heads_k * p.group + row.member) * p.seqlen_q + row.query;
  }

  // Where a key is, or the nearest that there is.
  static __device__ const T *look_up(const Decoding &p, const Sequence &s, const Place &tensor,
                                     const Place &fresh, int b, int head, int key) {
    key = max(s.begin, min(key, s.end - 1));
    if (key >= s.cached) {
      return static_cast<const T *>(fresh.data) + b * fresh.batch +
             std::int64_t{key - s.cached} * fresh.row + head * fresh.head;
    }
    return cached_at(p, s, tensor, b, head, key);
  }

  static __device__ T *cached_at(const Decoding &p, const Sequence &s, const Place &tensor, int b,
                                 int head, int key) {
    T *data = static_cast<T *>(tensor.data) + head * tensor.head;
    if (p.block_table == nullptr) {
      const std::int64_t first = p.cu_seqlens_q != nullptr ? 0 : s.index * tensor.batch;
      return data + first + (s.k_first + key) * tensor.row;
    }
    const std::int64_t page = p.block_table[b * p.block_table_stride + key / p.page_size];
    return data + page * tensor.batch + std::int64_t{key % p.page_size} * tensor.row;
  }

  // Turns a row in shared memory by its position; lanes share the pairs.
  static __device__ __noinline__ void turn(const Decoding &p, T *row, int position, int lane) {
    const int half = p.rotary_dim / 2;
    const T *cos = static_cast<const T *>(p.rotary_cos) + std::int64_t{position} * half;
    const T *sin = static_cast<const T *>(p.rotary_sin) + std::int64_t{position} * half;
#pragma unroll 1
    for (int i = lane; i < half; i += 32) {
      T &first = row[p.rotary_interleaved ? 2 * i : i];
      T &second = row[p.rotary_interleaved ? 2 * i + 1 : i + half];
      const float a = Half<T>::widen(first), b = Half<T>::widen(second);
      const float c = Half<T>::widen(cos[i]), d = Half<T>::widen(sin[i]);
      first = Half<T>::narrow(a * c - b * d);
      second = Half<T>::narrow(a * d + b * c);
    }
  }

  // What a warp has. Keys are those that any row sees; new ones are put away by the last rows, which see them all.
  struct Work {
    Sequence s;
    std::int64_t q_of_lane;
    int rows;         // may be none
    int from, count;  // tiles: the first, and how many, each Warps after the one before
    bool puts_away;
  };
  static __device__ Work work_of(const Decoding &p, int b, int first_row, const Row &row_of_lane, int warp) {
    Work w;
    const Sequence s = w.s = sequence_of(p, b);
    w.q_of_lane = place_of(p, p.q, s, b, row_of_lane);
    w.rows = min(kRows, s.queries * p.group - first_row);
    const int shift = s.end - s.queries;
    w.puts_away = p.seqlen_new != 0 && first_row + kRows >= s.queries * p.group;
    int low = s.begin, high = s.end;
    if (p.left >= 0) low = max(low, first_row / p.group + shift - p.left);
    if (p.right >= 0) high = min(high, (first_row + w.rows - 1) / p.group + shift + p.right + 1);
    if (w.puts_away) low = min(low, s.cached), high = s.end;
    const int first_tile = low / Keys;
    const int tiles = w.rows > 0 && high > low ? (high + Keys - 1) / Keys - first_tile : 0;
    int begin = 0, end = tiles;
    if (p.parts > 1) {
      const int part = blockIdx.x, each = tiles / p.parts, rest = tiles - each * p.parts;
      begin = tile_of(part, each, rest), end = tile_of(part + 1, each, rest);
    }
    w.from = first_tile + begin + warp;
    w.count = max(0, end - begin - warp + Warps - 1) / Warps;
    return w;
  }

  static __device__ void run(const Decoding &p) {
    extern __shared__ __align__(128) unsigned char shared[];
    T *ring = reinterpret_cast<T *>(shared);
    T *queries = reinterpret_cast<T *>(shared + Shape::kRing);
    float *largest = reinterpret_cast<float *>(queries + kRows * kPitch);  // (Warps + 1, kRows)
    float *weight = largest + (Warps + 1) * kRows;                        // likewise

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int part = blockIdx.x, b = blockIdx.z;
    const int head = blockIdx.y % p.heads_k, first_row = blockIdx.y / p.heads_k * kRows;
    const Row row_of_lane = row_of(p, first_row + lane % kRows, head);
    // What is known without a look at memory is worked out until the kernel before has ended.
    const bool known = p.cu_seqlens_q == nullptr && p.used_k == nullptr && p.batch_index == nullptr && p.leftpad_k == nullptr;
    Work work;
    if (known) work = work_of(p, b, first_row, row_of_lane, warp);
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    if (!known) work = work_of(p, b, first_row, row_of_lane, warp);
    const Sequence s = work.s;
    const int rows = work.rows, from = work.from, mine = work.count, shift = s.end - s.queries;
    const bool puts_away = work.puts_away;

    T *const my_ring = ring + warp * 2 * Ahead * kTile;
    const std::uint32_t my_address = shared_address(my_ring);
    const int chunks = p.head_dim / 8;

    // Each lane knows where one of the keys is, and its value.
    const T *k_of_lane = nullptr, *v_of_lane = nullptr;
    const auto find = [&](int t) {
      if (t < mine) {
        const int key = (from + t * Warps) * Keys + lane % Keys;
        k_of_lane = look_up(p, s, p.k, p.k_new, b, head, key);
        v_of_lane = look_up(p, s, p.v, p.v_new, b, head, key);
      }
    };
    const auto load = [&](const T *of_lane, bool values, int t) {
      if (t < mine) {
        const int first_key = (from + t * Warps) * Keys;
        const std::uint32_t slot = my_address + (2 * (t % Ahead) + values) * kTile * 2;
#pragma unroll
        for (int i = 0; i < kCopies; ++i) {
          const int place = i * 32 + lane;
          const int row = place / kChunks, chunk = place % kChunks;
          const int key = first_key + row;
          const bool there = key >= s.begin && key < s.end && chunk < chunks;
          const auto at = reinterpret_cast<const T *>(
              __shfl_sync(~0u, reinterpret_cast<unsigned long long>(of_lane), row));
          copy_ahead(slot + (row * kPitch + chunk * 8) * 2, at + (there ? chunk * 8 : 0), there);
        }
      }
      end_of_copies();
    };

#pragma unroll
    for (int i = 0; i < kQueryCopies; ++i) {
      const int index = threadIdx.x + i * kThreads, row = index / kChunks, chunk = index % kChunks;
      if (row >= kRows) break;
      const bool there = row < rows && chunk < chunks;
      const std::int64_t at = __shfl_sync(~0u, work.q_of_lane, row) + chunk * 8;
      copy_ahead(shared_address(queries + row * kPitch + chunk * 8), static_cast<const T *>(p.q.data) + (there ? at : 0), there);
    }
    end_of_copies();
    find(0);
#pragma unroll 1
    for (int t = 0; t < Ahead; ++t) {
      const T *const k = k_of_lane, *const v = v_of_lane;
      find(t + 1);
      load(k, false, t);
      load(v, true, t);
    }
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");  // the next kernel waits for all of them
#endif
    wait_for_copies<2 * Ahead>();
    __syncthreads();
    if (p.rotary_cos != nullptr) {
      for (int row = warp; row < rows; row += Warps) {
        turn(p, queries + row * kPitch,
             s.cached + (p.rotary_moves ? (first_row + row) / p.group : 0), lane);
      }
      __syncthreads();
    }

    // Rows 0 to 7 of q are matrices 0 and 1 of the first load: k 0 to 7 and 8 to 15; 2 and 3 are the next k.
    const std::uint32_t q_address = shared_address(queries) + (lane % 8 * kPitch + lane / 8 * 8) * 2;
    std::uint32_t q[kQueriesInRegisters ? Eights : 1][kQueriesInRegisters ? Dim / 32 : 1][4];
    if constexpr (kQueriesInRegisters) {
#pragma unroll
      for (int n = 0; n < Eights; ++n) {
#pragma unroll
        for (int k = 0; k < Dim / 32; ++k) {
          load_matrices(q[n][k], q_address + (n * 8 * kPitch + k * 32) * 2);
        }
      }
    }

    float o[Eights][Dim / 16][4] = {};
    float m[Eights][2], l[Eights][2];
#pragma unroll
    for (int n = 0; n < Eights; ++n) {
      m[n][0] = m[n][1] = kLeast;
      l[n][0] = l[n][1] = 0.0f;
    }
    const float to_log2 = p.softcap > 0.0f ? p.softcap * kLog2E : p.scale * kLog2E;
    const float to_cap = p.softcap > 0.0f ? p.scale / p.softcap : 0.0f;
    // Tiles in between need no mask.
    const int clear_low = p.left >= 0 ? max(s.begin, (first_row + rows - 1) / p.group + shift - p.left) : s.begin;
    const int clear_high = p.right >= 0 ? min(s.end, first_row / p.group + shift + p.right + 1) : s.end;

    const int k_lane = (lane % 16 * kPitch + lane / 16 * 8) * 2;
    const int v_lane = ((lane / 16 * 8 + lane % 8) * kPitch + lane / 8 % 2 * 8) * 2;
    for (int t = 0; t < mine; ++t) {
      const int first_key = (from + t * Warps) * Keys;
      const std::uint32_t k_slot = my_address + 2 * (t % Ahead) * kTile * 2;
      const std::uint32_t v_slot = k_slot + kTile * 2;
      const bool has_new = p.seqlen_new != 0 && first_key + Keys > s.cached;
      wait_for_copies<2 * Ahead - 1>();
      __syncwarp();
      if (has_new) {
        T *slot = my_ring + 2 * (t % Ahead) * kTile;
        if (p.rotary_cos != nullptr) {
          for (int key = max(first_key, s.cached); key < min(first_key + Keys, s.end); ++key) {
            turn(p, slot + (key - first_key) * kPitch, key, lane);
          }
          __syncwarp();
        }
        if (puts_away) put_away(p, s, p.k, slot, b, head, first_key, lane);
      }

      float x[Eights][kBlocks][4] = {}, other[Eights][kBlocks][4] = {};
#pragma unroll
      for (int k = 0; k < Dim / 32; ++k) {
        std::uint32_t b_of_q[Eights][4];
#pragma unroll
        for (int n = 0; n < Eights; ++n) {
          if constexpr (kQueriesInRegisters) {
#pragma unroll
            for (int i = 0; i < 4; ++i) b_of_q[n][i] = q[n][k][i];
          } else {
            load_matrices(b_of_q[n], q_address + (n * 8 * kPitch + k * 32) * 2);
          }
        }
#pragma unroll
        for (int j = 0; j < kBlocks; ++j) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            std::uint32_t a[4];
            load_matrices(a, k_slot + k_lane + (j * 16 * kPitch + k * 32 + i * 16) * 2);
#pragma unroll
            for (int n = 0; n < Eights; ++n) {
              Half<T>::multiply(kTwoSums && i == 1 ? other[n][j] : x[n][j], a, b_of_q[n][2 * i], b_of_q[n][2 * i + 1]);
            }
          }
        }
      }
      __syncwarp();
      load(k_of_lane, false, t + Ahead);

      const bool masks = first_key < clear_low || first_key + Keys > clear_high;
      std::uint32_t weights[Eights][kBlocks][2];
#pragma unroll
      for (int n = 0; n < Eights; ++n) {
        if constexpr (kTwoSums) {
#pragma unroll
          for (int i = 0; i < 4; ++i) x[n][0][i] += other[n][0][i];
        }
        scale_scores(x[n], to_log2, to_cap);
        if (masks) hide_scores(x[n], p, first_row + n * 8 + lane % 4 * 2, shift, s.begin, s.end, first_key, lane);
        weigh<T>(x[n], o[n], m[n], l[n], weights[n]);
      }

      wait_for_copies<2 * Ahead - 1>();
      __syncwarp();
      if (has_new && puts_away) {
        put_away(p, s, p.v, my_ring + (2 * (t % Ahead) + 1) * kTile, b, head, first_key, lane);
      }
#pragma unroll
      for (int j = 0; j < kBlocks; ++j) {
#pragma unroll
        for (int d = 0; d < Dim / 16; ++d) {
          std::uint32_t a[4];
          load_matrices_turned(a, v_slot + v_lane + (j * 16 * kPitch + d * 16) * 2);
#pragma unroll
          for (int n = 0; n < Eights; ++n) {
            Half<T>::multiply(o[n][d], a, weights[n][j][0], weights[n][j][1]);
          }
        }
      }
      __syncwarp();
      load(v_of_lane, true, t + Ahead);
      find(t + Ahead + 1);
    }

#pragma unroll
    for (int n = 0; n < Eights; ++n) {
      put_statistics(largest + warp * kRows + n * 8, weight + warp * kRows + n * 8, m[n], l[n], lane);
    }
    wait_for_copies<0>();
    __syncwarp();
    float *const sums = reinterpret_cast<float *>(shared), *const mine_of_sums = sums + warp * kSumsApart;
#pragma unroll
    for (int n = 0; n < Eights; ++n) {
#pragma unroll
      for (int d = 0; d < Dim / 16; ++d) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = n * 8 + lane % 4 * 2 + i % 2, column = d * 16 + i / 2 * 8 + lane / 4;
          mine_of_sums[row * kSums + column] = o[n][d][i];
        }
      }
    }
    __syncthreads();
    float top = kLeast, total = 0.0f, down[Warps];  // of the lane's row
#pragma unroll
    for (int w = 0; w < Warps; ++w) top = fmaxf(top, down[w] = largest[w * kRows + lane % kRows]);
#pragma unroll
    for (int w = 0; w < Warps; ++w) total += weight[w * kRows + lane % kRows] * (down[w] = exp2_of(down[w] - top));
    if (p.in_cluster) {
      if (threadIdx.x < kRows) largest[Warps * kRows + lane] = top, weight[Warps * kRows + lane] = total;
      of_cluster(p, s, sums, largest + Warps * kRows, weight + Warps * kRows, down, rows, b, row_of_lane, lane);
      return;
    }
    const bool whole = p.parts == 1;
    const float factor_of_lane = reciprocal(total);
    const std::int64_t lse_at = (whole ? 0 : part * rows_of_lse(p)) + place_of_lse(p, s, b, row_of_lane);
    const std::int64_t o_of_lane = whole ? place_of(p, p.o, s, b, row_of_lane) : lse_at * p.head_dim;
    if (warp == 0 && lane < rows) (whole ? p.lse : p.lse_parts)[lse_at] = log_sum(top, total);
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const int index = threadIdx.x + i * kThreads, row = index / kQuarters, column = index % kQuarters * 4;
      const float4 sum = of_warps(sums, down, row, column);
      const float factor = __shfl_sync(~0u, factor_of_lane, row);
      const std::int64_t at = __shfl_sync(~0u, o_of_lane, row) + column;
      if (row >= rows || column >= p.head_dim) continue;
      if (whole) {
        write_four(static_cast<T *>(p.o.data) + at, sum, factor);
      } else {
        *reinterpret_cast<float4 *>(p.o_parts + at) =
            make_float4(sum.x * factor, sum.y * factor, sum.z * factor, sum.w * factor);
      }
    }
  }

  static __device__ __noinline__ void put_away(const Decoding &p, const Sequence &s, const Place &tensor,
                                  const T *slot, int b, int head, int first_key, int lane) {
    for (int key = max(first_key, s.cached); key < min(first_key + Keys, s.end); ++key) {
      T *at = cached_at(p, s, tensor, b, head, key);
      for (int chunk = lane; chunk < p.head_dim / 8; chunk += 32) {
        *reinterpret_cast<uint4 *>(at + chunk * 8) =
            *reinterpret_cast<const uint4 *>(slot + (key - first_key) * kPitch + chunk * 8);
      }
    }
  }

  // down: of the lane's row, by warps.
  static __device__ float4 of_warps(const float *sums, const float (&down)[Warps], int row, int column) {
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int w = 0; w < Warps; ++w) {
      const float by = __shfl_sync(~0u, down[w], row);
      const float4 one = *reinterpret_cast<const float4 *>(sums + w * kSumsApart + row * kSums + column);
      sum.x += by * one.x, sum.y += by * one.y, sum.z += by * one.z, sum.w += by * one.w;
    }
    return sum;
  }

  static __device__ float log_sum(float top, float total) {
    return total > 0.0f ? top * kLn2 + __logf(total) : __int_as_float(0x7f800000);
  }

  static __device__ std::int64_t rows_of_lse(const Decoding &p) {
    return std::int64_t{p.heads_k} * p.group *
           (p.cu_seqlens_q != nullptr ? std::int64_t{p.total_q} : std::int64_t{p.batch} * p.seqlen_q);
  }

  // Blocks of a cluster share its rows among them. A lane has one of them, of all parts.
  static __device__ void of_cluster(const Decoding &p, const Sequence &s, float *sums, const float *top,
                                    const float *total, const float (&down)[Warps], int rows, int b,
                                    const Row &row_of_lane, int lane) {
#if __CUDA_ARCH__ >= 900
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const int index = threadIdx.x + i * kThreads, row = index / kQuarters, column = index % kQuarters * 4;
      *reinterpret_cast<float4 *>(sums + row * kSums + column) = of_warps(sums, down, row, column);
    }
    cluster_arrive();
    cluster_wait();
    const std::uint32_t top_address = shared_address(top + lane % kRows), total_address = shared_address(total + lane % kRows);
    const std::uint32_t sums_address = shared_address(sums);
    float most = kLeast, all = 0.0f, weights[kMostInCluster];
#pragma unroll
    for (int part = 0; part < kMostInCluster; ++part) {
      weights[part] = part < p.parts ? read_in_cluster(address_in(top_address, part)) : kLeast;
      most = fmaxf(most, weights[part]);
    }
#pragma unroll
    for (int part = 0; part < kMostInCluster; ++part) {
      weights[part] = exp2_of(weights[part] - most);
      if (part < p.parts) all += weights[part] * read_in_cluster(address_in(total_address, part));
    }
    const float factor_of_lane = reciprocal(all);
    const std::int64_t o_of_lane = place_of(p, p.o, s, b, row_of_lane);
    if (blockIdx.x == 0 && threadIdx.x < kRows && lane < rows) p.lse[place_of_lse(p, s, b, row_of_lane)] = log_sum(most, all);
    for (int i = blockIdx.x * kThreads + threadIdx.x; i < kRows * kQuarters; i += kThreads * p.parts) {
      const int row = i / kQuarters, column = i % kQuarters * 4;
      float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
      for (int part = 0; part < kMostInCluster; ++part) {
        const float by = __shfl_sync(~0u, weights[part], row);
        if (part < p.parts) {
          const float4 one = read4_in_cluster(address_in(sums_address + (row * kSums + column) * 4, part));
          sum.x += by * one.x, sum.y += by * one.y, sum.z += by * one.z, sum.w += by * one.w;
        }
      }
      const float factor = __shfl_sync(~0u, factor_of_lane, row);
      const std::int64_t at = __shfl_sync(~0u, o_of_lane, row) + column;
      if (row < rows && column < p.head_dim) write_four(static_cast<T *>(p.o.data) + at, sum, factor);
    }
    cluster_arrive();
    cluster_wait();
#endif
  }
};

// Joins a row of so many parts. Threads of a block share the columns, and groups of them the parts.
// place: of a part's row, in lse_parts. deliver: four columns, which a factor makes the mean, and lse.
template <int Dim, int Most, typename Place, typename Deliver>
__device__ __forceinline__ void join_parts(const Decoding &p, int parts, const Place &place, const Deliver &deliver) {
  constexpr int kColumns = Dim / 4, kGroups = kJoinThreads / kColumns, kEarly = 4, kWarps = kJoinThreads / 32;
  __shared__ float weights[Most];
  __shared__ float4 sums[kJoinThreads];
  __shared__ float tops[kWarps], totals[kWarps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int column = threadIdx.x % kColumns, group = threadIdx.x / kColumns;
  const bool inside = column * 4 < p.head_dim;
  const auto part = [&](int i) {
    return inside && i < parts ? reinterpret_cast<const float4 *>(p.o_parts + place(i) * p.head_dim)[column]
                               : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  };
  float4 early[kEarly];
#pragma unroll
  for (int i = 0; i < kEarly; ++i) early[i] = part(group + i * kGroups);
  float top = kLeast;
  for (int i = threadIdx.x; i < parts; i += kJoinThreads) {
    weights[i] = p.lse_parts[place(i)];
    if (weights[i] < -kLeast) top = fmaxf(top, weights[i]);
  }
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, apart));
  if (lane == 0) tops[warp] = top;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kWarps; ++i) top = fmaxf(top, tops[i]);
  float total = 0.0f;
  for (int i = threadIdx.x; i < parts; i += kJoinThreads) {
    weights[i] = weights[i] < -kLeast ? exp2_of((weights[i] - top) * kLog2E) : 0.0f;
    total += weights[i];
  }
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) total += __shfl_xor_sync(~0u, total, apart);
  if (lane == 0) totals[warp] = total;
  __syncthreads();
  total = 0.0f;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) total += totals[i];
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  const auto add = [&](const float4 &one, float w) { sum.x += w * one.x, sum.y += w * one.y, sum.z += w * one.z, sum.w += w * one.w; };
#pragma unroll
  for (int i = 0; i < kEarly; ++i) add(early[i], group + i * kGroups < parts ? weights[group + i * kGroups] : 0.0f);
#pragma unroll 4
  for (int i = group + kEarly * kGroups; i < parts; i += kGroups) add(part(i), weights[i]);
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (group != 0 || !inside) return;
#pragma unroll
  for (int i = 1; i < kGroups; ++i) add(sums[i * kColumns + column], 1.0f);
  deliver(column * 4, sum, reciprocal(total), total > 0.0f ? top + __logf(total) : __int_as_float(0x7f800000));
}

// A block for each row of lse.
template <typename T, int Dim>
__device__ void combine_decoded(const Decoding &p) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  const int heads = p.heads_k * p.group;
  const std::int64_t rows = p.cu_seqlens_q != nullptr ? p.total_q : p.seqlen_q, at = blockIdx.x;
  const std::int64_t row = at % rows, head = at / rows % heads, b = at / rows / heads, count = gridDim.x;
  if (p.cu_seqlens_q != nullptr && (row < p.cu_seqlens_q[0] || row >= p.cu_seqlens_q[p.batch])) return;
  join_parts<Dim, kMostParts>(
      p, p.parts, [&](int i) { return i * count + at; }, [&](int column, const float4 &sum, float factor, float lse) {
        write_four(static_cast<T *>(p.o.data) + b * p.o.batch + row * p.o.row + head * p.o.head + column, sum, factor);
        if (column == 0) p.lse[at] = lse;
      });
}

#endif  // __CUDACC__

// clang, which compiles the host side, needs their names and parameters only.
template <typename T, typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kRoom) decode_kernel(const __grid_constant__ Decoding p) {
#ifdef __CUDACC__
  DecodeKernel<T, Shape>::run(p);
#endif
}

template <typename T, int Dim>
__global__ void __launch_bounds__(kJoinThreads) combine_decoded_kernel(const __grid_constant__ Decoding p) {
#ifdef __CUDACC__
  combine_decoded<T, Dim>(p);
#endif
}

}  // namespace flashdepot::fa4
