//! Lets the program find the shared library where it lies. With the static one there is nothing to find.

fn main() {
    if std::env::var("DEP_FLASHATTENTION_KIND").as_deref() == Ok("shared") {
        let folder = std::env::var("DEP_FLASHATTENTION_LIBDIR").expect("flashattention-sys says where the library is");
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    }
}
