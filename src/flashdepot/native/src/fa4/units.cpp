#include "fa4/units.h"

#include <algorithm>
#include <atomic>
#include <iterator>

#include "divide.h"
#include "error.h"
#include "fa4/passes.h"
#include "fa_config.h"

// Functions of the objects that CuTe DSL exported, see worker/compile_one.py of families/fa4. Each
// takes an array of pointers to its arguments.
#define FA4_SYMBOL(arch, variant, name, function) _mlir_fa4_sm##arch##variant##_##name##function
#define DECLARE(arch, variant, kernel, dtype, head_dim, head_dim_v, layout, mask, softcap, several, blocks, shortest, percent, most_rows, m, n, name) \
  void FA4_SYMBOL(arch, variant, name, _cuda_init)(void **);                                        \
  void FA4_SYMBOL(arch, variant, name, _cuda_load_to_device)(void **);                              \
  void FA4_SYMBOL(arch, variant, name, __mlir_ciface_run)(void **, std::int32_t);

extern "C" {
FA4_CONFIG_UNITS(DECLARE)
}

namespace flashdepot::fa4 {

struct Unit {
  std::int32_t arch;  // of its SASS, 10 * major + minor
  char variant;       // 'a' or 'f' of sm_90a, sm_100f
  Key key;
  Tiles tiles;
  std::int32_t blocks;    // of each SM, which go from tile to tile; 0: a block a tile
  std::int32_t shortest;  // length that it is meant for
  std::int32_t percent;   // of tiles that are chosen by it: what a row costs, of one in others; else 0
  std::int32_t most_rows;  // the longest sequences that such tiles are for
  const char *name;
  void (*initialize)(void **);
  void (*load_to_device)(void **);
  void (*run)(void **, std::int32_t);
};

namespace {

constexpr std::int32_t kDtype_bf16 = FA_DTYPE_BF16;
constexpr std::int32_t kDtype_fp16 = FA_DTYPE_FP16;

#define ROW(arch, variant, kernel, dtype, head_dim, head_dim_v, layout, mask, softcap, several, blocks, shortest, percent, most_rows, m, n, name) \
  {arch,                                                                                        \
   #variant[0],                                                                                 \
   {Kernel::kernel, kDtype_##dtype, head_dim, head_dim_v, Layout::layout, Mask::mask, softcap != 0,         \
    several != 0, m, 0, 0},                                                                     \
   {m, n},                                                                                      \
   blocks,                                                                                      \
   shortest,                                                                                    \
   percent,                                                                                     \
   most_rows,                                                                                   \
   #name,                                                                                       \
   FA4_SYMBOL(arch, variant, name, _cuda_init),                                                 \
   FA4_SYMBOL(arch, variant, name, _cuda_load_to_device),                                       \
   FA4_SYMBOL(arch, variant, name, __mlir_ciface_run)},

const Unit kUnits[] = {FA4_CONFIG_UNITS(ROW)};
constexpr std::int32_t kSass[] = {FA4_CONFIG_SASS};
constexpr std::int32_t kHeadDims[] = {64, 96, 128, 192, 256};

// As fa_build_info has them: the passes alone, each for the masks and layouts that it is there for.
#define UNIT_fwd(dtype, head_dim, causal) {FA_PASS_FWD, kDtype_##dtype, head_dim, causal},
#define UNIT_bwd(dtype, head_dim, causal) {FA_PASS_BWD, kDtype_##dtype, head_dim, causal},
#define UNIT_whole(dtype, head_dim, causal)
#define UNIT_pre(dtype, head_dim, causal)
#define UNIT_dq(dtype, head_dim, causal)
#define UNIT_dkv(dtype, head_dim, causal)
#define CAUSAL_full 0
#define CAUSAL_causal 1
#define CAUSAL_local 0
#define LISTED(arch, variant, kernel, dtype, head_dim, head_dim_v, layout, mask, softcap, several, blocks, shortest, percent, most_rows, m, n, name) \
  UNIT_##kernel(dtype, head_dim, CAUSAL_##mask)

constexpr fa_unit kListed[] = {FA4_CONFIG_UNITS(LISTED)};
constexpr std::uint32_t kFeatures =
    (FA4_CONFIG_HAS_SOFTCAP ? FA_FEATURE_SOFTCAP : 0) |
    (FA4_CONFIG_HAS_LOCAL ? FA_FEATURE_LOCAL : 0) | FA_FEATURE_UNEVEN_K;

// Code for sm_90a runs on 9.0 alone, code for sm_100f on 10.0 and newer minor versions of 10
// (PTX ISA, "target specific features").
bool runs_on(const Unit &unit, const DeviceFacts &gpu) {
  return unit.arch / 10 == gpu.major &&
         (unit.variant == 'f' ? unit.arch % 10 <= gpu.minor : unit.arch % 10 == gpu.minor);
}

// Where a unit with this key is looked for: a library has hundreds, and every call asks for one or
// five. Units of several architectures, with several tiles, and fwd for several lengths and head dims
// of v share a place.
constexpr std::size_t kPlaces = 6 * 2 * 5 * 5 * 3 * 2 * 2;

constexpr std::size_t dim_index(std::int32_t head_dim) {
  std::size_t index = 0;
  while (kHeadDims[index] < head_dim) {
    ++index;
  }
  return index;
}

constexpr bool is_of_a_mask(const Key &key) {
  return key.kernel == Kernel::fwd || key.kernel == Kernel::bwd || key.kernel == Kernel::whole;
}

constexpr std::size_t place_of(const Key &key) {
  const bool of_a_mask = is_of_a_mask(key);
  std::size_t place = static_cast<std::size_t>(key.kernel);
  place = place * 2 + (key.dtype == FA_DTYPE_BF16 ? 1 : 0);
  place = place * 5 + dim_index(key.head_dim);
  place = place * 5 + static_cast<std::size_t>(key.layout);
  place = place * 3 + (of_a_mask ? static_cast<std::size_t>(key.mask) : 0);
  place = place * 2 + (of_a_mask && key.softcap ? 1 : 0);
  return place * 2 + (key.kernel == Kernel::bwd && key.several_heads ? 1 : 0);
}

#define KEY(arch, variant, kernel, dtype, head_dim, head_dim_v, layout, mask, softcap, several, blocks, shortest, percent, most_rows, m, n, name)    \
  Key{Kernel::kernel, kDtype_##dtype, head_dim, head_dim_v, Layout::layout, Mask::mask, softcap != 0, several != 0, \
      m, 0, 0},

constexpr Key kKeys[] = {FA4_CONFIG_UNITS(KEY)};

// The first unit of each place and the one after each unit, by their numbers from 1 on; 0: none.
struct Index {
  std::uint16_t first[kPlaces];
  std::uint16_t next[std::size(kKeys) + 1];
};

constexpr Index index_of_keys() {
  Index index{};
  for (std::size_t number = std::size(kKeys); number > 0; --number) {
    std::uint16_t &first = index.first[place_of(kKeys[number - 1])];
    index.next[number] = first;
    first = static_cast<std::uint16_t>(number);
  }
  return index;
}

constexpr Index kIndex = index_of_keys();

bool is_wanted(const Key &unit, const Key &wanted) {
  const bool has_tile = unit.kernel == Kernel::whole ? unit.tile >= wanted.tile : is_of_a_mask(unit) || unit.tile == wanted.tile;
  return unit.head_dim_v >= wanted.head_dim_v && has_tile;
}

// Each does any length and any smaller head dim of v; a library may hold one of several.
bool is_meant_more(const Unit &unit, const Unit &other, std::int32_t length) {
  if (unit.key.head_dim_v != other.key.head_dim_v) {
    return unit.key.head_dim_v < other.key.head_dim_v;
  }
  if (unit.key.kernel == Kernel::whole) {
    return unit.key.tile < other.key.tile;
  }
  const bool is_meant = unit.shortest <= length;
  const bool other_is = other.shortest <= length;
  return is_meant != other_is ? is_meant : is_meant && unit.shortest > other.shortest;
}

// What a sequence costs, of which the last tile may be half empty.
std::int64_t cost_of(const Unit &unit, const Key &wanted) {
  const bool backward = wanted.kernel == Kernel::bwd;
  const std::int32_t group = unit.key.several_heads && !backward ? wanted.group : 1;
  const std::int64_t rows = wanted.rows * group, tile = unit.tiles.m;
  const std::int64_t taken = wanted.layout == Layout::packed ? rows + tile / 2 : round_up(rows, tile);
  constexpr std::int32_t kOfAHead = 4;  // more of each head whose rows a block goes through
  const std::int32_t more = backward && unit.key.several_heads ? kOfAHead * wanted.group : 0;
  return taken * (unit.percent != 0 ? unit.percent + more : 100) / group;
}

// Whether a unit with tiles for some sequences does one for less than another unit.
bool costs_less(const Unit &unit, const Unit &other, const Key &wanted) {
  const bool is_for_these = wanted.rows > 0 && unit.shortest <= wanted.rows && wanted.rows <= unit.most_rows &&
                            (wanted.kernel == Kernel::bwd || !unit.key.several_heads || wanted.group > 1);
  return is_for_these && unit.key.head_dim_v <= other.key.head_dim_v && cost_of(unit, wanted) < cost_of(other, wanted);
}

// What equal tiles of a forward unit take: those of the busiest SM, with all of their last keys.
std::int64_t time_of(const Unit &unit, const Key &wanted, std::int64_t sms) {
  constexpr std::int64_t kBesides = 30;  // in keys: what a tile begins and ends with
  constexpr std::int32_t kOfManyRows = 87, kOfLong = 97;
  const std::int32_t group = unit.key.several_heads ? wanted.group : 1;
  const std::int32_t usual = unit.tiles.m > 128 ? kOfManyRows : unit.shortest > 0 ? kOfLong : 100;
  const std::int64_t tiles = divide_up(wanted.rows * group, unit.tiles.m) * wanted.heads / group;
  return divide_up(tiles, sms) * unit.tiles.m * (unit.percent != 0 ? unit.percent : usual) *
         (round_up(wanted.keys, unit.tiles.n) + kBesides);
}

// Whether tiles are so few that a forward unit is faster than the usual one by how many the busiest SM has
// (benchmarks/fa4.md). By a causal mask the longest tile is the end of all.
bool is_for_few_tiles(const Unit &unit, const Unit &usual, const Key &wanted, std::int64_t sms) {
  constexpr std::int64_t kRows = 128, kMost = 16;
  if (wanted.heads == 0 || wanted.rows == 0 || wanted.mask == Mask::local ||
      unit.key.head_dim_v != usual.key.head_dim_v || (unit.key.several_heads && wanted.group == 1)) {
    return false;
  }
  const bool is_half = unit.tiles.m < kRows, falls = wanted.mask == Mask::causal && wanted.keys <= 2 * wanted.rows;
  const std::int64_t tiles = divide_up(wanted.rows, kRows) * wanted.heads;
  if (tiles <= (falls ? sms : sms / 2)) {
    return is_half;
  }
  if (is_half || usual.tiles.m < kRows) {
    return false;
  }
  if (falls) {
    return 2 * tiles <= 3 * sms && usual.tiles.m > kRows && unit.shortest == 0 && !unit.key.several_heads;
  }
  return wanted.mask == Mask::full && wanted.layout == Layout::dense && tiles <= kMost * sms &&
         103 * time_of(unit, wanted, sms) < 100 * time_of(usual, wanted, sms);
}

constexpr std::int32_t kDevices = 64;

// Of one unit. A library of the driver belongs to no context, so one serves all devices; what is
// set for each device is the shared memory that the kernel may have.
struct State {
  void *library;
  std::atomic<std::uint64_t> loaded;   // a bit for each device
  std::atomic<std::uint64_t> refused;  // likewise
};

State states[std::size(kUnits)];
std::atomic<bool> loading;

// Arguments as CuTe's own headers for C pass them.
bool load_now(const Unit &unit, State &state, std::int32_t device) {
  cudaError_t result = cudaSuccess;
  void *library = &state.library;
  if (state.library == nullptr) {
    void *arguments[] = {&library, &result};
    unit.initialize(arguments);
  }
  if (result == cudaSuccess) {
    void *arguments[] = {&library, &device, &result};
    unit.load_to_device(arguments);
  }
  if (result != cudaSuccess) {
    cudaGetLastError();  // a driver that is too old for one unit is no error of the call
  }
  return result == cudaSuccess;
}

}  // namespace

const Unit *find_unit(const DeviceFacts *gpu, const Key &key) {
  const Unit *best = nullptr;
  const auto each = [&](const auto &use) {
    for (std::size_t number = kIndex.first[place_of(key)]; number != 0; number = kIndex.next[number]) {
      const Unit &unit = kUnits[number - 1];
      if ((gpu == nullptr || runs_on(unit, *gpu)) && is_wanted(unit.key, key)) use(unit);
    }
  };
  each([&](const Unit &unit) {
    if (unit.percent == 0 && (best == nullptr || is_meant_more(unit, *best, key.length))) best = &unit;
  });
  each([&](const Unit &unit) {
    if (unit.percent != 0 && (best == nullptr || costs_less(unit, *best, key))) best = &unit;
  });
  if (gpu == nullptr || best == nullptr || key.kernel != Kernel::fwd) {
    return best;
  }
  const Unit &usual = *best;
  const std::int64_t sms = gpu->multiprocessors;
  each([&](const Unit &unit) {
    if (is_for_few_tiles(unit, usual, key, sms) &&
        (best == &usual || time_of(unit, key, sms) < time_of(*best, key, sms))) {
      best = &unit;
    }
  });
  return best;
}

bool has_units_for(const DeviceFacts &gpu) {
  return std::any_of(std::begin(kUnits), std::end(kUnits),
                     [&](const Unit &unit) { return runs_on(unit, gpu); });
}

std::int32_t unit_head_dim(std::int32_t head_dim) {
  return kHeadDims[dim_index(head_dim)];
}

Tiles tiles_of(const Unit &unit) { return unit.tiles; }

std::int32_t blocks_of(const Unit &unit) { return unit.blocks; }

bool has_todays_words(const Unit &unit) { return unit.arch / 10 == 9; }

bool takes_groups(const Unit &unit) {
  return unit.arch / 10 == 9 && (unit.key.several_heads ? unit.percent != 0 : unit.key.head_dim > 64);
}

bool zeros_whole_rows(const Unit &unit) {
  const bool of_datacenter_blackwell = unit.arch / 10 == 10 || unit.arch / 10 == 11;
  const bool may_see_none = unit.key.mask == Mask::local || unit.key.layout == Layout::packed;
  return of_datacenter_blackwell && may_see_none && !unit.key.several_heads;
}

const char *name_of(const Unit &unit) { return unit.name; }

bool load(const Unit &unit, const DeviceFacts &gpu) {
  if (gpu.ordinal >= kDevices) {
    return false;
  }
  State &state = states[&unit - kUnits];
  const std::uint64_t bit = std::uint64_t{1} << gpu.ordinal;
  const auto known = [&](std::atomic<std::uint64_t> &devices) {
    return (devices.load(std::memory_order_acquire) & bit) != 0;
  };
  if (known(state.loaded) || known(state.refused)) {
    return known(state.loaded);
  }
  while (loading.exchange(true, std::memory_order_acquire)) {
  }
  const bool done = known(state.loaded) || (!known(state.refused) && load_now(unit, state, gpu.ordinal));
  (done ? state.loaded : state.refused).fetch_or(bit, std::memory_order_release);
  loading.store(false, std::memory_order_release);
  return done;
}

fa_status launch(const Unit &unit, Arguments &arguments) {
  std::int32_t result = cudaSuccess;
  arguments.add(result);
  unit.run(arguments.data(), arguments.count());
  return check_cuda(static_cast<cudaError_t>(result), unit.name);
}

extern const Family family = {
    {
        FA_FAMILY_FA4,
        kFeatures,
        "fa4",
        FA4_CONFIG_UPSTREAM,
        kSass,
        kHeadDims,
        kListed,
        static_cast<std::int32_t>(std::size(kSass)),
        static_cast<std::int32_t>(std::size(kHeadDims)),
        static_cast<std::int32_t>(std::size(kListed)),
        static_cast<std::int32_t>(sizeof(fa_unit)),
    },
    {fits, inside, workspace, launch},
    {fits, inside, workspace, launch},
};

}  // namespace flashdepot::fa4
