//! Tells cargo how to link libflashattention. Needs no other crate, no network and no CUDA toolkit.
//!
//! FLASHDEPOT_LIB_DIR  folder of a library, as `flashdepot get` prints it; without it, that of the
//!                     target in the crate's own `library`: `library/linux-x86_64`
//! FLASHDEPOT_REQUEST  where there is neither: options of `flashdepot get`, such as `--profile inference --arch 80,90`,
//!                     for the library that is taken from the depot of this machine
//! FLASHDEPOT_GET      `1`: one that the depot lacks is fetched and verified, or built if that takes under two minutes;
//! FLASHDEPOT_BUILD    `always` with it: built however long it takes, since nobody can be asked inside Cargo
//! FLASHDEPOT          the program `flashdepot`, where it is not on PATH
//! FLASHDEPOT_LINK     `static` or `shared`; without it the feature `shared` decides
//!
//! A build script of a crate that depends on this one reads DEP_FLASHATTENTION_ROOT (the library's folder),
//! DEP_FLASHATTENTION_INCLUDE, DEP_FLASHATTENTION_LIBDIR and DEP_FLASHATTENTION_KIND (`static` or `shared`).
//!
//! On Windows both libraries go with every toolchain. A program finds the DLL in its own folder or on PATH: Cargo knows
//! no other way to tell it.

// Names of variables, which are what a reader looks for, need no quotes.
#![allow(clippy::doc_markdown)]

use std::env;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{exit, Command};

const VARIABLES: [&str; 8] = [
    "FLASHDEPOT_LIB_DIR",
    "FLASHDEPOT_REQUEST",
    "FLASHDEPOT_GET",
    "FLASHDEPOT_BUILD",
    "FLASHDEPOT_HOME",
    "FLASHDEPOT",
    "FLASHDEPOT_LINK",
    "DOCS_RS",
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for name in VARIABLES {
        println!("cargo:rerun-if-env-changed={name}");
    }
    if env::var_os("DOCS_RS").is_some() {
        return; // nothing is linked there
    }
    let kind = kind();
    let root = match library_folder() {
        Ok(root) => root,
        Err(reason) => {
            // Checks and documentation need none. A program that is linked lacks fa_*, and Cargo prints this next to it.
            println!("cargo:warning={}", reason.replace('\n', " "));
            return;
        }
    };
    require_platform(&root);
    let windows = target("OS") == "windows";
    let folder = root.join("lib").join(&kind);
    if windows && kind == "static" {
        require_shared_c_runtime();
    }
    for file in file_names(windows, &kind)
        .iter()
        .map(|name| folder.join(name))
    {
        require_library(&file);
        println!("cargo:rerun-if-changed={}", file.display());
    }
    println!("cargo:rustc-link-search=native={}", folder.display());
    if kind == "static" {
        link_static(windows);
    } else {
        link_shared(windows, &folder);
    }
    println!("cargo:root={}", root.display());
    println!("cargo:include={}", root.join("include").display());
    println!("cargo:libdir={}", folder.display());
    println!("cargo:kind={kind}");
}

/// What a linker reads, and on Windows what the program loads.
fn file_names(windows: bool, kind: &str) -> &'static [&'static str] {
    match (windows, kind) {
        (true, "static") if target("ENV") == "msvc" => &["flashattention.lib"],
        (_, "static") => &["libflashattention.a"],
        (true, _) => &["flashattention.lib", "flashattention.dll"],
        (false, _) => &["libflashattention.so"],
    }
}

fn link_static(windows: bool) {
    // -bundle: a library of hundreds of megabytes is not copied into every rlib on the way to the program.
    println!("cargo:rustc-link-lib=static:-bundle=flashattention");
    let needs: &[&str] = if windows {
        &["kernel32", "advapi32", "shell32", "user32"]
    } else {
        &["dl", "pthread"]
    };
    for name in needs {
        println!("cargo:rustc-link-lib=dylib={name}");
    }
}

fn link_shared(windows: bool, folder: &Path) {
    println!("cargo:rustc-link-lib=dylib=flashattention");
    if !windows {
        // For this crate's own tests. A program that depends on it has to ask for the same in its own build script.
        println!("cargo:rustc-link-arg=-Wl,-rpath,{}", folder.display());
    }
}

