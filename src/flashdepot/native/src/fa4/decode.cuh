// The kernels behind decode.h.
//
// Scores are made transposed, K q^T, so that eight rows of queries fill a product of tensor cores. A
// warp has keys of its own, which it copies to shared memory several tiles ahead; warps meet when
// all keys are done.
#pragma once

#include "fa4/decode.h"

namespace flashdepot::fa4 {

// For head dims up to kDim and tiles of 8 * kEights rows. Each of kWarps warps has kAhead tiles of kKeys
// keys, and as many of values, in shared memory.
template <int Dim, int Eights, int Warps, int Keys, int Ahead>
struct DecodeShape {
  static constexpr int kDim = Dim, kEights = Eights, kWarps = Warps, kKeys = Keys, kAhead = Ahead;
  static constexpr int kThreads = Warps * 32;
  static constexpr int kRows = 8 * Eights;
  static constexpr int kPitch = Dim + 8;  // no two of eight rows begin in the same bank
  static constexpr int kTile = Keys * kPitch;
  static constexpr int kSums = Dim + 4;  // floats of a row of sums
  static constexpr int kRing = Warps * 2 * Ahead * kTile * 2;
  static constexpr int kSumBytes = Warps * kRows * kSums * 4;
  static constexpr int kFront = kRing > kSumBytes ? kRing : kSumBytes;
  static constexpr int kShared = kFront + kRows * kPitch * 2 + 2 * (Warps + 1) * kRows * 4;  // bytes
};

constexpr int kCombineThreads = 128;  // as many as there may be parts

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

template <typename T, typename Shape>
struct DecodeKernel : Shape {
  using Shape::kPitch, Shape::kRows, Shape::kSums, Shape::kThreads, Shape::kTile;
  static constexpr int Dim = Shape::kDim, Eights = Shape::kEights, Warps = Shape::kWarps,
                       Keys = Shape::kKeys, Ahead = Shape::kAhead;
  static constexpr int kChunks = Dim / 8;  // of 16 bytes, in a row
  static constexpr int kCopies = Keys * kChunks / 32;
  static constexpr int kBlocks = Keys / 16;
  static constexpr bool kQueriesInRegisters = Dim * Eights <= 256;

  static_assert(Keys * kChunks % 32 == 0 && Keys % 16 == 0);

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

  static __device__ void run(const Decoding &p) {
    extern __shared__ __align__(128) unsigned char shared[];
    T *ring = reinterpret_cast<T *>(shared);
    float *sums = reinterpret_cast<float *>(shared);  // when the ring is done
    T *queries = reinterpret_cast<T *>(shared + Shape::kFront);
    float *largest = reinterpret_cast<float *>(queries + kRows * kPitch);  // (Warps + 1, kRows)
    float *weight = largest + (Warps + 1) * kRows;                        // likewise

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int part = blockIdx.x, b = blockIdx.z;
    const int head = blockIdx.y % p.heads_k, first_row = blockIdx.y / p.heads_k * kRows;
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    const Sequence s = sequence_of(p, b);
    const int rows = min(kRows, s.queries * p.group - first_row);  // may be none

    // Keys that any row sees; new ones are put away by the last rows, which see them all.
    const int shift = s.end - s.queries;
    const bool puts_away = p.seqlen_new != 0 && first_row + kRows >= s.queries * p.group;
    int low = s.begin, high = s.end;
    if (p.left >= 0) low = max(low, first_row / p.group + shift - p.left);
    if (p.right >= 0) high = min(high, (first_row + rows - 1) / p.group + shift + p.right + 1);
    if (puts_away) low = min(low, s.cached), high = s.end;
    const int first_tile = low / Keys;
    const int tiles = rows > 0 && high > low ? (high + Keys - 1) / Keys - first_tile : 0;
    const int from = first_tile + static_cast<int>(std::int64_t{tiles} * part / p.parts) + warp;
    const int to = first_tile + static_cast<int>(std::int64_t{tiles} * (part + 1) / p.parts);
    const int mine = to > from ? (to - from + Warps - 1) / Warps : 0;

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

    for (int i = threadIdx.x; i < kRows * kChunks; i += kThreads) {
      const int row = i / kChunks, chunk = i % kChunks;
      const int query = (first_row + row) / p.group, member = (first_row + row) % p.group;
      const bool there = row < rows && chunk < chunks;
      const T *at = static_cast<const T *>(p.q.data);
      if (there) {
        at += (p.cu_seqlens_q != nullptr ? 0 : b * p.q.batch) + (s.q_first + query) * p.q.row +
              (std::int64_t{head} * p.group + member) * p.q.head + chunk * 8;
      }
      copy_ahead(shared_address(queries + row * kPitch + chunk * 8), at, there);
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

      float x[Eights][kBlocks][4] = {};
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
              Half<T>::multiply(x[n][j], a, b_of_q[n][2 * i], b_of_q[n][2 * i + 1]);
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
        float top[2] = {m[n][0], m[n][1]};
#pragma unroll
        for (int j = 0; j < kBlocks; ++j) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            x[n][j][i] = to_log2 * (to_cap > 0.0f ? tanh_of(x[n][j][i] * to_cap) : x[n][j][i]);
          }
        }
        if (masks) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int query = (first_row + n * 8 + lane % 4 * 2 + i) / p.group + shift;
            const int lowest = p.left >= 0 ? max(s.begin, query - p.left) : s.begin;
            const int highest = p.right >= 0 ? min(s.end, query + p.right + 1) : s.end;
#pragma unroll
            for (int j = 0; j < kBlocks; ++j) {
#pragma unroll
              for (int e = 0; e < 2; ++e) {
                const int key = first_key + j * 16 + e * 8 + lane / 4;
                if (key < lowest || key >= highest) x[n][j][2 * e + i] = kLeast;
              }
            }
          }
        }
