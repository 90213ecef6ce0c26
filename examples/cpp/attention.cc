// Attention from C++: compares libflashattention with double precision on the CPU, then times it.
//
// With LIB, the folder that `flashdepot get` printed (a library of head dim 64 and bf16: any profile has them):
//
//   cmake -S . -B build -DCMAKE_PREFIX_PATH=$LIB && cmake --build build && build/attention_static
//   g++ -O2 attention.cc -I../common $(flashdepot link flags --library $LIB) -ldl -o attention            # shared
//   g++ -O2 attention.cc -I../common $(flashdepot link flags --static --library $LIB) -o attention        # static
//
// Exit status: 0 right, 1 wrong, 77 no NVIDIA GPU. Nothing here needs a CUDA toolkit.
#include <flash_attention.h>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda_driver.h"
#include "reference.h"

namespace {

cuda_driver driver;

void require(CUresult result, const char *what) {
  if (result != CUDA_SUCCESS) throw std::runtime_error(std::string(what) + ": " + cuda_error(&driver, result));
}

// Memory of the GPU, freed with its owner.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count) { require(driver.cuMemAlloc(&data_, count * sizeof(T)), "cuMemAlloc"); }
  explicit DeviceArray(const std::vector<T> &values) : DeviceArray(values.size()) {
    require(driver.cuMemcpyHtoD(data_, values.data(), count_ * sizeof(T)), "cuMemcpyHtoD");
  }
  DeviceArray(const DeviceArray &) = delete;
  DeviceArray &operator=(const DeviceArray &) = delete;
  ~DeviceArray() { driver.cuMemFree(data_); }

  T *get() const { return reinterpret_cast<T *>(static_cast<uintptr_t>(data_)); }

  std::vector<T> read() const {
    std::vector<T> values(count_);
    require(driver.cuMemcpyDtoH(values.data(), data_, count_ * sizeof(T)), "cuMemcpyDtoH");
    return values;
  }

 private:
  CUdeviceptr data_ = 0;
  size_t count_;
};

std::vector<uint16_t> numbers(size_t count, uint64_t seed) {
  std::vector<uint16_t> values(count);
  fill(values.data(), count, seed);
  return values;
}

// A problem on the host and on the GPU, and fa_fwd over it.
class Attention {
 public:
  explicit Attention(const problem &p)
      : p_(p), q_(numbers(count_q(&p), 1)), k_(numbers(count_k(&p), 2)), v_(numbers(count_k(&p), 3)),
        q_device_(q_), k_device_(k_), v_device_(v_), o_device_(count_q(&p)), lse_device_(count_lse(&p)) {}

  void run(CUstream stream) const {
    fa_fwd_args args = FA_FWD_ARGS_INIT;
    args.flags = p_.causal ? FA_FLAG_CAUSAL : 0;
    args.dtype = FA_DTYPE_BF16;
    args.stream = stream;
    args.batch = p_.batch;
    args.seqlen_q = p_.seqlen_q;
    args.seqlen_k = p_.seqlen_k;
    args.heads_q = p_.heads_q;
    args.heads_k = p_.heads_k;
    args.head_dim = p_.head_dim;
    args.num_splits = 1;  // needs no workspace
    args.q = fa_make_const_tensor(q_device_.get(), p_.seqlen_q * row(p_.heads_q), row(p_.heads_q), p_.head_dim);
    args.k = describe(k_device_.get(), p_.seqlen_k, p_.heads_k);
    args.v = describe(v_device_.get(), p_.seqlen_k, p_.heads_k);
    args.o = describe(o_device_.get(), p_.seqlen_q, p_.heads_q);
    args.lse = lse_device_.get();
    if (fa_fwd(&args) != FA_STATUS_OK) throw std::runtime_error(std::string("fa_fwd: ") + fa_last_error());
  }

  difference check(int step) const {
    const auto o = o_device_.read();
    const auto lse = lse_device_.read();
    return compare(&p_, q_.data(), k_.data(), v_.data(), o.data(), lse.data(), step);
  }

 private:
  int64_t row(int heads) const { return int64_t{heads} * p_.head_dim; }

  // (batch, seqlen, heads, dim), contiguous: strides are in elements.
  fa_tensor describe(uint16_t *data, int seqlen, int heads) const {
    return fa_make_tensor(data, seqlen * row(heads), row(heads), p_.head_dim);
  }

  problem p_;
  std::vector<uint16_t> q_, k_, v_;
  DeviceArray<uint16_t> q_device_, k_device_, v_device_, o_device_;
  DeviceArray<float> lse_device_;
};

bool check(const problem &p, CUstream stream) {
  const Attention attention(p);
  attention.run(stream);
  require(driver.cuStreamSynchronize(stream), "the kernel");
  const difference d = attention.check(17);
  std::printf("%s: largest error %.2e, %.2f of what rounding allows; lse %.1e; %d rows\n",
              p.causal ? "causal" : "full  ", d.largest, d.of_bound, d.of_lse, d.rows);
  return is_right(d);
}

void measure(const problem &p, CUstream stream) {
  constexpr int runs = 20;
  const Attention attention(p);
  CUevent begin, end;
  require(driver.cuEventCreate(&begin, 0), "cuEventCreate");
  require(driver.cuEventCreate(&end, 0), "cuEventCreate");
  for (int i = 0; i < 3; ++i) attention.run(stream);  // the first ones load the kernel and wake the clocks
  require(driver.cuEventRecord(begin, stream), "cuEventRecord");
  for (int i = 0; i < runs; ++i) attention.run(stream);
  require(driver.cuEventRecord(end, stream), "cuEventRecord");
  require(driver.cuEventSynchronize(end), "the kernels");
  float milliseconds = 0;
  require(driver.cuEventElapsedTime(&milliseconds, begin, end), "cuEventElapsedTime");
  std::printf("%s: %dx%d heads x%dx%d: %.3f ms, %.1f TFLOP/s\n", p.causal ? "causal" : "full  ", p.batch, p.heads_q,
              p.seqlen_q, p.head_dim, milliseconds / runs, floating_point_operations(&p) * runs / milliseconds / 1e9);
}

void describe_library() {
  fa_info info = FA_INFO_INIT;
  if (fa_build_info(&info) != FA_STATUS_OK) throw std::runtime_error(std::string("fa_build_info: ") + fa_last_error());
  std::string sass;
  const fa_family &kernels = *info.families;  // the best of them
  for (int i = 0; i < kernels.sass_count; ++i) sass += (i ? "," : "") + std::to_string(kernels.sass[i]);
  std::printf("libflashattention: %s %s, C ABI %d.%d, CUDA %d.%d, SASS %s, %d units\n", kernels.name, kernels.upstream,
              info.version / 10000, info.version / 100 % 100, info.cuda / 1000, info.cuda % 1000 / 10, sass.c_str(), kernels.units_count);
}

int run() {
  describe_library();
  const int opened = cuda_open(&driver);
  if (opened != EXIT_RIGHT) return opened;
  CUstream stream;
  require(driver.cuStreamCreate(&stream, 0), "cuStreamCreate");
  bool right = true;
  // Four query heads share a key head, and no length is round.
  for (int causal : {0, 1}) right &= check({2, 600, 1000, 8, 2, 64, causal}, stream);
  if (!right) {
    std::puts("WRONG");
    return EXIT_WRONG;
  }
  for (int causal : {0, 1}) measure({4, 4096, 4096, 16, 16, 64, causal}, stream);
  std::puts("right");
  return EXIT_RIGHT;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception &error) {
    std::printf("%s\n", error.what());
    return EXIT_WRONG;
  }
}
