//! Links libflashattention from the platform's folder in `lib`, next to this file, instead of compiling candle's kernels.
//!
//! The archive is read once before it is linked: one that is cut off, changed, a Git LFS pointer or for another candle is
//! refused here with a message, and not by the linker or by wrong numbers.
//!
//! FLASHDEPOT_CANDLE_LIB_DIR  folder of another archive, `lib/PLATFORM` of another such crate
//! CUDA_COMPUTE_CAP           the oldest GPU that candle's own kernels are compiled for, as candle reads it

use std::env;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{exit, Command};

/// How many arguments the `run_mha` has in the archive that this crate calls.
const ARGUMENTS: &str = "@ARGUMENTS@";
const STEM: &str = "flashattention_candle";
/// Where `flashdepot link candle` says what it wrote, from `lib/PLATFORM`.
const RECORD: &str = "../../.flashdepot-candle-crate.json";
const AGAIN: &str = "Write it again: flashdepot link candle --write";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=FLASHDEPOT_CANDLE_LIB_DIR");
    let variable = |name: &str| env::var(name).unwrap_or_default();
    println!("cargo:rerun-if-env-changed=CUDA_COMPUTE_CAP");
    let target = format!("{}-{}", variable("CARGO_CFG_TARGET_OS"), variable("CARGO_CFG_TARGET_ARCH"));
    let lib = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("lib");
    let other = env::var_os("FLASHDEPOT_CANDLE_LIB_DIR").filter(|value| !value.is_empty()).map(PathBuf::from);
    let is_own = other.is_none();
    let folder = other.unwrap_or_else(|| lib.join(&target));
    if is_own {
        require_platform(&lib, &target);
        require_machine_code(&folder, &variable("CUDA_COMPUTE_CAP"));
    }
    let name = match variable("CARGO_CFG_TARGET_ENV").as_str() {
        "msvc" => format!("{STEM}.lib"),
        _ => format!("lib{STEM}.a"),
    };
    let archive = folder.join(&name);
    println!("cargo:rerun-if-changed={}", archive.display());
    let written = recorded(&folder, &name);
    if is_own && written.is_none() {
        stop(&format!("{} names no {}. {AGAIN}", folder.join(RECORD).display(), archive.display()));
    }
    require(&archive, written);
    println!("cargo:rustc-link-search=native={}", folder.display());
    // -bundle: hundreds of megabytes are not copied into every rlib on the way to the program.
    println!("cargo:rustc-link-lib=static:-bundle={STEM}");
    if variable("CARGO_CFG_TARGET_OS") != "windows" {
        for name in ["dl", "pthread"] {
            println!("cargo:rustc-link-lib=dylib={name}");
        }
    }
}

/// Refuse a build for a platform that `lib` has no folder for.
fn require_platform(lib: &Path, target: &str) {
    if lib.join(target).is_dir() {
        return;
    }
    let there = std::fs::read_dir(lib).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir());
    let mut names: Vec<String> = there.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    stop(&format!(
        "{} has an archive for {}, and this is a build for {target}. Add that one: \
         flashdepot link candle --write --get --target {target}",
        lib.display(),
        if names.is_empty() { "no platform".into() } else { names.join(", ") },
    ));
}

/// Refuse an archive whose machine code runs on no GPU that the rest of candle is compiled for, which is the one of
/// `CUDA_COMPUTE_CAP`, else that of this machine, and all newer ones. Machine code runs on GPUs of its own major version.
fn require_machine_code(folder: &Path, named: &str) {
    let has = machine_code(folder);
    let (oldest, source) = if named.is_empty() {
        let asked = Command::new("nvidia-smi").args(["--query-gpu=compute_cap", "--format=csv,noheader"]).output();
        let text = asked.map(|done| String::from_utf8_lossy(&done.stdout).into_owned()).unwrap_or_default();
        (text.lines().next().unwrap_or_default().to_owned(), "nvidia-smi")
    } else {
        (named.to_owned(), "CUDA_COMPUTE_CAP")
    };
    let major = |capability: &str| {
        let digits: String = capability.chars().filter(char::is_ascii_digit).collect();
        digits.parse::<u32>().ok().map(|number| number / 10)
    };
    if let Some(least) = major(&oldest) {
        if !has.is_empty() && has.iter().filter_map(|one| major(one)).all(|one| one < least) {
            stop(&format!(
                "the archive has machine code only for {}, and candle is compiled for {} and newer, as \
                 {source} says: no GPU runs both. Get one for yours: flashdepot link candle --write --get",
                has.iter().map(|one| format!("sm_{one}")).collect::<Vec<_>>().join(", "),
                oldest.trim()
            ));
        }
    }
}

/// The compute capabilities under `sass` in the manifest next to an archive: `80`.
fn machine_code(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("manifest.json")).unwrap_or_default();
    let list = text.split_once("\"sass\"").and_then(|(_, rest)| rest.split_once('[')).map(|(_, rest)| rest);
    let list = list.and_then(|rest| rest.split(']').next()).unwrap_or_default();
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The SHA-256 that a record of flashdepot's gives an archive.
fn recorded(folder: &Path, name: &str) -> Option<String> {
    let platform = folder.file_name().unwrap_or_default().to_string_lossy();
    let path = folder.join(RECORD);
    let text = std::fs::read_to_string(&path).ok()?;
    println!("cargo:rerun-if-changed={}", path.display());
    let (_, rest) = text.split_once(&format!("\"lib/{platform}/{name}\": \""))?;
    Some(rest.split('"').next()?.to_owned())
}

