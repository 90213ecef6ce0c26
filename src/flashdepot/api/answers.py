"""Answers: what is on a machine, what prevents an installation or build, whether a file fits, what a log shows."""

from __future__ import annotations

import io
import re
import shlex
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec
from msgspec.structs import replace

from flashdepot.api.acquire import ANY, SILENT
from flashdepot.diagnose.case import Intention
from flashdepot.diagnose.check.place import Place, TabledTorch, TorchSymbols, read_installed_torch
from flashdepot.diagnose.check.run import Report, check_file
from flashdepot.diagnose.examine import examine
from flashdepot.errors import UsageError
from flashdepot.events import Events
from flashdepot.host import probe, runtime_facts
from flashdepot.host.python_environment import chosen_environment, look_for_python
from flashdepot.model.diagnosis import Diagnosis
from flashdepot.model.environment import NO_TORCH
from flashdepot.model.host import HostRecord
from flashdepot.model.request import LibraryRequest
from flashdepot.process.run import run_shown
from flashdepot.resolve.facts import NamedFacts, facts_of, on_host, override

if TYPE_CHECKING:
    from flashdepot.diagnose.explain import IndexQuestion, LogReport
    from flashdepot.diagnose.explain.releases import IndexPages

_AS_IT_IS = NamedFacts()
_OF_PYTHON = frozenset({"python", "tags", "torch", "torch symbols"})  # topics of evidence


def host(python: str | None = None, depot: Path | None = None) -> HostRecord:
    """What is on this machine: GPUs, driver, toolkits, compilers, memory, disks, and a Python environment.

    Looking changes nothing. PyTorch is read from its files and not imported.

    :param python: interpreter or folder of the environment; the active one when it is not given.
    :param depot: the depot's folder, whose disk is measured.
    """
    return probe(python, depot)


def doctor(
    intention: Intention = Intention.INSTALL, request: LibraryRequest = ANY, *, host: HostRecord | None = None
) -> list[Diagnosis]:
    """What prevents an intention on a host, worst first; nothing but the record is checked."""
    return examine(host or probe(), intention, request)


def check(
    files: str | Path | Iterable[str | Path],
    *,
    python: str | None = None,
    named: NamedFacts = _AS_IT_IS,
    host: HostRecord | None = None,
    events: Events = SILENT,
) -> list[Report]:
    """Whether wheels and libraries fit an environment, by their bytes; nothing is loaded, and no GPU is needed.

    What is named of the environment counts, and where nothing is, what is here or in the record.

    :param files: wheels, libraries, and folders: one that :func:`get` wrote, of which both libraries are read, one that
        :func:`vendor` wrote, of which those for the environment's system are, one with wheels in it, an installed
        package, or an environment, of which those of flash_attn are.
    :param python: an interpreter or the folder of an environment, whose torch is read; the one that is meant here when
        it is not given.
    :param named: facts in place of those that are found.
    :param host: the record of another machine; this one when it is not given.
    :raises UsageError: when a file cannot be read, a folder is not one of these, a program is not a Python, or a
        version is invalid.
    :raises IntegrityError: when a folder's manifest cannot be used.
    """
    asked = [Path(files)] if isinstance(files, (str, Path)) else [Path(file) for file in files]
    place, unknown = place_of(python, named, host)
    paths = [path for file in asked for path in (_files_in(file, place) if file.is_dir() else [file])]
    reports = [check_file(path, place) for path in paths]
    if any(line.topic in _OF_PYTHON for report in reports for line in report.evidence):
        if unknown:
            events.warn(unknown)
        elif host is None and (said := chosen_environment(place.python)):
            events.note(said)
    return reports


_LIBRARY = re.compile(r"\.(so(\.\d+)*|pyd|dll)$")


def _files_in(folder: Path, place: Place) -> list[Path]:
    from flashdepot.link.vendor_folder import read_index  # noqa: PLC0415  (files are the usual question)

    if wheels := sorted(folder.glob("*.whl")):
        return wheels
    if (index := read_index(folder)) is None:
        is_environment = (folder / "pyvenv.cfg").exists() or (folder / "conda-meta").exists()
        found = {path.resolve(): path for path in sorted(folder.rglob("*")) if _LIBRARY.search(path.name)}.values()
        installed = [p for p in found if not is_environment or "/flash_attn" in p.relative_to(folder).as_posix()]
        return _libraries_in(folder) if (folder / "manifest.json").exists() or not installed else installed
    here = [target for target in index if target.platform == place.host.platform] or index
    return [path for target in here for path in _libraries_in(folder / target.folder)]


def _libraries_in(folder: Path) -> list[Path]:
    from flashdepot.link.library import LinkKind, read_library  # noqa: PLC0415  (as above)

    library = read_library(folder)
    return [
        library.folder(LinkKind.SHARED) / library.names.shared,
        library.folder(LinkKind.STATIC) / library.names.static[0],
    ]


