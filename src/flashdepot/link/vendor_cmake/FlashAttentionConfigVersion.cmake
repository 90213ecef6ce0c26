# Written by 'flashdepot vendor': find_package(FlashAttention) with this folder in CMAKE_PREFIX_PATH takes the library of
# the platform that is built for. Where there are several, FlashAttention_FOLDER names one.
include("${CMAKE_CURRENT_LIST_DIR}/FlashAttentionFolder.cmake")
if(DEFINED _FlashAttention_why)
  set(PACKAGE_VERSION 1) # the package itself says why it is not found
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
else()
  include("${_FlashAttention_folders}/lib/cmake/FlashAttention/FlashAttentionConfigVersion.cmake")
endif()
