// What clang includes before a backward unit of FlashAttention-2, after host_view.h. See forward.h.
#pragma once

namespace FLASH_NAMESPACE {

struct Flash_bwd_params;
template <bool Clear_dQaccum, typename Traits>
void compute_dot_do_o(const Flash_bwd_params &);
template <typename Traits>
void clear_dKVaccum(const Flash_bwd_params &);
template <typename Traits>
void convert_dQ(const Flash_bwd_params &, int);
template <typename Traits>
void convert_dKV(const Flash_bwd_params &);

}  // namespace FLASH_NAMESPACE

#if __has_include("flash_bwd_launch_template.h")
#include "flash_bwd_launch_template.h"
#endif
