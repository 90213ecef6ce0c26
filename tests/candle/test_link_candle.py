"""`flashdepot link candle`: builds that take its archive, and what it refuses."""

import json
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest

from flashdepot.errors import IncompatibleError, UsageError
from flashdepot.host.probe import this_platform
from flashdepot.link.candle_archive import link_only_manifest
from flashdepot.link.candle_project import crate_notes
from flashdepot.link.candle_versions import (
    CRATE,
    CRATE_V3,
    SERVED_CALLS,
    CandleLine,
    default_cargo_home,
    find_crate,
    known_lines,
    line_of,
    line_of_folder,
    served_table,
)
from flashdepot.link.library import read_library, write_crate
from support.depots import make_manifest
from support.programs import cargo_run, write_program, write_stand_in
from support.tools import assert_ends, flashdepot_here, needs, run_program

needs_cargo = needs("cargo")
ARCHIVE = "libflashattention_candle.a"
UNPACKED = [find_crate(v, default_cargo_home(), line.crate) for line in known_lines() for v in line.versions]
"""Where Cargo unpacked each published version on this machine, in the order of the table."""
REFUSAL = "run_mha (flashdepot): FA_STATUS_UNSUPPORTED: d is 512"


link_candle = partial(flashdepot_here, "link", "candle")


@pytest.mark.parametrize(
    ("version", "arguments"),
    [
        ("0.3.3", 35),
        ("0.8.1", 35),
        ("0.8.2", 37),
        ("0.9.2-alpha.2", 37),
        ("0.10.2", 37),
        ("0.11.0", 45),
        ("0.11.1", 45),
    ],
)
def test_a_published_version_has_a_call_that_is_served(version, arguments) -> None:
    line = line_of(version)
    assert (line.arguments, SERVED_CALLS[line.call]) == (arguments, arguments)


@pytest.mark.parametrize("version", ["0.2.9", "0.8.2-alpha.1", "0.9.3", "0.11.2", "1.0.0"])
def test_a_version_that_was_not_published_is_refused_with_the_table(version, tmp_path) -> None:
    done = link_candle("--candle-version", version, "--build-dir", tmp_path / "b", CARGO_HOME=str(tmp_path))
    assert done.returncode == 2
    for line in served_table():
        assert line in done.stderr
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("crate", "version", "said", "instead"),
    [
        (CRATE, "0.3.2", "its causal mask begins at the first key", "0.3.3"),
        (CRATE_V3, "0.9.2", "its function has the name of candle-flash-attn's", "to 0.11.1 or newer"),
        (CRATE_V3, "0.11.0", "names no stream", "to 0.11.1 or newer"),
    ],
)
def test_a_call_that_no_library_answers_is_refused_with_what_to_do_instead(crate, version, said, instead) -> None:
    with pytest.raises(IncompatibleError, match=said) as refused:
        line_of(version, crate)
    assert instead in refused.value.hint


@pytest.mark.parametrize("line", [line for line in known_lines() if not line.is_served], ids=str)
def test_a_published_version_that_is_not_served_has_its_reason(line) -> None:
    with pytest.raises(IncompatibleError) as refused:
        line_of(line.versions[-1], line.crate)
    assert "not known" not in refused.value.message


def test_sources_that_were_never_published_are_read(tmp_path) -> None:
    crate = write_stand_in(tmp_path / "fork", "0.9.99")
    assert line_of_folder(crate, "0.9.99").arguments == 37
    ffi = crate / "src/ffi.rs"
    ffi.write_text(ffi.read_text().replace("softcap: f32", "softcap: f32, sink: *const f32"))
    with pytest.raises(IncompatibleError, match=r"run_mha takes 38 arguments in an order that is not known"):
        line_of_folder(crate, "0.9.99")


@pytest.mark.skipif(not any(UNPACKED), reason="Cargo has unpacked no candle-flash-attn here")
def test_the_table_says_what_the_published_crates_say() -> None:
    lines = {(line.crate, version): line for line in known_lines() for version in line.versions}
    for (crate, version), folder in zip(lines, UNPACKED, strict=True):
        if folder is not None:
            read = CandleLine.of_sources(crate, version, folder)
            for field in ("function", "arguments", "call", "paged"):
                assert getattr(read, field) == getattr(lines[crate, version], field), (crate, version)


