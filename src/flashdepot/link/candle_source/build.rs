//! Links libflashattention, which lies in `lib` beside this file, instead of compiling candle's kernels.
//!
//! FLASHDEPOT_CANDLE_LIB_DIR  folder of another archive, as `flashdepot link candle` writes it

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=FLASHDEPOT_CANDLE_LIB_DIR");
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let target = format!("{}-{}", variable("CARGO_CFG_TARGET_OS"), variable("CARGO_CFG_TARGET_ARCH"));
    if target != "@PLATFORM@" {
        panic!("the archive was made for @PLATFORM@, and this is a build for {target}: flashdepot link candle");
    }
    let own = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("lib");
    let other = env::var_os("FLASHDEPOT_CANDLE_LIB_DIR").filter(|value| !value.is_empty());
    let folder = other.map_or(own, PathBuf::from);
    let archive = folder.join("libflashattention.a");
    println!("cargo:rerun-if-changed={}", archive.display());
    if !archive.is_file() {
        panic!("{} is not there: flashdepot link candle", archive.display());
    }
    println!("cargo:rustc-link-search=native={}", folder.display());
    // -bundle: hundreds of megabytes are not copied into every rlib on the way to the program.
    println!("cargo:rustc-link-lib=static:-bundle=flashattention");
    if "@CUDART@" == "yes" {
        let toolkit = PathBuf::from(variable("CUDA_PATH")).join("lib").join("x64");
        println!("cargo:rerun-if-env-changed=CUDA_PATH");
        println!("cargo:rustc-link-search=native={}", toolkit.display());
        println!("cargo:rustc-link-lib=dylib=cudart");
    } else if variable("CARGO_CFG_TARGET_OS") != "windows" {
        for name in ["dl", "pthread"] {
            println!("cargo:rustc-link-lib=dylib={name}");
        }
    }
}
