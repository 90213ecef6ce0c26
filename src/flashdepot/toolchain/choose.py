"""Which nvcc and zig build for a request, the digests by which they are in every key, and one small compile before the long ones."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from flashdepot.errors import IncompatibleError, IntegrityError, MissingToolError
from flashdepot.facts import table
from flashdepot.facts.gpus import choose_sass, codes_of, driver_floor
from flashdepot.files.documents import read_record, write_record
from flashdepot.files.folders import sha256_files
from flashdepot.model.codec import digest_of, read
from flashdepot.model.host import CudaToolkit, HostRecord
from flashdepot.model.recipe import Tool, ToolchainId
from flashdepot.model.request import AnyCuda, CudaChoice
from flashdepot.model.target import Architecture, Platform, Version
from flashdepot.toolchain.nvcc import SOURCE_NAME, Nvcc, inspect, known, named_root, tools_of
from flashdepot.toolchain.wheels import pinned_toolkit, provided_version, provides

if TYPE_CHECKING:
    from flashdepot.events import OnFile
    from flashdepot.process.run import Finished
    from flashdepot.toolchain.zig import Zig

OLDEST_CUDA = Version("12.0")
"""The oldest CUDA whose compiler builds the CUTLASS of the supported upstream versions as C++17."""

OLDER_CUDA = Version("12.8")
"""What to compile with for drivers from 525 to 579."""


class Toolchain(msgspec.Struct, frozen=True):
    """An nvcc, the zigs next to it, and a sentence on why this one.

    ``environment`` is what these programs need to find in their environment, next to this process's own. ``named`` says
    that somebody named the toolkit's folder. ``zig`` compiles the host side and links, ``preprocessing`` is the one that
    nvcc preprocesses with: the same, or an older one.
    """

    nvcc: Nvcc
    zig: Zig
    preprocessing: Zig
    reason: str
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    named: bool = False

    @property
    def host_side(self) -> str:
        """What compiles the host side, with its version."""
        return f"zig {self.zig.version}"

    def whole_environment(self) -> dict[str, str]:
        """The environment to run these programs in."""
        return {**os.environ, **self.environment}


class Foreseen(msgspec.Struct, frozen=True):
    """Which nvcc would be taken, its version, and a sentence on why.

    It is a ``toolkit`` of the machine, or that of a ``release`` of NVIDIA's archives; with neither, the one from PyPI.
    ``named`` says that somebody named the toolkit's folder.
    """

    toolkit: CudaToolkit | None
    reason: str
    cuda: Version
    release: str = ""
    named: bool = False


def choose_toolchain(
    option: CudaChoice,
    host: HostRecord,
    wanted: Sequence[Architecture],
    *,
    driver: Version | None,
    folder: Path,
    work: Path,
    on_file: OnFile,
) -> Toolchain:
    """Find or provide the nvcc that ``--cuda`` asks for, and what compiles the host side.

    That is zig, for every target. ``auto`` is the nvcc from PyPI, or where the driver is too old for that, a toolkit of the
    machine or CUDA 12.8 of NVIDIA's archives; a version is the one from PyPI if it is that, else a toolkit of the machine, else that
    release of NVIDIA's archives. A folder is taken as it is.

    :param host: the machine that compiles. Its toolkits count where :func:`asks_machine` says so.
    :param driver: the driver that the result must run with; ``None`` when there is none.
    :param folder: where what is provided is kept.
    :param work: a folder for what zig writes while it works.
    :raises MissingToolError: when no nvcc can do it, with why each that was found cannot.
    :raises IncompatibleError: when the driver cannot run what the only usable nvcc builds.
    """
    foreseen = foresee_toolchain(option, host, wanted, driver=driver, host_side=True)
    return provide_toolchain(foreseen, host.platform, folder=folder, work=work, on_file=on_file)


def provide_toolchain(
    foreseen: Foreseen, platform: Platform, *, folder: Path, work: Path, on_file: OnFile
) -> Toolchain:
    """What was foreseen, fetched where it must be; the parameters are those of :func:`choose_toolchain`."""
    from flashdepot.toolchain.zig import compiling_version, preprocessing_version, provide_zig  # noqa: PLC0415  (foreseeing a toolchain needs none of it)

    root = _provided(foreseen, platform, folder, on_file)
    nvcc = known(root, foreseen.cuda) if platform.system == "windows" else inspect(root)
    zig = front = provide_zig(platform, folder, on_file, compiling_version())
    if (version := preprocessing_version(nvcc.version)) != zig.version:
        front = provide_zig(platform, folder, on_file, version)
    return Toolchain(nvcc, zig, front, foreseen.reason, zig.environment(work), foreseen.named)


def _provided(foreseen: Foreseen, platform: Platform, folder: Path, on_file: OnFile) -> Path:
    """The root of a toolkit that was foreseen, fetched where it must be."""
    if foreseen.toolkit:
        return Path(foreseen.toolkit.root)
    if foreseen.release:
        from flashdepot.toolchain.archives import provide_release  # noqa: PLC0415  (most take the nvcc from PyPI)

        return provide_release(foreseen.release, platform, folder, on_file)
    return pinned_toolkit(platform).provide(folder, on_file)


def require_compiling(platform: Platform) -> None:
    """:raises MissingToolError: on a system on which nvcc does not run."""
    if platform.system == "windows":
        raise MissingToolError(
            "No device code is compiled on Windows: nvcc takes only Microsoft's compiler there.",
            # A login shell finds what pipx and uv install.
            hint='In WSL, with flashdepot there and the other options of this command: wsl bash -lc "flashdepot get --target '
            'windows-x86_64 --out flashattention". What an index has needs no nvcc, nor what a remote has that you trust: '
            "flashdepot keys trust NAME:BASE64",
        )


def asks_machine(option: CudaChoice, platform: Platform, driver: Version | None) -> bool:
    """Whether the toolkits and compilers of the machine that compiles matter."""
    if isinstance(option, Version):
        return not _same_release(provided_version(), option)
    return not isinstance(option, Path) and not _driver_serves_ours(platform, driver)


def foresee_toolchain(
    option: CudaChoice,
    host: HostRecord,
    wanted: Sequence[Architecture],
    *,
    driver: Version | None,
    host_side: bool = False,
) -> Foreseen:
    """What :func:`choose_toolchain` would take, and raises what that would raise.

    It reads the record only, and asks the nvcc of a folder that was named.

    :param host_side: on Windows, where nvcc does not run, only the host side is compiled: device code is a remote's.
    """
    if host.platform.system == "windows":
        if not host_side or option not in (AnyCuda.AUTO, Version("13.0"), provided_version()):
            require_compiling(host.platform)
        return Foreseen(None, "device code from remotes", provided_version())
    if isinstance(option, Path):
        named = inspect(named_root(option)).toolkit("--cuda")
        if problem := _unfit(named, host, wanted, driver=None):
            raise MissingToolError(f"The CUDA toolkit in {named.root} {problem}.")
        return Foreseen(named, f"asked for: --cuda {option}", named.version, named=True)
    version = option if isinstance(option, Version) else None
    rejected: list[str] = []
    if asks_machine(option, host.platform, driver):
        toolkit, rejected = _first_fit(
            [t for t in host.toolkits if version is None or _same_release(t.version, version)], host, wanted, driver
        )
        if toolkit is not None:
            return Foreseen(toolkit, f"the host's own, found by {toolkit.found_by}", toolkit.version)
    asked = version or (None if _driver_serves_ours(host.platform, driver) else OLDER_CUDA)
    if asked is not None and (label := _release(asked, host.platform)):
        release = Version(label)
        problem = _unfit(CudaToolkit("", release, "NVIDIA"), host, wanted, driver=driver)
        if not problem:
            return Foreseen(None, f"CUDA {label} from NVIDIA's archives", release, label)
        if version is not None:
            raise MissingToolError(f"nvcc of CUDA {label} {problem}.")
        rejected.append(f"nvcc of CUDA {label} {problem}")
    _require_providable(version, host, driver, rejected)
    if problem := _unfit(CudaToolkit("", provided_version(), "PyPI"), host, wanted, driver=driver):
        raise MissingToolError(f"The provided nvcc {provided_version()} {problem}.")
    why = f" ({'; '.join(rejected)})" if rejected else ""
    return Foreseen(None, f"provided from PyPI{why}", provided_version())


def _release(version: Version, platform: Platform) -> str | None:
    """The release of NVIDIA's archives that a version means where PyPI does not have it."""
    if _same_release(provided_version(), version):
        return None
    from flashdepot.toolchain.archives import release_of  # noqa: PLC0415

    return release_of(version, platform)


