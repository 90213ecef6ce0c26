// What clang includes before a forward unit of FlashAttention-2, after host_view.h: upstream's
// headers, so that they can be compiled once for all units, and what keeps it from their device code.
#pragma once

namespace FLASH_NAMESPACE {

// The body of a kernel is no code of the host's, yet clang instantiates all that it calls. Where
// upstream does not hide that behind __CUDA_ARCH__, an overload for the one type of arguments that
// there is is the better match, and has no body.
struct Flash_fwd_params;
template <typename Traits, int kBlockM, int Log_max_splits, bool Is_even_K>
void combine_attn_seqk_parallel(const Flash_fwd_params &);

}  // namespace FLASH_NAMESPACE

#if __has_include("flash_fwd_launch_template.h")
#include "flash_fwd_launch_template.h"
#endif
