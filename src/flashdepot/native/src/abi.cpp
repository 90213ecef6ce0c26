// The layout that callers of ABI 1 were compiled against, for LP64 and LLP64.
#include <flash_attention.h>

#include <cstddef>

#define AT(type, field, offset) \
  static_assert(offsetof(type, field) == (offset), #type "." #field " moved")

static_assert(sizeof(fa_tensor) == 32);
AT(fa_tensor, data, 0);
AT(fa_tensor, batch_stride, 8);
AT(fa_tensor, row_stride, 16);
AT(fa_tensor, head_stride, 24);

static_assert(sizeof(fa_fwd_args) == 480);
AT(fa_fwd_args, size, 0);
AT(fa_fwd_args, flags, 4);
AT(fa_fwd_args, device, 8);
AT(fa_fwd_args, dtype, 12);
AT(fa_fwd_args, stream, 16);
AT(fa_fwd_args, batch, 24);
AT(fa_fwd_args, seqlen_q, 28);
AT(fa_fwd_args, seqlen_k, 32);
AT(fa_fwd_args, heads_q, 36);
AT(fa_fwd_args, heads_k, 40);
AT(fa_fwd_args, head_dim, 44);
AT(fa_fwd_args, total_q, 48);
AT(fa_fwd_args, total_k, 56);
AT(fa_fwd_args, scale, 64);
AT(fa_fwd_args, softcap, 68);
AT(fa_fwd_args, dropout, 72);
AT(fa_fwd_args, num_splits, 76);
AT(fa_fwd_args, window_left, 80);
AT(fa_fwd_args, window_right, 84);
AT(fa_fwd_args, q, 88);
AT(fa_fwd_args, k, 120);
AT(fa_fwd_args, v, 152);
AT(fa_fwd_args, o, 184);
AT(fa_fwd_args, lse, 216);
AT(fa_fwd_args, workspace, 224);
AT(fa_fwd_args, workspace_bytes, 232);
AT(fa_fwd_args, alibi_slopes, 240);
AT(fa_fwd_args, alibi_batch_stride, 248);
AT(fa_fwd_args, cu_seqlens_q, 256);
AT(fa_fwd_args, cu_seqlens_k, 264);
AT(fa_fwd_args, seqused_k, 272);
AT(fa_fwd_args, leftpad_k, 280);
AT(fa_fwd_args, block_table, 288);
AT(fa_fwd_args, block_table_stride, 296);
AT(fa_fwd_args, page_size, 304);
AT(fa_fwd_args, seqlen_new, 308);
AT(fa_fwd_args, k_new, 312);
AT(fa_fwd_args, v_new, 344);
AT(fa_fwd_args, cache_seqlens, 376);
AT(fa_fwd_args, cache_batch_idx, 384);
AT(fa_fwd_args, rotary_cos, 392);
AT(fa_fwd_args, rotary_sin, 400);
AT(fa_fwd_args, rotary_dim, 408);
AT(fa_fwd_args, rotary_seqlen, 412);
AT(fa_fwd_args, seed, 416);
AT(fa_fwd_args, offset, 424);
AT(fa_fwd_args, seed_ptr, 432);
AT(fa_fwd_args, offset_ptr, 440);
AT(fa_fwd_args, offset_intragraph, 448);
AT(fa_fwd_args, rng_state, 456);
AT(fa_fwd_args, p_debug, 464);
AT(fa_fwd_args, family, 472);
AT(fa_fwd_args, reserved0, 476);

static_assert(sizeof(fa_bwd_args) == 416);
AT(fa_bwd_args, size, 0);
AT(fa_bwd_args, flags, 4);
AT(fa_bwd_args, device, 8);
AT(fa_bwd_args, dtype, 12);
AT(fa_bwd_args, stream, 16);
AT(fa_bwd_args, batch, 24);
AT(fa_bwd_args, seqlen_q, 28);
AT(fa_bwd_args, seqlen_k, 32);
AT(fa_bwd_args, heads_q, 36);
AT(fa_bwd_args, heads_k, 40);
AT(fa_bwd_args, head_dim, 44);
AT(fa_bwd_args, total_q, 48);
AT(fa_bwd_args, total_k, 56);
AT(fa_bwd_args, scale, 64);
AT(fa_bwd_args, softcap, 68);
AT(fa_bwd_args, dropout, 72);
AT(fa_bwd_args, family, 76);
AT(fa_bwd_args, window_left, 80);
AT(fa_bwd_args, window_right, 84);
AT(fa_bwd_args, q, 88);
AT(fa_bwd_args, k, 120);
AT(fa_bwd_args, v, 152);
AT(fa_bwd_args, o, 184);
AT(fa_bwd_args, d_o, 216);
AT(fa_bwd_args, dq, 248);
AT(fa_bwd_args, dk, 280);
AT(fa_bwd_args, dv, 312);
AT(fa_bwd_args, lse, 344);
AT(fa_bwd_args, softmax_d, 352);
AT(fa_bwd_args, workspace, 360);
AT(fa_bwd_args, workspace_bytes, 368);
AT(fa_bwd_args, alibi_slopes, 376);
AT(fa_bwd_args, alibi_batch_stride, 384);
AT(fa_bwd_args, cu_seqlens_q, 392);
AT(fa_bwd_args, cu_seqlens_k, 400);
AT(fa_bwd_args, rng_state, 408);

static_assert(sizeof(fa_unit) == 16);
AT(fa_unit, pass, 0);
AT(fa_unit, dtype, 4);
AT(fa_unit, head_dim, 8);
AT(fa_unit, causal, 12);

static_assert(sizeof(fa_family) == 64);
AT(fa_family, family, 0);
AT(fa_family, features, 4);
AT(fa_family, name, 8);
AT(fa_family, upstream, 16);
AT(fa_family, sass, 24);
AT(fa_family, head_dims, 32);
AT(fa_family, units, 40);
AT(fa_family, sass_count, 48);
AT(fa_family, head_dims_count, 52);
AT(fa_family, units_count, 56);
AT(fa_family, unit_size, 60);

static_assert(sizeof(fa_info) == 40);
AT(fa_info, size, 0);
AT(fa_info, abi, 4);
AT(fa_info, flashdepot, 8);
AT(fa_info, cuda, 16);
AT(fa_info, families_count, 20);
AT(fa_info, families, 24);
AT(fa_info, family_size, 32);
AT(fa_info, reserved0, 36);

static_assert(sizeof(fa_choice) == 24);
AT(fa_choice, size, 0);
AT(fa_choice, family, 4);
AT(fa_choice, name, 8);
AT(fa_choice, why_not, 16);
