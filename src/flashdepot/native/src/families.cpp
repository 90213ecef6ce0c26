// The families of this library, and which of them runs a call.
#include <cstdarg>
#include <iterator>

#include "arguments.h"
#include "error.h"
#include "fa_config.h"
#include "family.h"
#include "speed_table.h"

#define DECLARE(name)          \
  namespace flashdepot::name { \
  extern const Family family;  \
  }
FA_CONFIG_FAMILIES(DECLARE)

namespace flashdepot {
namespace {

#define ADDRESS(name) &name::family,
constexpr const Family *kFamilies[] = {FA_CONFIG_FAMILIES(ADDRESS)};

// One after the other, as fa_info has them. Filled while the library is loaded.
#define CONTENTS(name) name::family.contents,
const fa_family contents[] = {FA_CONFIG_FAMILIES(CONTENTS)};

// Every family that the ABI has a number for, the best first.
constexpr struct {
  std::int32_t number;
  const char *name;
  bool usual;  // serves calls that others do too, so that a library without it may be a slower one
} kKnown[] = {{FA_FAMILY_FA4, "fa4", true}, {FA_FAMILY_FA3, "fa3", false}, {FA_FAMILY_FA2, "fa2", true}};

const Family *find(std::int32_t number) {
  for (const Family *family : kFamilies) {
    if (family->contents.family == number) {
      return family;
    }
  }
  return nullptr;
}

Text list_of_families() {
  Text text;
  for (const Family *family : kFamilies) {
    text.add("%s%s", text.empty() ? "" : ", ", family->contents.name);
  }
  return text;
}

// Refuses a family that the library does not have.
fa_status check_family(std::int32_t number) {
  if (number == FA_FAMILY_BEST || find(number) != nullptr) {
    return FA_STATUS_OK;
  }
  for (const auto &known : kKnown) {
    if (known.number == number) {
      return refuse(FA_STATUS_UNSUPPORTED,
                    "family is %d (%s), which is not in this library (it has: %s); leave it 0 for "
                    "the best one here",
                    number, known.name, list_of_families().c_str());
    }
  }
  return refuse(FA_STATUS_INVALID,
                "family is %d; allowed: 0, FA_FAMILY_FA2 (%d), FA_FAMILY_FA3 (%d), FA_FAMILY_FA4 (%d)",
                number, FA_FAMILY_FA2, FA_FAMILY_FA3, FA_FAMILY_FA4);
}

bool asked_for(const Family &family, std::int32_t number) {
  return number == FA_FAMILY_BEST || family.contents.family == number;
}

// Words of a forward call that only some kernels look at never reach a family that has none of those.
Fit fits_words(const Family &family, const ForwardCall &call, Text *why) {
  const auto &[args, problem] = call;
  const char *word = problem.dtype == FA_DTYPE_E4M3 ? "dtype is 3 (FA_DTYPE_E4M3)"
                     : args.qv.data != nullptr      ? "qv.data is set"
                     : args.seqused_q != nullptr    ? "seqused_q is set"
                     : args.attention_chunk != 0    ? "attention_chunk is set"
                     : problem.head_dim_v > 256     ? "head_dim_v is over 256"
                                                    : nullptr;
  if (word == nullptr || family.has_every_word) {
    return Fit::serves;
  }
  return decline(why, Fit::unsupported,
                 "%s, which is for family fa3 (FP8 and absorbed MLA, on Hopper): get a library that has "
                 "it with flashdepot get --families all,fa3, or leave it out",
                 word);
}
Fit fits_words(const Family &, const BackwardCall &, Text *) { return Fit::serves; }

template <typename Call>
Fit fits(const Family &family, const Pass<Call> Family::*pass, const Call &call,
         const DeviceFacts *gpu, Text *why) {
  const Fit fit = fits_words(family, call, why);
  return fit == Fit::serves ? (family.*pass).fits(call, gpu, why) : fit;
}

template <typename Call>
fa_status refuse_all(const Call &call, const DeviceFacts *gpu, const Pass<Call> Family::*pass) {
  const bool several = call.args.family == FA_FAMILY_BEST && std::size(kFamilies) > 1;
  Text reasons;
  Fit last = Fit::unsupported;
  for (const Family *family : kFamilies) {
    if (asked_for(*family, call.args.family)) {
      Text why;
      last = fits(*family, pass, call, gpu, &why);
      reasons.add("%s", reasons.empty() ? "" : "; ");
      reasons.add("%s%s%s", several ? family->contents.name : "", several ? ": " : "", why.c_str());
    }
  }
  // The last family is the one that does most, so what it lacks is what the caller is told.
  return refuse(last == Fit::no_kernel_for_arch ? FA_STATUS_NO_KERNEL_FOR_ARCH : FA_STATUS_UNSUPPORTED, "%s",
                reasons.c_str());
}

template <typename Call>
void explain(const Call &call, const DeviceFacts *gpu, const Pass<Call> Family::*pass,
             const Family &chosen, Text &why_not) {
  for (const auto &known : kKnown) {
    const Family *family = find(known.number);
    if (family == &chosen) {
      return;
    }
    if (family == nullptr && !known.usual) {
      continue;
    }
    Text why;
    if (family != nullptr) {
      fits(*family, pass, call, gpu, &why);
    } else {
      why.add("not in this library");
    }
    why_not.add("%s%s: %s", why_not.empty() ? "" : "; ", known.name, why.c_str());
  }
}

template <typename Call>
fa_status choose_for(const Call &call, const DeviceFacts *gpu, const Pass<Call> Family::*pass,
                     Choice &choice) {
  const std::int32_t number = call.args.family;
  FLASHDEPOT_TRY(check_family(number));
  if (number == FA_FAMILY_BEST && std::size(kFamilies) > 1) {
    FLASHDEPOT_TRY(read_speed_table());
  }
  choice.family = nullptr;
  for (const Family *family : kFamilies) {
    if (!asked_for(*family, number)) {
      continue;
    }
    const Fit fit = fits(*family, pass, call, gpu, nullptr);
    if (fit == Fit::serves) {
      choice.family = family;
      break;
    }
    if (fit == Fit::slower && choice.family == nullptr) {
      choice.family = family;
    }
  }
  if (choice.family == nullptr) {
    return refuse_all(call, gpu, pass);
  }
  if (choice.why_not != nullptr && number == FA_FAMILY_BEST) {
    explain(call, gpu, pass, *choice.family, *choice.why_not);
  }
  return FA_STATUS_OK;
}

}  // namespace

Fit decline(Text *why, Fit fit, const char *format, ...) {
  if (why != nullptr) {
    va_list arguments;
    va_start(arguments, format);
    why->add_list(format, arguments);
    va_end(arguments);
  }
  return fit;
}

Fit fits_new_keys(const ForwardCall &call, Text *why) {
  const auto &[args, problem] = call;
  const bool chunked = args.attention_chunk > 0;
  const std::int64_t reach =
      std::int64_t{problem.seqlen_q} + (chunked || problem.windows.left < 0 ? 0 : problem.windows.left);
  if ((!chunked && problem.windows.left < 0) || args.seqlen_new <= reach) {
    return Fit::serves;
  }
  return decline(why, Fit::unsupported,
                 "seqlen_new is %d, and with seqlen_q %d and this window or attention_chunk a query may "
                 "see as few as %lld of those keys; upstream's kernels store no others: write the new "
                 "keys to the cache first",
                 args.seqlen_new, args.seqlen_q, static_cast<long long>(reach));
}

fa_status choose(const ForwardCall &call, const DeviceFacts *gpu, Choice &choice) {
  return choose_for(call, gpu, &Family::forward, choice);
}

fa_status choose(const BackwardCall &call, const DeviceFacts *gpu, Choice &choice) {
  return choose_for(call, gpu, &Family::backward, choice);
}

}  // namespace flashdepot

int32_t fa_version() noexcept { return FA_VERSION; }

fa_status fa_build_info(fa_info *info) noexcept {
  using namespace flashdepot;
  if (info == nullptr) {
    return refuse(FA_STATUS_INVALID, "info is NULL; pass a fa_info");
  }
  FLASHDEPOT_TRY(check_size(info->size, "fa_info", sizeof *info));
  const fa_info known = {info->size,
                         FA_VERSION,
                         FA_CONFIG_FLASHDEPOT,
                         FA_CONFIG_CUDA,
                         static_cast<std::int32_t>(std::size(kFamilies)),
                         contents,
                         static_cast<std::int32_t>(sizeof(fa_family)),
                         0};
  write_struct(info, info->size, known);
  return FA_STATUS_OK;
}
