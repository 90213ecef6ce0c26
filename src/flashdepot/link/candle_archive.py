"""The archive that candle links: ``run_mha`` of one argument list over a library's own objects."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

import msgspec

from flashdepot.binary.objects import (
    defined_names,
    for_every_linker,
    privately,
    read_members,
    with_private_names,
    with_private_runtime,
)
from flashdepot.binary.window import open_window
from flashdepot.depot.libraries import manifest_text
from flashdepot.errors import CompileError, IntegrityError, MissingToolError, UsageError
from flashdepot.files.disk import sha256_file
from flashdepot.files.documents import parse_toml
from flashdepot.files.output_folder import OutputFolder
from flashdepot.files.user_files import OutputFile, read_regular
from flashdepot.host.probe import this_platform
from flashdepot.link.candle_versions import (
    KERNELS_HEADER,
    NEWEST_LIST,
    RUN_MHA,
    CandleKernel,
    table_header,
)
from flashdepot.link.library import LinkableLibrary, LinkKind
from flashdepot.model.manifest import MANIFEST_NAME
from flashdepot.model.selection import Feature
from flashdepot.process.run import first_error, run
from flashdepot.toolchain.targets import TargetSpec, target_of
from flashdepot.toolchain.zig import Zig

ZigSource = Callable[[], Zig]
"""Gives zig, which it may have to fetch."""

_FLAGS = ("-std=c99", "-O2", "-DFA_STATIC", "-ffunction-sections", "-fno-stack-protector", "-fno-sanitize=all")


def _make_by_zig(
    zig: Zig,
    target: TargetSpec,
    library: LinkableLibrary,
    static: Path,
    sources: Sequence[Path],
    work: Path,
    *flags: str,
) -> Path:
    """An archive of a library's objects and of C sources. Every name but those in EXPORTED is its own.

    :param work: a new folder for what is made on the way; ``flags``: more options for the compiler.
    """
    work.mkdir()
    program, environment = str(zig.program), {**os.environ, **zig.environment(work)}
    parts = []
    for source in sources:
        compiled = work / f"{source.stem}{target.system.object_suffix}"
        words = (*_FLAGS, *flags, f"-I{library.include}", "-c", str(source), "-o", str(compiled))
        run_tool([program, "cc", "-target", target.zig, *words], environment)
        parts.append((compiled.name, with_private_runtime(compiled.read_bytes(), compiled.name)))
    with open_window(static) as window:
        members = [(m.name, m.window.take(0, m.window.size, "member")) for m in read_members(window)]
    parts += [(name, for_every_linker(data, name)) for name, data in members]
    defined = frozenset[str]().union(*(defined_names(data, name) for name, data in parts))
    private = {name for name in defined if not any(fnmatchcase(name, pattern) for pattern in EXPORTED)}
    objects = []
    for index, (name, data) in enumerate(parts):
        objects.append(work / f"{index}-{Path(name).name}")
        objects[-1].write_bytes(with_private_names(data, name, private))
    made = work / "made.a"
    run_tool([program, "ar", "rcsD", str(made), *map(str, objects)], environment)
    return made


SOURCES = Path(__file__).parent / "candle_source"
"""Our C sources. They are not next to those of the library, whose digest is part of every recipe."""

STEM = "flashattention_candle"
"""What the archive is called; the library's own is not, so that a program may link the crate flashattention as well."""
HEADER = "flash_attention_candle.h"
_LICENCES = "share/licenses/"

EXPORTED = ("run_mha", "run_mha_v3", "fa_candle_*")
"""What the archive offers: candle's functions, and ours that say how it went. Not the C API under, so that a program
may link the library itself as well."""


class AddedKernels(msgspec.Struct, frozen=True):
    """Kernels of candle's own, what they can do, and their objects with those of candle's code that launches them."""

    kernels: tuple[CandleKernel, ...]
    features: frozenset[Feature]
    objects: tuple[Path, ...]


def sources_of(arguments: int, *, with_candles: bool = False) -> tuple[str, ...]:
    """The files that make ``run_mha`` with 35, 37 or 45 arguments, with kernels of candle's own next to or without.

    ``run_mha_v3`` of candle-flash-attn-v3 is in the archive of the newest list: a program may use both crates.
    """
    others = [*["mha_candle.c"] * with_candles, *["run_mha_v3.c"] * (arguments == NEWEST_LIST)]
    return ("mha_arguments.c", "mha_run.c", *others, f"run_mha_{arguments}.c")


