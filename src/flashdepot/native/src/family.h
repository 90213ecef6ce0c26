// The seam between the C ABI and the families of kernels behind it.
//
// A family is one line of kernels with one source: fa2, fa3, fa4. Its part of the C layer is a folder
// beside this file that defines one `Family` as `flashdepot::<name>::family`, and a word in
// FA_CONFIG_FAMILIES of fa_config.h, which lists the families of a library, the best first. Nothing
// else names a family. A library whose list lacks one is built without that family's folder.
//
// What a family can rely on
// - The struct rules, numbers, flags, combinations and buffers of a call have been checked
//   (problem.h, combinations.h, buffers.h); only what the family itself cannot do is left to
//   refuse.
// - `launch` gets a call that its `fits` accepted on the GPU at hand, with at least one query and
//   one key: what has none is done without any family. The device is current.
// What a family must keep to
// - No call allocates, synchronizes, throws, or reaches exit or abort. Globals need no constructor.
// - `fits` and `workspace` look only at what fa_supports looks at, so that they answer the same
//   whether or not the buffers are known. `fits` gets no GPU, nullptr, when somebody asks about any
//   GPU that the library has machine code for.
// - The answers are those that flash_attention.h describes: its lse, its empty rows, its windows.
//   Rows that see no key get o = 0 and lse = +inf, whatever the kernels make of them.
// - Of d_lse a family subtracts itself, between what makes softmax_d and what reads it
//   (softmax_rows.h). FA_FLAG_EMPTY_LSE_NEG_INF it does not see, and sinks and other head dims of v
//   only where it says so (`inside`).
#pragma once

#include <flash_attention.h>

#include <cstdint>

#include "device.h"
#include "problem.h"
#include "softmax_rows.h"
#include "text.h"

namespace flashdepot {

enum class Fit {
  serves,
  slower,             // could serve; another family of the library was measured to be faster here
  unsupported,        // not in this library, or not in the family at all
  no_kernel_for_arch  // no machine code for this GPU
};

// What a launch needs of the caller.
struct Workspace {
  std::uint64_t bytes;
  std::int32_t splits;  // of the keys; 1 in the backward pass
};

// What of a call the kernels of a family do themselves. The rest is done around the launch.
struct Inside {
  bool sink;        // of the forward pass
  bool head_dim_v;  // other than that of q and k: else `launch` gets a call in which they are one
  bool softmax_d = false;  // that is NULL: else `launch` gets one in the workspace
};

// A pass, forward or backward, of a family. `Call` is ForwardCall or BackwardCall.
template <typename Call>
struct Pass {
  // Whether the family runs the call. Unless it serves, the reason goes to *why, if that is given:
  // the argument that stands in the way with its value, and what to get or to change.
  Fit (*fits)(const Call &call, const DeviceFacts *gpu, Text *why);

  // Of a call that fits.
  Inside (*inside)(const Call &call, const DeviceFacts &gpu);

  // What the launch needs. Of the GPU it may ask read_device, where the need depends on it.
  fa_status (*workspace)(const Call &call, Workspace &needs);

  // Enqueues everything on the call's stream. Checks the workspace, which the caller may have sized
  // otherwise.
  fa_status (*launch)(const Call &call, const DeviceFacts &gpu);
};

struct Family {
  fa_family contents;  // for fa_build_info
  Pass<ForwardCall> forward;
  Pass<BackwardCall> backward;
  // Whether its forward pass looks at FA_DTYPE_E4M3, qv, descales, seqused_q, attention_chunk and a
  // head_dim_v over 256: calls with those reach no other family.
  bool has_every_word = false;
};

// Writes the reason, if somebody wants it, and returns `fit`.
FLASHDEPOT_PRINTF(3, 4) Fit decline(Text *why, Fit fit, const char *format, ...);

// Whether upstream's kernels store all of k_new: they store what some query sees.
Fit fits_new_keys(const ForwardCall &call, Text *why);

// Which family runs a call.
struct Choice {
  const Family *family;
  Text *why_not;  // in: nullptr, or where to say why each better family does not serve
};

// Chooses the family for a call: args.family, or the first of the library's that serves, else the
// first that is slower. Refuses, with every family's reason, where there is none.
[[nodiscard]] fa_status choose(const ForwardCall &call, const DeviceFacts *gpu, Choice &choice);
[[nodiscard]] fa_status choose(const BackwardCall &call, const DeviceFacts *gpu, Choice &choice);

// Chooses for the device with this ordinal. Without a usable GPU the answer is a refusal all the
// same, by what no GPU would change, before it is the GPU's error.
template <typename Call>
[[nodiscard]] fa_status choose_on(std::int32_t ordinal, const Call &call, DeviceFacts &gpu,
                                  Choice &choice) {
  if (const fa_status status = read_device(ordinal, gpu); status != FA_STATUS_OK) {
    Text cause;
    cause.add("%s", fa_last_error());
    FLASHDEPOT_TRY(choose(call, nullptr, choice));
    return refuse(status, "%s", cause.c_str());
  }
  return choose(call, &gpu, choice);
}

// Carry out a call on the current device, by a family that fits it: sinks, lse of empty rows and head
// dims that differ are done around its launch.
[[nodiscard]] fa_status run(const ForwardCall &call, const DeviceFacts &gpu, const Family &family);
[[nodiscard]] fa_status run(const BackwardCall &call, const DeviceFacts &gpu, const Family &family);


// softmax_d of a call, as flash_attention.h has it.
SoftmaxSums softmax_sums(const BackwardCall &call);

}  // namespace flashdepot