def _driver_serves_ours(platform: Platform, driver: Version | None) -> bool:
    """Whether a driver runs what the provided nvcc builds; the table of drivers has Linux and Windows only."""
    if driver is None or platform.system not in {"linux", "windows"}:
        return True
    return driver.reaches(driver_floor(provided_version().major, platform.system, compressed=True))


def _first_fit(
    toolkits: Iterable[CudaToolkit], host: HostRecord, wanted: Sequence[Architecture], driver: Version | None
) -> tuple[CudaToolkit | None, list[str]]:
    """The first toolkit that can do the work, and why each before it cannot."""
    rejected: list[str] = []
    for toolkit in toolkits:
        problem = _unfit(toolkit, host, wanted, driver=driver)
        if not problem:
            return toolkit, rejected
        rejected.append(f"nvcc {toolkit.version} in {toolkit.root} {problem}")
    return None, rejected


def _require_providable(
    version: Version | None, host: HostRecord, driver: Version | None, rejected: Sequence[str]
) -> None:
    ours = provided_version()
    if version is not None and not _same_release(ours, version):
        found = (
            "; ".join(rejected)
            or f"this machine has {', '.join(str(t.version) for t in host.toolkits) or 'no CUDA toolkit'}"
        )
        raise MissingToolError(
            f"There is no CUDA {version} here that can be used: {found}.",
            hint=f"flashdepot fetches {ours}, as --cuda auto does, and {', '.join(table('cuda_archives')['newest'])}. "
            "Or name a toolkit's folder: --cuda DIR",
        )
    if driver is not None and not _driver_serves_ours(host.platform, driver):
        floor = driver_floor(ours.major, host.platform.system, compressed=True)
        found = "".join(f" {reason}." for reason in rejected)
        oldest = driver_floor(OLDEST_CUDA.major, "linux", compressed=False)
        too_old = f"Update the driver: no nvcc that flashdepot can use builds for one older than {oldest}"
        older = "Update the driver, or name the folder of a toolkit of CUDA 12: --cuda DIR"
        raise IncompatibleError(
            f"The NVIDIA driver is {driver}; what nvcc {ours} builds needs {floor}.{found}",
            hint=older if driver.reaches(oldest) else too_old,
        )
    if not provides(host.platform):
        raise MissingToolError(
            f"No usable nvcc was found, and PyPI has none for {host.platform}.",
            hint="Install a CUDA toolkit, 12.0 or newer, and name its folder: --cuda DIR"
            if host.platform.system == "linux"
            else "Build on a Linux machine; it needs no GPU: flashdepot get --target linux-x86_64",
        )


