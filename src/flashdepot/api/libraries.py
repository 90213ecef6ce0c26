"""Libraries: get one, build one, make a wheel of one, put one into a project's tree, find the one to link."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from flashdepot.api.acquire import ANY, Context, LibraryPlan, acquire, plan_need, wheel_of
from flashdepot.errors import IncompatibleError, UsageError
from flashdepot.host import runtime_facts
from flashdepot.model.request import LibraryRequest
from flashdepot.resolve.library import LibraryResult, most_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from flashdepot.api.acquire import How
    from flashdepot.build.library import Options
    from flashdepot.link.library import LinkableLibrary
    from flashdepot.link.vendor_folder import Vendored
    from flashdepot.toolchain.zig import Zig
    from flashdepot.wheel.builder import Wheel


def get(request: LibraryRequest = ANY, *, out: Path | None = None, **how: Unpack[How]) -> LibraryResult:
    """A library that serves a host: a stored one, else a remote's, else one that is built now from the published source.

    Its other keywords are the fields of :class:`flashdepot.api.acquire.Context`.

    :param out: copy the library into this folder, which can be moved.
    :raises UsageError: for an upstream or a selection that is not known.
    :raises IncompatibleError: for a GPU that the kernels cannot run on, or a host that cannot use what is built here.
    :raises MissingToolError: when the machine lacks a tool or space.
    :raises ConsentError: when compiling takes longer than two minutes, and neither ``limits`` nor ``events`` says yes.
    :raises CompileError: when a compiler refuses; its hint says what its log shows.
    :raises NetworkError: when source or toolchain must be fetched and cannot be.
    """
    return _got(request, out, Context(**how))


def build(
    request: LibraryRequest = ANY, *, out: Path | None = None, options: Options | None = None, **how: Unpack[How]
) -> LibraryResult:
    """The library of exactly the recipe that this machine's toolchain gives a request, whatever else the depot has.

    Units that were compiled before are reused; a build that was stopped continues where it was. Parameters and errors
    are those of :func:`get`.
    """
    return _got(request, out, Context(**how), exactly=True, options=options)


def pull(request: LibraryRequest = ANY, **how: Unpack[How]) -> LibraryResult:
    """A library that serves a host, from the depot or a remote of the depot; nothing is ever compiled.

    :raises IncompatibleError: when neither has one.
    """
    return _got(request, None, Context(**how), may_build=False)


def _got(request: LibraryRequest, out: Path | None, context: Context, **how: Any) -> LibraryResult:
    if out is not None:
        from flashdepot.depot.export import require_exportable  # noqa: PLC0415

        require_exportable(out)
    started = time.monotonic()
    found = acquire(context.need(request), context, **how)
    path = context.depot.export(found.manifest, out) if out is not None else found.path
    return replace(found, path=path, seconds=time.monotonic() - started)


class WheelResult(msgspec.Struct, frozen=True):
    """A wheel that was written, and the library in it."""

    wheel: Wheel
    library: LibraryResult

    @property
    def path(self) -> Path:
        """The wheel's file."""
        return self.wheel.path

    def __repr__(self) -> str:
        return f"<WheelResult {self.path.name}, {self.library.status}>"


def wheel(request: LibraryRequest = ANY, *, out: Path, **how: Unpack[How]) -> WheelResult:
    """A Python wheel in the folder ``out``, for every torch and every Python, and the library in it.

    Parameters and errors are otherwise those of :func:`get`, which gets the library.
    """
    from flashdepot.files.user_files import require_folder  # noqa: PLC0415

    require_folder(out, "--out DIR")
    context = Context(**how)
    need = context.need(request, for_wheel=True)
    library = acquire(need, context)
    return WheelResult(wheel_of(library, need.sources, context.depot, out), library)