def place_of(python: str | None, named: NamedFacts, host: HostRecord | None) -> tuple[Place, str]:
    """The environment, and why it is not known which Python is meant, if it is not."""
    machine = on_host(host or runtime_facts(), named)
    found, unknown = look_for_python(python) if python is not None or host is None else (host.python, "")
    facts = override(facts_of(replace(machine, python=found), recorded=host is not None), named)
    # What torch exports: by its files where they are here, else by the table of its versions.
    torch: TorchSymbols | None = None
    if (host is None or python is not None) and named.torch is None and named.torch_cuda is None:
        torch = read_installed_torch(found.torch) if found is not None and found.torch is not None else None
    elif facts.torch not in {None, NO_TORCH}:
        torch = TabledTorch(facts.torch, machine.platform.machine)
    place = Place(host=machine, python=found, torch=torch, is_here=host is None, environment=facts)
    return place, unknown


class ExplainedCommand(msgspec.Struct, frozen=True):
    """A command that was run: its exit status as a shell gives it, and what its output shows if it failed."""

    status: int
    report: LogReport


_BY_SIGNAL = range(129, 193)


def explain_command(
    command: Sequence[str], host: HostRecord | None = None, show: Callable[[bytes], None] = lambda _: None
) -> ExplainedCommand:
    """Run a command, and explain its output when it fails.

    Both streams are read in the order in which they come. A command that a signal ended has status 128 and its number.

    :param show: called with each piece of the output as it comes.
    :raises MissingToolError: when there is no such program.
    """
    from flashdepot.diagnose.explain import NOWHERE, Files, LogReport  # noqa: PLC0415
    from flashdepot.diagnose.explain import explain as explain_log  # noqa: PLC0415

    files = NOWHERE if host else Files(here=True)
    with tempfile.TemporaryFile() as log:
        status = run_shown(command, log, show)
        if status in _BY_SIGNAL:
            log.write(f"\n{command[0]}: exit code {status}\n".encode())
        log.seek(0)
        report = explain_log(log, host or probe(), shlex.join(command), files, _ask) if status else LogReport((), ())
    return ExplainedCommand(status, report)


def explain(log: str | Path | BinaryIO, host: HostRecord | None = None) -> LogReport:
    """The causes that a log shows, in the order in which one leads to the other, and the commands that fix them.

    :param log: its file, open for bytes or by its path; or its text, which has a blank in it, or neither a dot nor a slash.
    :raises UsageError: for a file that cannot be read.
    """
    from flashdepot.diagnose.explain import NOWHERE, Files  # noqa: PLC0415  (check reads no log)
    from flashdepot.diagnose.explain import explain as explain_log  # noqa: PLC0415

    files = NOWHERE if host else Files(here=True)
    host = host or probe()
    if isinstance(log, str) and _is_text(log):
        return explain_log(io.BytesIO(log.encode("utf-8", "surrogateescape")), host, files=files, ask=_ask)
    if isinstance(log, (str, Path)):
        try:
            stream = Path(log).open("rb")  # noqa: SIM115  (an error of reading is the disk's, not the user's)
        except OSError as error:
            hint = 'Name a file, - for standard input, or the text itself in quotes: explain "ImportError: ...".'
            raise UsageError(f"The log {log} cannot be read: {error.strerror}.", hint=hint) from error
        with stream:
            return explain_log(stream, host, files=files, ask=_ask)
    if not isinstance(log.read(0), bytes):
        raise UsageError("The log is open for text, and is read as bytes.", hint='open(path, "rb")')
    return explain_log(log, host, files=files, ask=_ask)


_INDEX_SECONDS = 5.0


def _ask(question: IndexQuestion) -> IndexPages:
    """What the user's own package indexes have of what a log could not install; nothing of names that are not theirs."""
    from flashdepot.diagnose.explain.releases import IndexPages  # noqa: PLC0415
    from flashdepot.net.fetch import offline  # noqa: PLC0415

    if offline():
        return IndexPages()
    from flashdepot.net.index import listed, with_indexes  # noqa: PLC0415  (half a second, which most logs do not need)
    from flashdepot.net.transport import read_index_settings  # noqa: PLC0415

    try:
        settings = with_indexes(read_index_settings(), question.added)
    except UsageError:  # pip's settings, of which pip itself will speak
        return IndexPages()
    files = listed(question.public, question.others, question.index, settings, _INDEX_SECONDS)
    return IndexPages(files, "PyPI" if settings.indexes == (None,) else "the index")


def _is_text(word: str) -> bool:
    try:
        return re.search(r"^[^\s./\\]+$|\s", word) is not None and not Path(word).exists()
    except OSError:  # too long for a name
        return True
