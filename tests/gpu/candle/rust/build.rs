//! FLASHDEPOT_CANDLE_LIB   folder with a libflashattention.a that has run_mha
//! FLASHDEPOT_CANDLE_FORM  how many arguments its run_mha takes: 35, 37 or 45

fn main() {
    for name in ["FLASHDEPOT_CANDLE_LIB", "FLASHDEPOT_CANDLE_FORM"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    let folder = std::env::var("FLASHDEPOT_CANDLE_LIB").expect("FLASHDEPOT_CANDLE_LIB names a folder");
    let form = std::env::var("FLASHDEPOT_CANDLE_FORM").expect("FLASHDEPOT_CANDLE_FORM is 35, 37 or 45");
    println!("cargo:rerun-if-changed={folder}/libflashattention.a");
    println!("cargo:rustc-cfg=form=\"{form}\"");
    println!("cargo:rustc-link-search=native={folder}");
    println!("cargo:rustc-link-lib=static:-bundle=flashattention");
    for name in ["stdc++", "m", "dl", "rt", "pthread"] {
        println!("cargo:rustc-link-lib=dylib={name}");
    }
}
