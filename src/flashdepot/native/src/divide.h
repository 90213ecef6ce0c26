// Lengths in whole parts.
#pragma once

namespace flashdepot {

// How many parts a length has; the last one may be shorter. Neither is negative, and no sum overflows.
template <typename Length, typename Part>
constexpr auto divide_up(Length length, Part part) {
  return length / part + (length % part != 0 ? 1 : 0);
}

// The length with room for all of its last part.
template <typename Length, typename Part>
constexpr auto round_up(Length length, Part part) {
  return divide_up(length, part) * part;
}

}  // namespace flashdepot