#pragma unroll
        for (int j = 0; j < kBlocks; ++j) {
#pragma unroll
          for (int i = 0; i < 4; ++i) top[i % 2] = fmaxf(top[i % 2], x[n][j][i]);
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
          for (int step = 4; step < 32; step *= 2) {
            top[i] = fmaxf(top[i], __shfl_xor_sync(~0u, top[i], step));
          }
        }
        if (__any_sync(~0u, top[0] > m[n][0] || top[1] > m[n][1])) {
          const float down[2] = {exp2_of(m[n][0] - top[0]), exp2_of(m[n][1] - top[1])};
#pragma unroll
          for (int i = 0; i < 2; ++i) m[n][i] = top[i], l[n][i] *= down[i];
#pragma unroll
          for (int d = 0; d < Dim / 16; ++d) {
#pragma unroll
            for (int i = 0; i < 4; ++i) o[n][d][i] *= down[i % 2];
          }
        }
#pragma unroll
        for (int j = 0; j < kBlocks; ++j) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            // A row without a key so far has no largest score; what is masked weighs nothing.
            x[n][j][i] = x[n][j][i] > kLeast ? exp2_of(x[n][j][i] - m[n][i % 2]) : 0.0f;
            l[n][i % 2] += x[n][j][i];
          }
          weights[n][j][0] = turned(Half<T>::pack(x[n][j][0], x[n][j][1]));
          weights[n][j][1] = turned(Half<T>::pack(x[n][j][2], x[n][j][3]));
        }
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
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int step = 4; step < 32; step *= 2) l[n][i] += __shfl_xor_sync(~0u, l[n][i], step);
        if (lane < 4) {
          largest[warp * kRows + n * 8 + lane * 2 + i] = m[n][i];
          weight[warp * kRows + n * 8 + lane * 2 + i] = l[n][i];
        }
      }
    }
    wait_for_copies<0>();
    __syncthreads();
    float *mine_of_sums = sums + warp * kRows * kSums;
