//! Tells cargo how to link libflashattention. Needs no other crate, no network and no CUDA toolkit.
//!
//! FLASHDEPOT_LIB_DIR  folder of another library, as `flashdepot get` prints it; the crate's own is `library`
//! FLASHDEPOT_LINK     `static` or `shared`; without it the feature `shared` decides
//!
//! A build script of a crate that depends on this one reads DEP_FLASHATTENTION_ROOT (the library's folder),
//! DEP_FLASHATTENTION_INCLUDE, DEP_FLASHATTENTION_LIBDIR and DEP_FLASHATTENTION_KIND (`static` or `shared`).

use std::env;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::exit;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=FLASHDEPOT_LIB_DIR");
    println!("cargo:rerun-if-env-changed=FLASHDEPOT_LINK");
    let root = library_folder();
    let kind = kind();
    require_platform(&root);
    let folder = root.join("lib").join(&kind);
    let file = folder.join(if kind == "static" { "libflashattention.a" } else { "libflashattention.so" });
    require_library(&file);
    println!("cargo:rerun-if-changed={}", file.display());
    println!("cargo:rustc-link-search=native={}", folder.display());
    if kind == "static" {
        // -bundle: a library of hundreds of megabytes is not copied into every rlib on the way to the program.
        println!("cargo:rustc-link-lib=static:-bundle=flashattention");
        println!("cargo:rustc-link-lib=static:-bundle=cudart_static");
        for name in ["stdc++", "dl", "rt", "pthread"] {
            println!("cargo:rustc-link-lib=dylib={name}");
        }
    } else {
        println!("cargo:rustc-link-lib=dylib=flashattention");
        // For this crate's own tests. A program that depends on it has to ask for the same in its own build script.
        println!("cargo:rustc-link-arg=-Wl,-rpath,{}", folder.display());
    }
    println!("cargo:root={}", root.display());
    println!("cargo:include={}", root.join("include").display());
    println!("cargo:libdir={}", folder.display());
    println!("cargo:kind={kind}");
}

fn library_folder() -> PathBuf {
    let own = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("library");
    let root = env::var_os("FLASHDEPOT_LIB_DIR").filter(|value| !value.is_empty()).map_or(own, PathBuf::from);
    let manifest = root.join("manifest.json");
    println!("cargo:rerun-if-changed={}", manifest.display());
    match root.canonicalize() {
        Ok(found) if manifest.is_file() => found,
        _ => stop(&format!(
            "{} holds no libflashattention: it has no manifest.json. \
             Set FLASHDEPOT_LIB_DIR to the folder that 'flashdepot get' prints.",
            root.display()
        )),
    }
}

fn kind() -> String {
    match env::var("FLASHDEPOT_LINK").unwrap_or_default().as_str() {
        "" if env::var_os("CARGO_FEATURE_SHARED").is_some() => "shared".into(),
        "" => "static".into(),
        kind @ ("static" | "shared") => kind.into(),
        other => stop(&format!("FLASHDEPOT_LINK is '{other}': expected static or shared.")),
    }
}

/// A library for another system or CPU would fail in the linker, with words that do not say so.
fn require_platform(root: &Path) {
    let variable = |name: &str| env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    let wanted = format!("{}-{}", variable("OS"), variable("ARCH"));
    let text = fs::read_to_string(root.join("manifest.json")).unwrap_or_default();
    let built_for = text
        .split_once("\"platform\":")
        .and_then(|(_, rest)| rest.split('"').nth(1))
        .unwrap_or_default();
    if built_for != wanted {
        stop(&format!(
            "{} is a library for '{built_for}', and this is a build for {wanted}. \
             Set FLASHDEPOT_LIB_DIR to a library for it.",
            root.display()
        ));
    }
    if variable("OS") == "linux" && variable("ENV") != "gnu" {
        stop(&format!("libflashattention needs the GNU C library, and this is a build for {}.", variable("ENV")));
    }
}

fn require_library(file: &Path) {
    let mut head = Vec::new();
    match File::open(file).and_then(|opened| opened.take(23).read_to_end(&mut head)) {
        Err(error) => stop(&format!("{} cannot be read: {error}. Get it again: flashdepot link cargo", file.display())),
        Ok(_) if head == b"version https://git-lfs" => stop(&format!(
            "{} is a Git LFS pointer, not a library. Fetch the file: git lfs install && git lfs pull",
            file.display()
        )),
        Ok(0) => stop(&format!("{} is empty. Get it again: flashdepot link cargo", file.display())),
        Ok(_) => {}
    }
}

fn stop(text: &str) -> ! {
    eprintln!("flashattention-sys: {text}");
    exit(1)
}
