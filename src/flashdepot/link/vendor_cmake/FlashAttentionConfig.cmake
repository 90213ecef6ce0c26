# Written by 'flashdepot vendor': find_package(FlashAttention) with this folder in CMAKE_PREFIX_PATH takes the library of
# the platform that is built for. Where there are several, FlashAttention_FOLDER names one.
include("${CMAKE_CURRENT_LIST_DIR}/FlashAttentionFolder.cmake")
if(DEFINED _FlashAttention_why)
  set(FlashAttention_FOUND FALSE)
  set(FlashAttention_NOT_FOUND_MESSAGE "${_FlashAttention_why}")
else()
  include("${_FlashAttention_folders}/lib/cmake/FlashAttention/FlashAttentionConfig.cmake")
endif()