def vendor(
    folder: Path, request: LibraryRequest = ANY, *, library: Path | None = None, **how: Unpack[How]
) -> tuple[Vendored, LinkableLibrary]:
    """Put a library into a project's own tree, into a folder of its target, and list it there.

    :param library: the folder of the library to put there; without it, what :func:`get` gets for the request.
    :raises UsageError: when something of the user's is in the way, or both a library and a request are given.
    :raises IntegrityError: when the index there is damaged, or the library's bytes are not what its manifest says.
    """
    from flashdepot.files.user_files import require_folder  # noqa: PLC0415
    from flashdepot.link.library import LinkableLibrary, read_library  # noqa: PLC0415
    from flashdepot.link.vendor_folder import vendor as write  # noqa: PLC0415

    _require_one(library, request)
    if library is not None:
        found = read_library(library)
        return write(found.manifest, found.source, folder), found
    require_folder(folder, "flashdepot vendor DIR")
    got = get(request, **how)
    written = write(got.manifest, how["depot"].libraries.source(got.manifest), folder)
    return written, LinkableLibrary(got.path, got.manifest)


def link(
    request: LibraryRequest = ANY,
    *,
    library: Path | None = None,
    may_build: bool = False,
    otherwise: LibraryRequest = ANY,
    **how: Unpack[How],
) -> LinkableLibrary:
    """The library that a program is to be linked with: a folder's, else the stored one that :func:`get` would take.

    When the request names no selection and no stored library has all kernels, the one that has most of them is taken,
    and ``events`` is given what it has.

    :param library: a folder that :func:`get` or :func:`vendor` wrote. Of a request it takes only the target, which chooses
        among the libraries of a project's tree.
    :param may_build: build it when the depot has none that serves.
    :param otherwise: what the program calls, where the request names no selection; ``full`` without it.
    :raises UsageError: for a folder that holds no library, or when both a folder and a request for more are given.
    :raises IncompatibleError: when nothing serves and nothing may be built.
    """
    from flashdepot.link.library import LinkableLibrary, read_library  # noqa: PLC0415
    from flashdepot.link.vendor_folder import INDEX_NAME  # noqa: PLC0415

    context = Context(**how)
    depot, events = context.depot, context.events
    _require_one(library, replace(request, target=None))
    if library is not None and not (library / INDEX_NAME).is_file():
        named = read_library(library)
        if request.target not in {None, named.manifest.platform}:
            raise IncompatibleError(
                f"The library in {named.root} is for {named.manifest.platform}, and --target says {request.target}.",
                hint=f"Get one for it: flashdepot get --target {request.target} --out DIR",
            )
        return named
    if library is not None:
        from flashdepot.link.vendor_check import choose_vendored  # noqa: PLC0415

        return choose_vendored(library, context.host or runtime_facts(), depot, request.target)
    asked = request if request.names_selection else request.or_else(otherwise)
    if may_build:
        got = get(asked, **how)
        return LinkableLibrary(got.path, got.manifest)
    need = context.need(asked)
    choice = depot.find(need.request)
    found = choice.taken
    if found is None and not request.names_selection and (found := most_of(need, depot)) is not None:
        events.note(f"The stored library has only {found.selection}. For all kernels: flashdepot get")
    if found is None:
        near = [f"The nearest one, {m.recipe_key[:12]}, {'; '.join(reasons)}." for m, reasons in choice.rejected[:1]]
        raise IncompatibleError(f"The depot {depot.root} has no library for this. {(near or ['It is empty.'])[0]}")
    path = depot.libraries.materialise(found)
    events.note(f"Linking {path}")
    return LinkableLibrary(path, found)


def plan_library(
    request: LibraryRequest = ANY, *, exactly: bool = False, options: Options | None = None, **how: Unpack[How]
) -> LibraryPlan:
    """What :func:`get` would do, or with ``exactly`` what :func:`build` would; nothing is fetched or compiled."""
    context = Context(**how)
    return plan_need(context.need(request), context, exactly=exactly, options=options)


def _require_one(library: Path | None, request: LibraryRequest) -> None:
    if library is not None and request != ANY:
        raise UsageError(
            "--library names a folder, and the options of a selection choose from the depot: both were given.",
            hint="Leave one of them out.",
        )


def zig(context: Context) -> Zig:
    """The zig that compiles host code for every target, from the depot; it is fetched first where it is not there.

    :raises IncompatibleError: on a machine that no zig is pinned for.
    :raises NetworkError: when it must be fetched and cannot be.
    """
    from flashdepot.toolchain.zig import compiling_version, provide_zig  # noqa: PLC0415

    with context.depot.workspace(), context.events.building() as progress:
        folder = context.depot.layout.toolchains
        return provide_zig(runtime_facts().platform, folder, progress.download, compiling_version())