/// Read an archive to its end, and refuse one that is not what was written or that another candle calls.
fn require(archive: &Path, written: Option<String>) {
    let shown = archive.display();
    let cannot = |error: std::io::Error| -> ! { stop(&format!("{shown} cannot be read: {error}. {AGAIN}")) };
    let mut file = File::open(archive).unwrap_or_else(|error| cannot(error));
    let mut hash = Sha256::new();
    let (mut head, mut chunk) = (Vec::new(), vec![0; 1 << 20]);
    loop {
        let read = file.read(&mut chunk).unwrap_or_else(|error| cannot(error));
        if read == 0 {
            break;
        }
        if head.len() < 1 << 20 {
            head.extend_from_slice(&chunk[..read]);
        }
        if written.is_some() {
            hash.update(&chunk[..read]);
        }
        if head.starts_with(b"version https://git-lfs") {
            stop(&format!("{shown} is a Git LFS pointer, not a library. Fetch it: git lfs install && git lfs pull"));
        }
    }
    let list = arguments_of(&head);
    if let Some(other) = list.as_ref().filter(|list| *list != ARGUMENTS) {
        stop(&format!(
            "{shown} has run_mha with {other} arguments, and this crate wants that of {ARGUMENTS}: it would link, and \
             compute wrong numbers. {AGAIN}"
        ));
    }
    if let Some(digest) = written {
        let (bytes, actual) = (hash.length, hash.finish());
        if actual != digest {
            stop(&format!(
                "{shown} was changed or cut off: its {bytes} bytes have SHA-256 {actual} in place of {digest}. {AGAIN}"
            ));
        }
    }
    if list.is_none() {
        stop(&format!("{shown} has no run_mha for candle: 'flashdepot link candle' did not make it. {AGAIN}"));
    }
}

/// How many arguments the `run_mha` of an archive takes, as the index at its beginning says.
fn arguments_of(head: &[u8]) -> Option<String> {
    let mark = b"fa_candle_arguments_";
    let at = head.windows(mark.len()).position(|bytes| bytes == mark)? + mark.len();
    let digits = head[at..].iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.map(|byte| char::from(*byte)).collect())
}

fn stop(text: &str) -> ! {
    eprintln!("candle, linked by flashdepot: {text}");
    exit(1)
}

/// SHA-256 (FIPS 180-4). Its constants are the first bits of the roots of the first primes, as the standard defines them.
struct Sha256 {
    state: [u32; 8],
    constants: [u32; 64],
    rest: Vec<u8>,
    length: u64,
}

impl Sha256 {
    fn new() -> Self {
        let primes: Vec<u32> = (2..312).filter(|n| (2..*n).all(|divisor| n % divisor != 0)).collect();
        let mut made = Self { state: [0; 8], constants: [0; 64], rest: Vec::new(), length: 0 };
        for (at, prime) in primes.iter().enumerate() {
            made.constants[at] = root_bits(*prime, 3);
            if at < 8 {
                made.state[at] = root_bits(*prime, 2);
            }
        }
        made
    }

    fn update(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        self.rest.extend_from_slice(bytes);
        let whole = self.rest.len() / 64 * 64;
        let taken: Vec<u8> = self.rest.drain(..whole).collect();
        for block in taken.chunks_exact(64) {
            self.block(block);
        }
    }

    fn finish(mut self) -> String {
        let bits = self.length * 8;
        let zeros = (119 - self.rest.len() % 64) % 64;
        self.update(&[0x80]);
        self.update(&vec![0; zeros]);
        self.update(&bits.to_be_bytes());
        self.state.iter().map(|word| format!("{word:08x}")).collect()
    }

    fn block(&mut self, block: &[u8]) {
        let mut words = [0u32; 64];
        let mut at = 0;
        while at < 64 {
            words[at] = if at < 16 {
                let four = at * 4;
                u32::from_be_bytes([block[four], block[four + 1], block[four + 2], block[four + 3]])
            } else {
                let (early, late) = (words[at - 15], words[at - 2]);
                let first = early.rotate_right(7) ^ early.rotate_right(18) ^ (early >> 3);
                let second = late.rotate_right(17) ^ late.rotate_right(19) ^ (late >> 10);
                words[at - 16].wrapping_add(first).wrapping_add(words[at - 7]).wrapping_add(second)
            };
            at += 1;
        }
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = self.state;
        at = 0; // no iterators: a build script is compiled without optimization, and this is most of its time
        while at < 64 {
            let turned = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
            let chosen = (e & f) ^ (!e & g);
            let first =
                h.wrapping_add(turned).wrapping_add(chosen).wrapping_add(self.constants[at]).wrapping_add(words[at]);
            let turned = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
            let most = (a & b) ^ (a & c) ^ (b & c);
            (h, g, f, e, d, c, b, a) =
                (g, f, e, d.wrapping_add(first), c, b, a, first.wrapping_add(turned.wrapping_add(most)));
            at += 1;
        }
        for (word, add) in self.state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
            *word = word.wrapping_add(add);
        }
    }
}

/// The first 32 bits behind the point of a number's root: the largest r with r to the power <= number * 2^(32 * power).
fn root_bits(number: u32, power: u32) -> u32 {
    let mut low = 0u128; // of floor(root * 2^32), which is below 2^37
    for bit in (0..37).rev() {
        let tried = low | 1 << bit;
        if tried.pow(power) <= u128::from(number) << (32 * power) {
            low = tried;
        }
    }
    low as u32
}
