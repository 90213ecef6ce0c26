#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <functional>
#include <vector>

template <typename T> __global__ void scale(T* data, T factor) { data[threadIdx.x] *= factor; }

int launch(std::vector<float>& host, std::function<void(int)> report) {
    float* device = nullptr;
    scale<float><<<1, 1>>>(device, host.empty() ? 1.0f : host[0]);
    __half* half = nullptr;
    scale<__half><<<1, 1>>>(half, __float2half(2.0f));
    report(static_cast<int>(cudaGetLastError()));
    return 0;
}