def _unfit(toolkit: CudaToolkit, host: HostRecord, wanted: Sequence[Architecture], *, driver: Version | None) -> str:
    """Why this nvcc cannot do the work, as a sentence continues after its name, or an empty string.

    What a record does not have comes from the table of CUDA releases.
    """
    version, codes = toolkit.version, toolkit.codes
    if version < OLDEST_CUDA:
        return f"is older than CUDA {OLDEST_CUDA}"
    if toolkit.missing:
        return f"lacks {toolkit.missing[0]}"
    if host.platform.system not in {"linux", "windows"}:
        return f"is on {host.platform}, where NVIDIA GPUs have no driver"
    try:
        choose_sass(wanted, version, codes_of(version) if codes is None else codes)
        floor = driver_floor(version.major, host.platform.system, compressed=False)
    except (MissingToolError, IncompatibleError) as error:
        reason = f"{error.message} {error.hint}".rstrip(" .")
        itself = f"nvcc {version} "
        return reason.removeprefix(itself) if reason.startswith(itself) else f"does not serve: {reason}"
    if driver is not None and not driver.reaches(floor):
        return f"builds what needs driver {floor}, and this machine's is {driver}"
    return ""


def _same_release(found: Version, asked: Version) -> bool:
    length = len(asked.text.split("."))
    return found.text.split(".")[:length] == asked.text.split(".")


