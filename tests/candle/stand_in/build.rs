use std::{env, fs, path::PathBuf};

fn main() {
    let folder = env::var("CANDLE_FLASH_ATTN_BUILD_DIR").expect("CANDLE_FLASH_ATTN_BUILD_DIR is not set");
    let folder = PathBuf::from(folder).canonicalize().expect("the folder is there");
    env::var("CUDA_COMPUTE_CAP").expect("CUDA_COMPUTE_CAP is not set");
    let time = |path: PathBuf| fs::metadata(path).and_then(|m| m.modified());
    let archive = time(folder.join("libflashattention.a")).expect("there is an archive");
    for entry in fs::read_dir("kernels").unwrap() {
        let source = entry.unwrap().path();
        if time(source.clone()).unwrap().duration_since(archive).is_ok() {
            panic!("would compile: {} is not older than the archive", source.display());
        }
    }
    println!("cargo:rustc-link-search={}", folder.display());
    println!("cargo:rustc-link-lib=flashattention");
    println!("cargo:rustc-link-lib=dylib=cudart");
    println!("cargo:rustc-link-lib=dylib=stdc++");
}
