// What of flash-attention was compiled into this library: translation units, features,
// architectures.
#pragma once

#include <flash.h>
#include <flash_attention.h>

#include "text.h"

namespace flashdepot::fa2 {

using ForwardParams = FLASH_NAMESPACE::Flash_fwd_params;
using BackwardParams = FLASH_NAMESPACE::Flash_bwd_params;
using ForwardLaunch = void (*)(ForwardParams &, cudaStream_t);
using BackwardLaunch = void (*)(BackwardParams &, cudaStream_t);

// The launcher of a forward or split-KV unit; nullptr if the unit is not in this library.
ForwardLaunch find_forward(std::int32_t pass, std::int32_t dtype, std::int32_t head_dim,
                           bool causal);

// The launcher of a backward unit; nullptr if the unit is not in this library.
BackwardLaunch find_backward(std::int32_t dtype, std::int32_t head_dim, bool causal);

// The smallest head dim of the upstream tree that holds `head_dim`; 0 if there is none.
std::int32_t unit_head_dim(std::int32_t head_dim);

bool has_feature(std::uint32_t feature);

// "dropout", "alibi", ..
const char *feature_name(std::uint32_t feature);

// "fp16" or "bf16"
const char *dtype_name(std::int32_t dtype);

// Whether the file has SASS that a GPU of this compute capability runs: the same major version,
// and a minor version up to the GPU's (CUDA C++ Programming Guide, "binary compatibility").
bool runs_on(std::int32_t major, std::int32_t minor);

// "80, 90"
Text sass_list();

// The units of a pass, "bf16 64, 128; fp16 64 (causal only)", or "none".
Text unit_list(std::int32_t pass);

}  // namespace flashdepot::fa2
