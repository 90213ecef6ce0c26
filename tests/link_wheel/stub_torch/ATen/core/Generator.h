#pragma once

namespace at {
struct Generator {
  int seed;
};
}  // namespace at