def test_a_candle_version_that_cannot_be_read_is_refused() -> None:
    done = link_candle("--candle-version", "newest", "--build-dir", "b")
    assert_ends(done, 2, "'newest' is not a version of candle-flash-attn")


def test_where_nvcc_is_not_on_path_the_option_that_gives_it_is_named() -> None:
    (note,) = (note for note in crate_notes(make_manifest(), None) if note.startswith("nvcc"))
    assert note.endswith('eval "$(flashdepot link candle --write --toolkit)"')
    assert not [note for note in crate_notes(make_manifest(), "/usr/bin/nvcc") if note.startswith("nvcc")]


@pytest.mark.nvcc
@needs_cargo
def test_a_patched_crate_has_candles_rust_and_a_build_script_that_only_links(quick_library, tmp_path) -> None:
    home = tmp_path / "cargo"
    # A build dependency that is nowhere: the patched crate must not ask for it.
    wanted = '[build-dependencies.cudaforge]\nversion = "0.1.2"\nfeatures = ["x"]\n'
    crate = write_stand_in(home / "registry/src/index-1/candle-flash-attn-0.10.2", "0.10.2", wanted)
    (crate / "build.rs").write_text('fn main() { panic!("the build script of candle, which asks cudaforge, ran"); }\n')
    patched = tmp_path / "patched"

    options = ("--candle-version", "0.10.2", "--build-dir", patched, "--library", quick_library)
    done = link_candle(*options, CARGO_HOME=str(home))

    assert done.returncode == 0, done.stderr
    assert done.stdout == f'[patch.crates-io]\ncandle-flash-attn = {{ path = "{patched}" }}\n'
    assert "candle-kernels runs nvcc" in done.stderr
    assert "80 serves every GPU of this library" in done.stderr
    assert not (patched / "kernels").exists()
    assert (patched / "src/lib.rs").read_bytes() == (crate / "src/lib.rs").read_bytes()
    assert "cudaforge" not in (patched / "Cargo.toml").read_text()
    own = patched / "lib" / str(this_platform())
    assert (own / ARCHIVE).is_file()
    assert (own / "licenses/cutlass/LICENSE").is_file()
    assert "candle-flash-attn 0.10.2" in (patched / "lib/README.md").read_text()
    assert "/lib/*/*.a filter=lfs" in (patched / ".gitattributes").read_text()
    other = shutil.copytree(own, patched / "lib/linux-riscv64")
    record = patched / ".flashdepot-candle-crate.json"
    record.write_text(
        record.read_text().replace('"files": {', '"files": {\n    "lib/linux-riscv64/manifest.json": "0",')
    )
    program = write_program(tmp_path / "program", 'candle-flash-attn = "0.10.2"', done.stdout)
    ran = cargo_run(program)
    assert ran.stderr.startswith(REFUSAL), ran.stderr
    assert link_candle(*options, CARGO_HOME=str(home)).returncode == 0  # a second time, over its own
    assert (other / "manifest.json").is_file()  # next to those of other platforms
    assert '"lib/linux-riscv64/manifest.json": "0"' in record.read_text()


@pytest.mark.nvcc
@needs_cargo
def test_a_program_may_use_candle_and_the_crate_flashattention(quick_library, tmp_path) -> None:
    home = tmp_path / "cargo"
    write_stand_in(home / "registry/src/index-1/candle-flash-attn-0.10.2", "0.10.2")
    options = ("--candle-version", "0.10.2", "--build-dir", tmp_path / "patched", "--library", quick_library)
    patch = link_candle(*options, CARGO_HOME=str(home)).stdout
    write_crate(read_library(quick_library), tmp_path / "sys")
    wanted = 'candle-flash-attn = "0.10.2"\nflashattention-sys = { path = "../sys" }'
    program = write_program(tmp_path / "program", wanted, patch)
    (program / "src/main.rs").write_text(
        "use flashattention_sys::*;\nfn main() {\n"
        "    let mut info = fa_info::default();\n"
        "    assert_eq!(unsafe { fa_build_info(&mut info) }, FA_STATUS_OK);\n"
        "    candle_flash_attn::attention();\n}\n"
    )
    ran = cargo_run(program)
    assert ran.stderr.startswith(REFUSAL), ran.stderr


