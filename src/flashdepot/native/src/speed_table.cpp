#include "speed_table.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "error.h"

namespace flashdepot {
namespace {

constexpr const char *kVariable = "FLASH_ATTENTION_TABLE";
constexpr const char *kColumns =
    "arch,kind,kernel,head_dim,mask,batch,seqlen,heads_q,heads_k,fa4,fa2";
constexpr int kMostRows = 8192;

struct Row {
  Point point;
  bool fa2_is_faster;
};

// Written by the thread that reads the file, before `state` is kRead or more.
Row rows[kMostRows];
int count;
int wrong_line;  // 0: the file could not be opened
enum : int { kUnread, kReading, kRead, kWrong };
std::atomic<int> state;

// The number of a word among some, or -1.
template <int many>
std::int32_t number_of(const char *word, const char *const (&words)[many]) {
  for (int i = 0; i < many; ++i) {
    if (std::strcmp(word, words[i]) == 0) {
      return i;
    }
  }
  return -1;
}

// Of digits and a point, whatever the program's locale has for one.
double decimal(const char *digits) {
  double value = 0.0, unit = 1.0;
  bool whole = true;
  for (; *digits != '\0'; ++digits) {
    if (*digits == '.') {
      whole = false;
      continue;
    }
    value = value * 10.0 + (*digits - '0');
    unit = whole ? unit : unit * 10.0;
  }
  return value / unit;
}

bool read_row(const char *line, Row &row) {
  char kind[8], pass[8], mask[8], fa4[24], fa2[24];
  std::int32_t batch, heads_q, heads_k;
  Point &point = row.point;
  if (std::sscanf(line, "%d,%7[a-z],%7[a-z],%d,%7[a-z],%d,%d,%d,%d,%23[0-9.],%23[0-9.]", &point.arch, kind, pass,
                  &point.head_dim, mask, &batch, &point.keys, &heads_q, &heads_k, fa4, fa2) != 11 ||
      heads_k <= 0 || point.keys <= 0) {
    return false;
  }
  point.kind = number_of(kind, {"dense", "packed", "cache"});
  point.mask = number_of(mask, {"full", "causal", "local"});
  point.pass = std::strcmp(pass, "fwd") == 0   ? std::int32_t{FA_PASS_FWD}
               : std::strcmp(pass, "bwd") == 0 ? std::int32_t{FA_PASS_BWD}
                                               : -1;
  point.group = heads_q / heads_k;
  row.fa2_is_faster = decimal(fa4) < decimal(fa2);
  return point.kind >= 0 && point.mask >= 0 && point.pass >= 0 && point.group > 0;
}

// The number of the line that is wrong, or -1.
int read_rows(std::FILE *file) {
  char line[1024];
  bool named = false;  // the columns have been seen
  for (int number = 1; std::fgets(line, sizeof line, file) != nullptr; ++number) {
    line[std::strcspn(line, "\r\n")] = '\0';
    if (line[0] == '#' || line[0] == '\0') {
      continue;
    }
    if (!named) {
      named = true;
      if (std::strcmp(line, kColumns) != 0) {
        return number;
      }
    } else if (count == kMostRows || !read_row(line, rows[count++])) {
      return number;
    }
  }
  return named ? -1 : 1;
}

int read_file(const char *path) {
  std::FILE *file = std::fopen(path, "r");
  wrong_line = file == nullptr ? 0 : read_rows(file);
  if (file != nullptr) {
    std::fclose(file);
  }
  if (wrong_line < 0) {
    return kRead;
  }
  count = 0;
  return kWrong;
}

// Nearer by ratio; what is half way belongs to the larger one.
bool is_nearer(std::int64_t one, std::int64_t other, std::int64_t wanted) {
  return one > other ? wanted * wanted >= one * other : one < other && wanted * wanted < one * other;
}

// How many rows there are to look at: none while another thread reads them.
int known() { return state.load(std::memory_order_acquire) == kRead ? count : 0; }

bool is_about(const Point &row, const Point &wanted) {
  return row.arch == wanted.arch && row.pass == wanted.pass && row.head_dim == wanted.head_dim &&
         row.mask == wanted.mask && row.kind == wanted.kind;
}

}  // namespace

fa_status read_speed_table() {
  int now = state.load(std::memory_order_acquire);
  if (now == kUnread && state.compare_exchange_strong(now, kReading, std::memory_order_acquire)) {
    const char *path = std::getenv(kVariable);
    now = path == nullptr || path[0] == '\0' ? kRead : read_file(path);
    state.store(now, std::memory_order_release);
  }
  while (now == kReading) {
    now = state.load(std::memory_order_acquire);
  }
  if (now == kRead) {
    return FA_STATUS_OK;
  }
  constexpr const char *kHelp = "write the file with 'flashdepot bench --tune FILE', or unset the variable";
  if (wrong_line == 0) {
    return refuse(FA_STATUS_INVALID, "%s names a file that cannot be opened; %s", kVariable, kHelp);
  }
  return refuse(FA_STATUS_INVALID, "%s names a file whose line %d is not a measurement (columns: %s); %s",
                kVariable, wrong_line, kColumns, kHelp);
}

Faster faster_by_table(const Point &point) {
  const Row *best = nullptr;
  for (int i = 0, many = known(); i < many; ++i) {
    const Point &row = rows[i].point;
    if (is_about(row, point) &&
        (best == nullptr || is_nearer(row.group, best->point.group, point.group) ||
         (row.group == best->point.group && is_nearer(row.keys, best->point.keys, point.keys)))) {
      best = &rows[i];
    }
  }
  return best == nullptr ? Faster::unknown : best->fa2_is_faster ? Faster::fa2 : Faster::fa4;
}

bool is_in_table(std::int32_t arch) {
  for (int i = 0, many = known(); i < many; ++i) {
    if (rows[i].point.arch == arch) {
      return true;
    }
  }
  return false;
}

}  // namespace flashdepot
