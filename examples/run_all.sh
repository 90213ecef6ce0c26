#!/usr/bin/env bash
# Build the C, C++ and Rust examples against a library, shared and static, and run every one of them.
#
#   examples/run_all.sh LIBRARY_DIR BUILD_DIR [--prebuilt DIR]
#
# LIBRARY_DIR is what `flashdepot get` prints; BUILD_DIR is made. gcc and g++ build; CMake, cargo and flashdepot are
# used where they are, and what is left out is said. --prebuilt runs the programs of a folder as well, with the shared
# library to be found: for machines without cargo. FLASHDEPOT names the command, if it is not `flashdepot`.
#
# Each program's output is followed by the libraries that it needs (readelf -d). Exit status: 0 all right, 1 something
# is wrong, 77 everything was built and there is no GPU to run it on.
set -uo pipefail

usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | head -n 11 >&2; exit 2; }

library="" build="" prebuilt=""
while [ $# -gt 0 ]; do
  case "$1" in
    --prebuilt) [ $# -ge 2 ] || usage; prebuilt="$2"; shift 2 ;;
    -*) usage ;;
    *) if [ -z "$library" ]; then library="$1"; elif [ -z "$build" ]; then build="$1"; else usage; fi; shift ;;
  esac
done
[ -n "$library" ] && [ -n "$build" ] || usage
[ -f "$library/manifest.json" ] || { echo "$library is no library: it has no manifest.json" >&2; exit 2; }
[ -z "$prebuilt" ] || [ -d "$prebuilt" ] || { echo "$prebuilt is no folder" >&2; exit 2; }
library="$(cd "$library" && pwd)"
examples="$(cd "$(dirname "$0")" && pwd)"
mkdir -p "$build" && build="$(cd "$build" && pwd)" || exit 1

right=0 wrong=0 without_gpu=0
say() { printf '%s\n' "$*"; }
have() { "$1" --version >/dev/null 2>&1; } # and works: rustup without a toolchain has a cargo that does not
left_out() { say "== left out: $*"; }

run() { # NAME PROGRAM
  say "== $1"
  LD_LIBRARY_PATH="${3:-}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$2"
  local status=$?
  if have readelf; then
    say "needs: $(readelf -d "$2" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | tr '\n' ' ')"
  fi
  case $status in
    0) right=$((right + 1)) ;;
    77) without_gpu=$((without_gpu + 1)) ;;
    *) say "FAILED: $1 ended with status $status"; wrong=$((wrong + 1)) ;;
  esac
}

compile() { # NAME OUTPUT COMMAND...
  local name="$1" output="$2"
  shift 2
  if "$@" >"$output.log" 2>&1; then return 0; fi
  say "== $name"; cat "$output.log"; say "FAILED: $name was not built"
  wrong=$((wrong + 1))
  return 1
}

shared=("-L$library/lib/shared" "-Wl,-rpath,$library/lib/shared" -lflashattention -ldl)
static=(-DFA_STATIC "$library/lib/static/libflashattention.a" -ldl)
for kind in shared static; do
  declare -n flags="$kind"
  for language in c cpp; do
    case $language in
      c) compiler=gcc source="$examples/c/attention.c" ;;
      cpp) compiler=g++ source="$examples/cpp/attention.cc" ;;
    esac
    have "$compiler" || { left_out "$compiler, $kind: no $compiler here"; continue; }
    output="$build/$language-$kind"
    compile "$compiler, $kind" "$output" \
      "$compiler" -O2 "$source" "-I$examples/common" "-I$library/include" "${flags[@]}" -lm -o "$output" &&
      run "$compiler, $kind" "$output"
  done
done

if have cmake; then
  if compile "cmake" "$build/cmake" cmake -S "$examples/cpp" -B "$build/cmake-build" "-DCMAKE_PREFIX_PATH=$library" &&
    compile "cmake --build" "$build/cmake" cmake --build "$build/cmake-build"; then
    for program in attention_c_shared attention_c_static attention_shared attention_static; do
      run "CMake, $program" "$build/cmake-build/$program"
    done
  fi
else
  left_out "CMake: no cmake here"
fi

read -r -a flashdepot <<<"${FLASHDEPOT:-flashdepot}"
if ! have cargo; then
  left_out "Rust: no cargo here${prebuilt:+; see the prebuilt programs}"
elif ! have "${flashdepot[0]}"; then
  left_out "Rust: ${flashdepot[0]}, which writes the crate flashattention-sys, is not here"
else
  crate="$build/rust"
  mkdir -p "$crate" && cp -r "$examples/rust/." "$crate/"
  if compile "flashdepot link cargo" "$build/link-cargo" \
    "${flashdepot[@]}" link cargo "$crate/flashattention-sys" --library "$library"; then
    for kind in shared static; do
      target="$build/rust-$kind"
      FLASHDEPOT_LIB_DIR="" FLASHDEPOT_LINK=$kind compile "cargo, $kind" "$target" \
        cargo build --release --offline --manifest-path "$crate/Cargo.toml" --target-dir "$target" &&
        run "cargo, $kind" "$target/release/attention"
    done
  fi
fi

if [ -n "$prebuilt" ]; then
  for program in "$prebuilt"/*; do
    if [ -f "$program" ] && [ -x "$program" ]; then
      run "prebuilt, $(basename "$program")" "$program" "$library/lib/shared"
    fi
  done
fi

say "== $right right, $wrong wrong, $without_gpu built but not run for want of a GPU"
[ $wrong -eq 0 ] || exit 1
[ $((right + without_gpu)) -gt 0 ] || { echo "nothing was built: there is no compiler here" >&2; exit 1; }
[ $without_gpu -eq 0 ] || exit 77