#pragma unroll
    for (int n = 0; n < Eights; ++n) {
      float down[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = n * 8 + lane % 4 * 2 + i;
        float top = kLeast;
#pragma unroll
        for (int w = 0; w < Warps; ++w) top = fmaxf(top, largest[w * kRows + row]);
        down[i] = exp2_of(m[n][i] - top);
      }
#pragma unroll
      for (int d = 0; d < Dim / 16; ++d) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = n * 8 + lane % 4 * 2 + i % 2, column = d * 16 + i / 2 * 8 + lane / 4;
          mine_of_sums[row * kSums + column] = o[n][d][i] * down[i % 2];
        }
      }
    }
    for (int row = threadIdx.x; row < kRows; row += kThreads) {
      float top = kLeast, sum = 0.0f;
#pragma unroll
      for (int w = 0; w < Warps; ++w) top = fmaxf(top, largest[w * kRows + row]);
#pragma unroll
      for (int w = 0; w < Warps; ++w) {
        sum += weight[w * kRows + row] * exp2_of(largest[w * kRows + row] - top);
      }
      largest[Warps * kRows + row] = top;
      weight[Warps * kRows + row] = sum;
    }
    __syncthreads();
    if (p.in_cluster) {
      of_cluster(p, s, sums, largest + Warps * kRows, weight + Warps * kRows, rows, first_row, b, head);
      return;
    }
    const int quarters = p.head_dim / 4;
    for (int i = threadIdx.x; i < rows * quarters; i += kThreads) {
      const int row = i / quarters, column = i % quarters * 4;
      const float4 sum = of_warps(sums, row, column);
      const float total = weight[Warps * kRows + row];
      const float factor = total > 0.0f ? 1.0f / total : 0.0f;
      if (p.parts == 1) {
        deliver(p, s, row + first_row, b, head, column, sum, factor,
                log_sum(largest[Warps * kRows + row], total));
      } else {
        const std::int64_t at = part * rows_of_lse(p) + row_of_lse(p, s, row + first_row, b, head);
        *reinterpret_cast<float4 *>(p.o_parts + at * p.head_dim + column) =
            make_float4(sum.x * factor, sum.y * factor, sum.z * factor, sum.w * factor);
        if (column == 0) p.lse_parts[at] = log_sum(largest[Warps * kRows + row], total);
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

  static __device__ float4 of_warps(const float *sums, int row, int column) {
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int w = 0; w < Warps; ++w) {
      const float4 one =
          *reinterpret_cast<const float4 *>(sums + (w * kRows + row) * kSums + column);
      sum.x += one.x, sum.y += one.y, sum.z += one.z, sum.w += one.w;
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

  static __device__ std::int64_t row_of_lse(const Decoding &p, const Sequence &s, int row, int b,
                                            int head) {
    const int query = row / p.group;
    const std::int64_t member = std::int64_t{head} * p.group + row % p.group;
    return p.cu_seqlens_q != nullptr
               ? member * p.total_q + s.q_first + query
               : (std::int64_t{b} * p.heads_k * p.group + member) * p.seqlen_q + query;
  }

  static __device__ void deliver(const Decoding &p, const Sequence &s, int row, int b, int head,
                                 int column, const float4 &sum, float factor, float lse) {
    const int query = row / p.group;
    T *at = static_cast<T *>(p.o.data) + (p.cu_seqlens_q != nullptr ? 0 : b * p.o.batch) +
            (s.q_first + query) * p.o.row +
            (std::int64_t{head} * p.group + row % p.group) * p.o.head + column;
    uint2 packed;
    packed.x = Half<T>::pack(sum.x * factor, sum.y * factor);
    packed.y = Half<T>::pack(sum.z * factor, sum.w * factor);
    *reinterpret_cast<uint2 *>(at) = packed;
    if (column == 0) p.lse[row_of_lse(p, s, row, b, head)] = lse;
  }

  // Blocks of a cluster share its rows among them.
  static __device__ void of_cluster(const Decoding &p, const Sequence &s, float *sums,
                                    const float *top, const float *total, int rows, int first_row,
                                    int b, int head) {
#if __CUDA_ARCH__ >= 900
    const int quarters = p.head_dim / 4;
    for (int i = threadIdx.x; i < rows * quarters; i += kThreads) {
      const int row = i / quarters, column = i % quarters * 4;
      *reinterpret_cast<float4 *>(sums + row * kSums + column) = of_warps(sums, row, column);
    }
    cluster_arrive();
    cluster_wait();
    const std::uint32_t top_address = shared_address(top), total_address = shared_address(total);
    const std::uint32_t sums_address = shared_address(sums);
    for (int i = part_of_threads(p); i < rows * quarters; i += kThreads * p.parts) {
      const int row = i / quarters, column = i % quarters * 4;
      float most = kLeast;
#pragma unroll 4
      for (int part = 0; part < p.parts; ++part) {
        most = fmaxf(most, read_in_cluster(address_in(top_address + row * 4, part)));
      }
      float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      float all = 0.0f;
#pragma unroll 4
      for (int part = 0; part < p.parts; ++part) {
        const float down = exp2_of(read_in_cluster(address_in(top_address + row * 4, part)) - most);
        const float4 one = read4_in_cluster(address_in(sums_address + (row * kSums + column) * 4, part));
        all += down * read_in_cluster(address_in(total_address + row * 4, part));
        sum.x += down * one.x, sum.y += down * one.y, sum.z += down * one.z, sum.w += down * one.w;
      }
      deliver(p, s, row + first_row, b, head, column, sum, all > 0.0f ? 1.0f / all : 0.0f,
              log_sum(most, all));
    }
    cluster_arrive();
    cluster_wait();
#endif
  }

  static __device__ int part_of_threads(const Decoding &p) {
    return blockIdx.x * kThreads + threadIdx.x;
  }
};

// A block for each row of lse. Threads share the columns, and groups of them the parts.
template <typename T>
__device__ void combine_decoded(const Decoding &p) {
  __shared__ float lse[kCombineThreads], weights[kCombineThreads];
  __shared__ float4 sums[kCombineThreads];
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  const int heads = p.heads_k * p.group;
  const std::int64_t rows = p.cu_seqlens_q != nullptr ? p.total_q : std::int64_t{p.batch} * p.seqlen_q;
  const std::int64_t count = rows * heads;
  const std::int64_t at = blockIdx.x;
  std::int64_t row, head, b = 0;
  if (p.cu_seqlens_q != nullptr) {
    head = at / p.total_q, row = at % p.total_q;
    if (row < p.cu_seqlens_q[0] || row >= p.cu_seqlens_q[p.batch]) return;
  } else {
    row = at % p.seqlen_q, head = at / p.seqlen_q % heads, b = at / p.seqlen_q / heads;
  }
  const int part = threadIdx.x;
  lse[part] = part < p.parts ? p.lse_parts[part * count + at] : __int_as_float(0x7f800000);
  __syncthreads();
  float top = kLeast, total = 0.0f;
  for (int i = 0; i < p.parts; ++i) {
    if (lse[i] < -kLeast) top = fmaxf(top, lse[i]);
  }
  const float weight = lse[part] < -kLeast ? exp2_of((lse[part] - top) * kLog2E) : 0.0f;
  weights[part] = weight;
  const int columns = p.head_dim / 4, groups = kCombineThreads / columns;
  const int column = part % columns, group = part / columns;
  __syncthreads();
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (group < groups) {
#pragma unroll 4
    for (int i = group; i < p.parts; i += groups) {
      const float4 one = reinterpret_cast<const float4 *>(
          p.o_parts + (i * count + at) * p.head_dim)[column];
      const float w = weights[i];
      sum.x += w * one.x, sum.y += w * one.y, sum.z += w * one.z, sum.w += w * one.w;
    }
  }
  sums[part] = sum;
  for (int i = 0; i < p.parts; ++i) total += weights[i];
  __syncthreads();
  if (group != 0) return;
  for (int i = 1; i < groups; ++i) {
    const float4 one = sums[i * columns + column];
    sum.x += one.x, sum.y += one.y, sum.z += one.z, sum.w += one.w;
  }
  const float factor = total > 0.0f ? 1.0f / total : 0.0f;
  uint2 packed;
  packed.x = Half<T>::pack(sum.x * factor, sum.y * factor);
  packed.y = Half<T>::pack(sum.z * factor, sum.w * factor);
  reinterpret_cast<uint2 *>(static_cast<T *>(p.o.data) + b * p.o.batch + row * p.o.row +
                            head * p.o.head)[column] = packed;
  if (column == 0) p.lse[at] = total > 0.0f ? top + __logf(total) : __int_as_float(0x7f800000);
}

#endif  // __CUDACC__

// clang, which compiles the host side, needs their names and parameters only.
template <typename T, typename Shape>
__global__ void __launch_bounds__(Shape::kThreads) decode_kernel(const __grid_constant__ Decoding p) {
#ifdef __CUDACC__
  DecodeKernel<T, Shape>::run(p);
#endif
}

template <typename T>
__global__ void __launch_bounds__(kCombineThreads) combine_decoded_kernel(const __grid_constant__ Decoding p) {
#ifdef __CUDACC__
  combine_decoded<T>(p);
#endif
}

}  // namespace flashdepot::fa4