@contextlib.contextmanager
def made_archives(
    library: LinkableLibrary,
    arguments: int,
    zig: ZigSource,
    under: str = "",
    added: AddedKernels | None = None,
) -> Iterator[tuple[OutputFile, ...]]:
    """Put ``run_mha`` of so many arguments and the library's kernels into one archive.

    Kernels and what launches them are its own, whatever else a program links: candle's FlashAttention-3 archive, any
    CUDA release's ``libcudart``, torch. For the Linux and the CPU of this machine its own compiler and linker make one
    object in which every other symbol is local; for another target zig does it, and the other symbols get names of
    their own. Gives the archive under each name that a build may look for; its bytes are there until the block ends.

    :param under: the folder to write them into, with a ``/`` at its end.
    :param added: kernels of candle's own for the calls that the library's cannot do; for this machine's Linux and CPU.
    """
    platform, system = library.manifest.platform, library.manifest.platform.system
    places = [library.folder(LinkKind.STATIC) / name for name in archive_names(system, "flashattention")]
    static = next((path for path in places if path.is_file()), None)
    if static is None:
        raise IntegrityError(
            f"{places[0]} is missing; the archive for candle is made of it.",
            hint="Get the library again: flashdepot get",
        )
    names = archive_names(system)
    with TemporaryDirectory(prefix="flashdepot-candle-") as temporary:
        work = Path(temporary)
        if system == "linux" and platform == this_platform():
            made = {names[0]: _make_linux(library, static, arguments, work, added)}
        else:
            sources = [SOURCES / source for source in sources_of(arguments)]
            provided, target, made = zig(), target_of(platform), {}
            for name in names:
                flags = ["-DFLASHDEPOT_MSVC"] * name.endswith(".lib")
                made[name] = _make_by_zig(provided, target, library, static, sources, work / name, *flags)
        yield tuple(OutputFile(f"{under}{name}", sha256_file(path), partial(Path, path)) for name, path in made.items())


def archive_names(system: str, stem: str = STEM) -> tuple[str, ...]:
    """What the archive is called. rustc for MSVC takes ``NAME.lib``, every other ``libNAME.a``."""
    return (f"lib{stem}.a", f"{stem}.lib") if system == "windows" else (f"lib{stem}.a",)


def companions(library: LinkableLibrary, under: str) -> tuple[OutputFile, ...]:
    """What goes where a library's code goes: manifest and licence texts, and the header of the functions added here."""
    licences = [file for file in library.manifest.files if file.path.startswith(_LICENCES) and not file.link]
    return (
        OutputFile.of(f"{under}{MANIFEST_NAME}", manifest_text(library.manifest)),
        OutputFile.of(f"{under}include/{HEADER}", (SOURCES / HEADER).read_bytes()),
        *(
            OutputFile(f"{under}{file.path.removeprefix('share/')}", file.digest, partial(library.source, file))
            for file in licences
        ),
    )


def _make_linux(library: LinkableLibrary, static: Path, arguments: int, work: Path, added: AddedKernels | None) -> Path:
    compiler = required_tool(os.environ.get("CC") or "cc", "gcc")
    linker, localizer, archiver = (required_tool(name, "binutils") for name in ("ld", "objcopy", "ar"))
    sources = sources_of(arguments, with_candles=added is not None)
    objects = [str(work / f"{Path(source).stem}.o") for source in sources]
    flags = ["-std=c99", "-O2", "-fPIC", "-fvisibility=hidden", f"-I{library.include}"]
    if added is not None:
        (work / KERNELS_HEADER).write_text(table_header(added.kernels, added.features))
        flags += ["-DFLASHDEPOT_CANDLE_KERNELS", f"-I{work}"]
    for source, compiled in zip(sources, objects, strict=True):
        run_tool([compiler, *flags, "-c", str(SOURCES / source), "-o", compiled])
    joined, local, made = (str(work / name) for name in ("joined.o", "flashattention.o", "made.a"))
    # Section groups would be merged by name with those of other objects, local or not: --force-group-allocation.
    whole = ["--whole-archive", str(static), "--no-whole-archive"]
    candles = [] if added is None else [_one_object(added, work, linker, localizer)]
    called = [*map(str, privately([Path(name) for name in objects], work / "private")), *candles]
    run_tool([linker, "-r", "--force-group-allocation", "-o", joined, *called, *whole])
    keep = [f"--keep-global-symbol={name}" for name in EXPORTED]
    run_tool([localizer, "--wildcard", *keep, joined, local])
    run_tool([archiver, "rcsD", made, local])
    return Path(made)


def _one_object(added: AddedKernels, work: Path, linker: str, localizer: str) -> str:
    """candle's own objects as one that defines only its ``run_mha``.

    They were compiled with another CUTLASS than the library's, and functions of both have the same names. What candle's
    code would launch of kernels that were not compiled is left undefined and weak: it is never called.
    """
    joined, made = str(work / "candle-joined.o"), str(work / "candle.o")
    objects = [str(path) for path in privately(added.objects, work / "candle-private")]
    run_tool([linker, "-r", "--force-group-allocation", "-o", joined, *objects])
    weak = ["--weaken-symbol=*run_mha_fwd_*"]
    run_tool([localizer, "--wildcard", f"--keep-global-symbol={RUN_MHA}", *weak, joined, made])
    return made


