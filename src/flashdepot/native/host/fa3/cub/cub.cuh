// What clang finds for this name where it compiles the host side: the one class of CUB that
// flash_prepare_scheduler.cu names, in device code that is not emitted. CUB's own headers name
// functions of the device outside of templates, which clang then looks for.
#pragma once

namespace cub {

template <typename Key, int kThreads, int kItems>
struct BlockMergeSort {
  struct TempStorage {};
  explicit BlockMergeSort(TempStorage &) {}
  template <typename Order>
  void Sort(Key (&)[kItems], Order) {}
};

}  // namespace cub
