# libflashattention for vcpkg. `flashdepot get` makes or fetches the library, so flashdepot must be on PATH, and no CUDA
# toolkit is needed: vcpkg install flashattention --overlay-ports=examples/vcpkg
#
# A triplet, or -D in VCPKG_CMAKE_CONFIGURE_OPTIONS, may set FLASHATTENTION_PROFILE, FLASHATTENTION_ARCH, or FLASHATTENTION_LIBRARY, a
# folder that `flashdepot get --out` wrote.
set(profile "inference")
set(arch "universal")
if(DEFINED FLASHATTENTION_PROFILE)
  set(profile "${FLASHATTENTION_PROFILE}")
endif()
if(DEFINED FLASHATTENTION_ARCH)
  set(arch "${FLASHATTENTION_ARCH}")
endif()

if(DEFINED FLASHATTENTION_LIBRARY)
  set(library "${FLASHATTENTION_LIBRARY}")
else()
  find_program(FLASHDEPOT flashdepot REQUIRED)
  set(cpu_x64 "x86_64")
  set(cpu_arm64 "aarch64")
  set(system "linux")
  if(VCPKG_TARGET_IS_WINDOWS)
    set(system "windows")
  endif()
  set(library "${CURRENT_BUILDTREES_DIR}/library")
  vcpkg_execute_required_process(
    COMMAND "${FLASHDEPOT}" get --profile "${profile}" --arch "${arch}"
            --target "${system}-${cpu_${VCPKG_TARGET_ARCHITECTURE}}" --yes --out "${library}"
    WORKING_DIRECTORY "${CURRENT_BUILDTREES_DIR}"
    LOGNAME get
  )
endif()

# The library's own CMake package finds both kinds in lib/shared and lib/static, relative to itself.
file(INSTALL "${library}/include" "${library}/lib" DESTINATION "${CURRENT_PACKAGES_DIR}")
file(INSTALL "${library}/manifest.json" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
set(VCPKG_BUILD_TYPE release)
set(VCPKG_POLICY_SKIP_LIB_CMAKE_MERGE_CHECK enabled)
set(VCPKG_POLICY_MISMATCHED_NUMBER_OF_BINARIES enabled)

file(GLOB licences "${library}/share/licenses/*")
vcpkg_install_copyright(FILE_LIST ${licences})