/// The library's folder, or why there is none.
fn library_folder() -> Result<PathBuf, String> {
    let libraries =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("library");
    let platform = format!("{}-{}", target("OS"), target("ARCH"));
    let root = match env::var_os("FLASHDEPOT_LIB_DIR").filter(|value| !value.is_empty()) {
        Some(named) => PathBuf::from(named),
        None if libraries.join(&platform).is_dir() => libraries.join(&platform),
        None if libraries.is_dir() => stop(&format!(
            "{} has no library for {platform}. Add one: flashdepot link cargo DIR --target {platform}",
            libraries.display()
        )),
        None => from_flashdepot()?,
    };
    let manifest = root.join("manifest.json");
    println!("cargo:rerun-if-changed={}", manifest.display());
    match root.canonicalize() {
        Ok(found) if manifest.is_file() => Ok(plain(found)),
        _ => stop(&format!(
            "{} holds no libflashattention: it has no manifest.json. \
             Set FLASHDEPOT_LIB_DIR to the folder that 'flashdepot get' prints.",
            root.display()
        )),
    }
}

/// The library that flashdepot takes from its depot; with FLASHDEPOT_GET one that it fetches, verifies or builds.
fn from_flashdepot() -> Result<PathBuf, String> {
    let given = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let program = given("FLASHDEPOT").unwrap_or_else(|| "flashdepot".into());
    let may_get = given("FLASHDEPOT_GET").is_some_and(|value| value != "0");
    let words: &[&str] = if may_get {
        &["get"]
    } else {
        &["link", "flags"]
    };
    let request = given("FLASHDEPOT_REQUEST").unwrap_or_default();
    let system = format!("{}-{}", target("OS"), target("ARCH"));
    let mut command = Command::new(&program);
    command
        .args(words)
        .args(["--json", "-q"])
        .args(request.split_whitespace());
    if !request.contains("--target")
        && system != format!("{}-{}", env::consts::OS, env::consts::ARCH)
    {
        command.args(["--target", &system]);
    }
    let further = if may_get {
        "FLASHDEPOT_BUILD=always to build it"
    } else {
        "FLASHDEPOT_GET=1 to get one"
    };
    let instead =
        format!("Set FLASHDEPOT_LIB_DIR to the folder that 'flashdepot get' prints, or {further}.");
    let done = command.output().map_err(|error| {
        format!("no library was named, and '{program}' cannot be run: {error}. {instead}")
    })?;
    let said = String::from_utf8_lossy(&done.stdout);
    match (done.status.success(), path_in(&said)) {
        (true, Some(path)) => Ok(path.into()),
        _ => Err(format!(
            "no library was named, and '{program} {}' gave none: {} {instead}",
            words.join(" "),
            String::from_utf8_lossy(&done.stderr).trim()
        )),
    }
}

/// The value of "path" in a JSON document.
fn path_in(document: &str) -> Option<String> {
    let (_, rest) = document.split_once("\"path\":")?;
    let (_, text) = rest.split_once('"')?;
    let mut found = String::new();
    let mut letters = text.chars();
    loop {
        match letters.next()? {
            '"' => return Some(found),
            '\\' => match letters.next()? {
                'u' => {
                    let digits: String = letters.by_ref().take(4).collect();
                    found.push(char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?);
                }
                escaped => found.push(escaped),
            },
            letter => found.push(letter),
        }
    }
}

/// `canonicalize` begins paths of Windows with `\\?\`, which its linkers do not know.
fn plain(path: PathBuf) -> PathBuf {
    match path.to_str().and_then(|text| text.strip_prefix(r"\\?\")) {
        Some(rest) => rest
            .strip_prefix(r"UNC\")
            .map_or(rest.into(), |share| format!(r"\\{share}").into()),
        None => path,
    }
}

fn kind() -> String {
    match env::var("FLASHDEPOT_LINK").unwrap_or_default().as_str() {
        "" if env::var_os("CARGO_FEATURE_SHARED").is_some() => "shared".into(),
        "" => "static".into(),
        kind @ ("static" | "shared") => kind.into(),
        other => stop(&format!(
            "FLASHDEPOT_LINK is '{other}': expected static or shared."
        )),
    }
}

/// What Cargo says of the target: its `OS`, `ARCH`, `ENV`, `FEATURE`.
fn target(part: &str) -> String {
    env::var(format!("CARGO_CFG_TARGET_{part}")).unwrap_or_default()
}

/// A library for another system or CPU would fail in the linker, with words that do not say so.
fn require_platform(root: &Path) {
    let wanted = format!("{}-{}", target("OS"), target("ARCH"));
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
    if target("OS") == "linux" && target("ENV") != "gnu" {
        stop(&format!(
            "libflashattention needs the GNU C library, and this is a build for {}.",
            target("ENV")
        ));
    }
}

fn require_shared_c_runtime() {
    if target("FEATURE")
        .split(',')
        .any(|feature| feature == "crt-static")
    {
        stop(
            "the static library needs the C runtime as a DLL, and this is a build with crt-static. \
             Link the shared library: set FLASHDEPOT_LINK=shared, or ask for the feature shared.",
        );
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