def required_tool(name: str, package: str) -> str:
    """Where a program is; :raises MissingToolError: when it is not installed, with the package that has it."""
    found = shutil.which(name)
    if found is None:
        raise MissingToolError(f"'{name}' was not found; linking candle needs it.", hint=f"Install it: {package}")
    return found


def run_tool(command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Run a compiler or linker; :raises CompileError: when it refuses, with its first error."""
    done = run(command, env=environment, timeout=600)
    if done.status != 0:
        raise CompileError(
            f"The files that link candle cannot be made: {first_error(done.output)}", hint=" ".join(command)
        )


_SIGNATURE = "# Written by 'flashdepot link candle'; sources of candle, build script of flashdepot.\n"
CRATE_RECORD = ".flashdepot-candle-crate.json"
"""Which files flashdepot wrote in a crate, with their digests."""
_ATTRIBUTES = """\
# The archives go to Git LFS, and a checkout changes no line endings.
* -text
/lib/*/*.a filter=lfs diff=lfs merge=lfs -text
/lib/*/*.lib filter=lfs diff=lfs merge=lfs -text
"""
_LEFT_OUT = frozenset({"Cargo.toml", "Cargo.toml.orig", "build.rs", "kernels", "hkernel", "cutlass", "target", "lib"})


def write_candle_crate(
    library: LinkableLibrary,
    arguments: int,
    crate: Path,
    folder: Path,
    zig: ZigSource,
    added: AddedKernels | None = None,
    git: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """Write the crate into ``folder``, which is new, empty or such a crate, and return it, absolute.

    Each platform has a folder of its own in ``lib``; those of other platforms stay as they are.

    :param crate: the sources of candle-flash-attn of the version that is replaced.
    :param added: kernels of candle's own that go into the archive too; ``git``: see :func:`link_only_manifest`.
    """
    own = f"lib/{library.manifest.platform}/"
    written = OutputFolder(folder, "crate", CRATE_RECORD, "--build-dir DIR", own=own)
    cargo_toml = link_only_manifest(read_regular(crate / "Cargo.toml").decode("utf-8"), git)
    package = parse_toml(cargo_toml, "Cargo.toml")["package"]
    texts = {
        "Cargo.toml": cargo_toml.encode(),
        "build.rs": linking_build_script(arguments).encode(),
        ".gitattributes": _ATTRIBUTES.encode(),
        "lib/README.md": (SOURCES / "lib_README.md").read_text("utf-8").format(**package).encode(),
    }
    copied = {path.relative_to(crate).as_posix(): read_regular(path) for path in _sources(crate)}
    with made_archives(library, arguments, zig, own, added) as archives:
        files = [OutputFile.of(place, data) for place, data in {**texts, **copied}.items()]
        return written.write((*files, *archives, *companions(library, own)))


def linking_build_script(arguments: int) -> str:
    """A ``build.rs`` that reads the archive of the target, and gives it to cargo if it is the one that was written."""
    return (SOURCES / "build.rs").read_text("utf-8").replace("@ARGUMENTS@", str(arguments))


def link_only_manifest(cargo_toml: str, git: Mapping[str, str] = MappingProxyType({})) -> str:
    """A ``Cargo.toml`` without what only a compiling build script and tests need, and whose folder can be anywhere.

    :param git: the source that a dependency in a folder next to it has then, as ``Cargo.toml`` says it.
    """
    import tomlkit  # noqa: PLC0415  (only a crate that is written needs it)

    parse_toml(cargo_toml, "Cargo.toml")
    document = tomlkit.parse(cargo_toml)
    elsewhere = "Name with --crate the folder into which Cargo unpacked it from a registry: ~/.cargo/registry/src/*"
    package = document.get("package", {})
    crate = package.get("name")
    if not isinstance(package.get("version"), str):
        what = f"The Cargo.toml of {crate} takes its version from a workspace, so its folder cannot be used on its own."
        raise UsageError(what, hint=elsewhere)
    for tables in (document, *document.get("target", {}).values()):
        for left_out in ("build-dependencies", "dev-dependencies"):
            tables.pop(left_out, None)
    for name, dependency in document.get("dependencies", {}).items():
        if isinstance(dependency, dict) and "path" in dependency:
            if not git:
                raise UsageError(f"{name} of {crate} is in a folder next to it, {dependency['path']}.", hint=elsewhere)
            del dependency["path"]
            dependency.update(git)
    return _SIGNATURE + tomlkit.dumps(document)


def _sources(crate: Path) -> Iterator[Path]:
    """The files to copy: no kernels, nothing hidden, and nothing through a link."""
    for place, folders, files in os.walk(crate):
        top = Path(place) == crate
        hidden = {name for name in (*folders, *files) if name.startswith(".") or (top and name in _LEFT_OUT)}
        folders[:] = sorted(set(folders) - hidden)
        yield from (path for name in sorted(set(files) - hidden) if not (path := Path(place, name)).is_symlink())
