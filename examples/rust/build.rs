//! What a crate that is depended on cannot ask for: on Linux, where the shared library lies when the program starts; on
//! Windows, one C runtime with the static library.

fn main() {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    match (variable("CARGO_CFG_TARGET_OS").as_str(), variable("DEP_FLASHATTENTION_KIND").as_str()) {
        ("linux", "shared") => println!("cargo:rustc-link-arg=-Wl,-rpath,{}", variable("DEP_FLASHATTENTION_LIBDIR")),
        ("windows", "static") if variable("CARGO_CFG_TARGET_ENV") == "msvc" => {
            println!("cargo:rustc-link-arg=/NODEFAULTLIB:LIBCMT");
        }
        _ => {}
    }
}
