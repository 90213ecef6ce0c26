//! What a crate that is depended on cannot ask for: on Linux, where the shared library is when the program starts.

fn main() {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    if variable("CARGO_CFG_TARGET_OS") == "linux" && variable("DEP_FLASHATTENTION_KIND") == "shared" {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{}", variable("DEP_FLASHATTENTION_LIBDIR"));
    }
}
