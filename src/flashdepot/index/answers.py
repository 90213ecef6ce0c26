"""Which wheel of an index serves whom: the questions of its page, and the answer to each combination. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import msgspec
from packaging.version import Version as PackageVersion

from flashdepot.facts.gpus import KnownArchitecture, known_architectures
from flashdepot.model.architecture import Architecture
from flashdepot.model.index_record import IndexedWheel

SYSTEMS = {"linux": "Linux", "windows": "Windows"}
MACHINES = {"x86_64": "x86-64", "aarch64": "ARM64"}

_CONTENTS = {"full": "everything", "training": "training", "inference": "inference", "quick": "a small one to try"}


class Option(msgspec.Struct, frozen=True):
    """One choice: its value in the address, and what people read."""

    value: str
    label: str


class Question(msgspec.Struct, frozen=True):
    """What is asked for under a name; one with a single option need not be shown."""

    name: str
    text: str
    options: tuple[Option, ...]


class Serving(msgspec.Struct, frozen=True):
    """A wheel, and the combinations of options, in the order of the questions, that it is the answer to."""

    wheel: IndexedWheel | None
    combinations: tuple[tuple[str, ...], ...]


def questions(wheels: Sequence[IndexedWheel]) -> tuple[Question, ...]:
    """GPU, system, driver and contents, as far as the wheels differ in them."""
    plain = [wheel for wheel in wheels if not wheel.label]
    gpus = [known for known in known_architectures() if _is_served(known, plain)]
    systems = sorted({str(wheel.platform) for wheel in plain}, key=lambda name: (name != "linux-x86_64", name))
    drivers = sorted({wheel.driver_floor.major for wheel in plain}, reverse=True)
    contents = sorted({contents_of(wheel): len(wheel.units) for wheel in plain}.items(), key=lambda pair: -pair[1])
    return (
        Question("gpu", "GPU", tuple(Option(gpu.architecture.dotted, _gpu(gpu.gpus)) for gpu in gpus)),
        Question("system", "System", tuple(Option(name, system_label(name)) for name in systems)),
        Question("driver", "NVIDIA driver", tuple(map(_driver, drivers, [0, *drivers]))),
        Question("contents", "Kernels for", tuple(Option(words, contents_label(words)) for words, _ in contents)),
    )


def _is_served(gpu: KnownArchitecture, wheels: Sequence[IndexedWheel]) -> bool:
    """Whether any wheel has code for it; a Jetson's CPU is ARM64."""
    there = [wheel for wheel in wheels if "Jetson" not in gpu.gpus or wheel.platform.machine == "aarch64"]
    return any(code.runs_on(gpu.architecture) for wheel in there for code in wheel.sass)


def answers(wheels: Sequence[IndexedWheel]) -> tuple[Serving, ...]:
    """The best wheel for each combination of options, every wheel once; last the combinations that none serves."""
    plain = [wheel for wheel in wheels if not wheel.label]
    found: dict[str, list[tuple[str, ...]]] = {}
    for combination in itertools.product(*([option.value for option in q.options] for q in questions(wheels))):
        gpu, system, driver, contents = combination
        best = best_for(plain, Architecture.parse(gpu), system, int(driver), contents)
        found.setdefault(best.filename if best else "", []).append(combination)
    by_name = {wheel.filename: wheel for wheel in plain}
    return tuple(
        Serving(by_name.get(name), tuple(found[name])) for name in sorted(found, key=lambda name: (not name, name))
    )


def best_for(
    wheels: Sequence[IndexedWheel], gpu: Architecture, system: str, driver: int, contents: str
) -> IndexedWheel | None:
    """The newest version for a machine, with the newest CUDA that its driver serves, in the smallest file.

    :param driver: the first number of the driver's version.
    """
    serving = [
        wheel
        for wheel in wheels
        if str(wheel.platform) == system
        and wheel.driver_floor.major <= driver
        and contents_of(wheel) == contents
        and any(code.runs_on(gpu) for code in wheel.sass)
    ]
    serving.sort(key=lambda wheel: (wheel.uploaded, wheel.filename), reverse=True)
    serving.sort(key=lambda wheel: wheel.size)
    serving.sort(key=lambda wheel: (PackageVersion(PackageVersion(wheel.version).public), wheel.cuda), reverse=True)
    return serving[0] if serving else None


def contents_of(wheel: IndexedWheel) -> str:
    """The words of a version that name families and kernels: ``inference``, ``fa2.fa4.full``."""
    words = (PackageVersion(wheel.version).local or "").split(".")
    first = next((n for n, word in enumerate(words) if re.fullmatch(r"cu\d{3,}", word)), -1) + 1
    return ".".join(word for word in words[first:] if not re.fullmatch(r"sm\d+[af]?", word))


def contents_label(words: str) -> str:
    """Those words for people."""
    first, *others = words.split(".")
    return " ".join([_CONTENTS.get(first, first), *(f"({', '.join(others)})" for _ in others[:1])])


def system_label(platform: str) -> str:
    """``Linux x86-64`` of ``linux-x86_64``."""
    system, _, machine = platform.partition("-")
    return f"{SYSTEMS.get(system, system)} {MACHINES.get(machine, machine)}"


def _driver(floor: int, newer: int) -> Option:
    return Option(str(floor), f"{floor} to {newer - 1}" if newer else f"{floor} or newer")


def _gpu(names: str) -> str:
    generation, _, cards = names.partition(": ")
    return f"{cards or generation} ({generation})" if cards else generation