@pytest.fixture
def lib(quick_library: Path, tmp_path: Path) -> Path:
    """The folder with this machine's archive, for candle 0.9.1."""
    crate, made = write_stand_in(tmp_path / "sources", "0.9.1"), tmp_path / "made"
    words = ("--candle-version", "0.9.1", "--crate", crate, "--build-dir", made, "--library", quick_library, "--json")
    done = link_candle(*words)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["arguments"], document["built"]) == (37, str(made))
    return made / "lib" / str(this_platform())


@pytest.mark.nvcc
def test_the_archive_has_no_symbol_that_another_library_could_meet(lib) -> None:
    said = run_program(["nm", "-g", lib / ARCHIVE])
    symbols = [line.split() for line in said.splitlines() if line and not line.endswith(":")]
    offered = {words[-1] for words in symbols if words[-2] != "U"}
    asked = {words[-1] for words in symbols if words[-2] == "U"}
    assert offered == {"run_mha", "fa_candle_last_status", "fa_candle_last_error", "fa_candle_arguments_37"}
    assert not [name for name in asked if "cuda" in name.lower() or "flash" in name]


@pytest.mark.nvcc
@pytest.mark.parametrize("compiler", [["gcc", "-std=c99", "-x", "c"], ["g++", "-std=c++11", "-x", "c++"]])
def test_programs_can_ask_how_a_call_went(lib, tmp_path, compiler) -> None:
    text = "#include <flash_attention_candle.h>\nint main(void) { return fa_candle_last_status(); }\n"
    command = [*compiler, "-Wall", "-Wextra", "-pedantic", "-Werror", f"-I{lib / 'include'}", "-", "-x", "none"]
    command += [str(lib / ARCHIVE), "-ldl", "-o", "program"]
    run_program(command, input=text, cwd=tmp_path)
    assert subprocess.run([str(tmp_path / "program")], check=False).returncode == 0


@pytest.mark.nvcc
def test_a_program_may_link_the_library_itself_as_well(lib, quick_library, tmp_path) -> None:
    (tmp_path / "both.c").write_text(
        "#include <flash_attention.h>\n#include <stdio.h>\nvoid run_mha(void);\n"
        "int main(void) { fa_info info = {sizeof info}; void (*candle)(void) = run_mha;\n"
        'return !(fa_build_info(&info) == FA_STATUS_OK && candle && printf("%s\\n", info.families->upstream)); }\n'
    )
    static = quick_library / "lib" / "static"
    archives = [lib / ARCHIVE, static / "libflashattention.a"]
    command = ["gcc", f"-I{quick_library / 'include'}", str(tmp_path / "both.c"), *map(str, archives)]
    command += ["-ldl", "-o", str(tmp_path / "both")]
    run_program(command)
    assert run_program([str(tmp_path / "both")]).startswith("2.8")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[package]\nname = "x"\nversion = { workspace = true }\n', "from a workspace"),
        (
            '[package]\nversion = "1.0.0"\n[dependencies]\ncandle = { path = "../candle-core" }\n',
            "in a folder next to it",
        ),
    ],
)
def test_a_manifest_that_only_serves_in_its_place_is_refused(text, said) -> None:
    with pytest.raises(UsageError, match=said):
        link_only_manifest(text)


def test_a_crate_that_cargo_has_not_fetched_is_asked_for(tmp_path) -> None:
    done = link_candle("--candle-version", "0.11.0", "--build-dir", tmp_path / "b", CARGO_HOME=str(tmp_path))
    assert_ends(done, 3, "cargo fetch")


@pytest.mark.parametrize(
    ("text", "version", "said"),
    [
        ('[package]\nname = "serde"\nversion = "1.0.0"\n', "0.9.2", "is the crate serde"),
        ('[package]\nname = "candle-flash-attn"\nversion = "0.9.1"\n', "0.9.2", "is candle-flash-attn 0.9.1, and"),
    ],
)
def test_a_folder_that_is_not_that_crate_is_refused(tmp_path, text, version, said) -> None:
    (tmp_path / "Cargo.toml").write_text(text)
    done = link_candle("--candle-version", version, "--build-dir", tmp_path / "b", "--crate", tmp_path)
    assert_ends(done, 2, said)