def identify_toolchain(toolchain: Toolchain) -> ToolchainId:
    """Versions and SHA-256 of nvcc's programs and of zig, which links as well, read from their files."""
    nvcc, tools = toolchain.nvcc, []
    paths = tools_of(nvcc.root)
    for path, digest in zip(paths, sha256_files(paths), strict=True):
        if digest is None:
            raise MissingToolError(
                f"{path} cannot be read, and what it builds is known by its bytes.",
                hint="Install it again, or make it readable.",
            )
        tools.append(Tool(path.name.removesuffix(".exe"), str(nvcc.version), digest))
    return ToolchainId(nvcc.version, (*tools, toolchain.zig.tool), toolchain.named)


_PROBE = Path(__file__).with_name("probe.cu")


class _Answer(msgspec.Struct, frozen=True):
    source_name: bool


def takes_source_name(toolchain: Toolchain, identity: ToolchainId, folder: Path, host_flags: Sequence[str]) -> bool:
    """Compile a small CUDA source, and say whether nvcc takes :data:`SOURCE_NAME`.

    The answer for these very programs is kept in ``folder``.

    :param host_flags: what nvcc is given for the host compiler's sake.
    :raises MissingToolError: when it compiles nothing.
    """
    import tempfile  # noqa: PLC0415  (a choice compiles nothing)

    from flashdepot.process.run import first_error  # noqa: PLC0415

    if os.name == "nt":  # nvcc does not run there, and the pinned one takes them
        return True
    kept = folder / f"probe-{digest_of([_PROBE.read_text(), *SOURCE_NAME, identity.to_json()])[:16]}.json"
    with contextlib.suppress(OSError, IntegrityError, ValueError):  # without a record, or with a damaged one: try again
        return read(read_record(kept), _Answer).source_name
    with tempfile.TemporaryDirectory(prefix="flashdepot-probe-") as work:
        source_name = _compile(toolchain, Path(work), host_flags, SOURCE_NAME).status == 0
        if not source_name and (done := _compile(toolchain, Path(work), host_flags, ())).status != 0:
            nvcc, zig = toolchain.nvcc, toolchain.preprocessing
            raise MissingToolError(
                f"nvcc {nvcc.version} ({nvcc.root}) with zig {zig.version} ({zig.root}) cannot compile a twenty-line "
                f"program:\n{first_error(done.output)}",
                hint="Try the nvcc that flashdepot provides: --cuda 13.0",
            )
    write_record(kept, {"source_name": source_name})
    return source_name


def _compile(toolchain: Toolchain, work: Path, host_flags: Sequence[str], extra: Sequence[str]) -> Finished:
    from flashdepot.process.run import run  # noqa: PLC0415  (a choice compiles nothing)

    (work / "probe.cu").write_bytes(_PROBE.read_bytes())
    compiler = [str(toolchain.nvcc.program), "-ccbin", str(toolchain.preprocessing.preprocessor), "-std=c++17"]
    command = [*compiler, *host_flags, *(word.format(name="probe.cu") for word in extra)]
    command += ["-fatbin", "probe.cu", "-o", "probe.o"]
    return run(command, cwd=work, env=toolchain.whole_environment(), timeout=300)
