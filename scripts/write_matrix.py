"""Write docs/matrix.md from the tables of GPUs, drivers and compilers, and from the catalog of published wheels.

Usage: PYTHONPATH=src python scripts/write_matrix.py
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from flashdepot.catalog.load import load_catalog
from flashdepot.catalog.matrix import Summary, by_version, in_ranges, summaries
from flashdepot.facts import table
from flashdepot.facts.gpus import driver_floor, known_architectures
from flashdepot.kernels import oldest_gpu
from flashdepot.model.target import Version

PAGE = Path(__file__).parents[1] / "docs/matrix.md"

_HEAD = """\
# Which torch, CUDA, GPU and driver go together?

```sh
flashdepot catalog matrix --torch 2.8          # all published wheels for that torch
flashdepot catalog matrix --html matrix.html   # the whole table as one page with filters
```

[`flashdepot resolve`](resolver.md) chooses for one machine. `scripts/write_matrix.py` writes this page from flashdepot's tables.
"""

_OURS = """\
## A library or wheel of flashdepot

It works with every torch from 2.2 on and every Python from 3.9 on, because it links neither. It depends only on the GPU and the
driver, and on Linux on GNU libc 2.17 or newer.

| compute capability | GPUs | machine code that runs on it | nvcc that makes its own |
| --- | --- | --- | --- |
"""

_DRIVERS = """\

| built with | oldest driver, Linux | oldest driver, Windows | newest GCC | newest Clang |
| --- | --- | --- | --- | --- |
"""

_DRIVER_NOTE = """\

The machine code is compressed so that these drivers read it. `flashdepot build --compress-mode size` makes smaller
libraries with CUDA 12.8 and 12.9, which need driver {linux} on Linux and {windows} on Windows. GCC and Clang are those
that nvcc itself accepts; flashdepot uses neither.
"""

_WHEELS = """\

## Published wheels: the newest for each torch

For every release of torch, the newest flash-attn 2 with a wheel in the [catalog](catalog.md). A wheel is for one torch, CUDA,
Python and platform: not every combination in a row exists. Upstream's wheels are computed from its release workflow.

| torch | publishers | newest flash-attn | CUDA | Python | platforms |
| --- | --- | --- | --- | --- | --- |
"""

_RELEASES = tuple(Version.parse(text) for text in ("12.0", "12.4", "12.8", "13.0", "13.1"))


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")


def page() -> str:
    """The text of the page."""
    note = _DRIVER_NOTE.format(
        linux=driver_floor(12, "linux", compressed=True), windows=driver_floor(12, "windows", compressed=True)
    )
    return "".join(
        [_HEAD, "\n", _OURS, *architecture_rows(), _DRIVERS, *map(toolkit_row, _RELEASES), note, _WHEELS, *wheel_rows()]
    )


def architecture_rows() -> Iterator[str]:
    """A row for each compute capability that the kernels run on."""
    known = [known for known in known_architectures() if known.architecture >= oldest_gpu()]
    for row in known:
        runs = [str(other.architecture) for other in known if other.architecture.runs_on(row.architecture)]
        cuda = f"CUDA {row.first_cuda}" + (f" to {row.last_cuda}" if row.last_cuda else " and newer")
        yield f"| {row.architecture.dotted} | {row.gpus} | {', '.join(runs)} | {cuda} |\n"


def toolkit_row(release: Version) -> str:
    """The row of a CUDA release."""
    floors = [str(driver_floor(release.major, system, compressed=False)) for system in ("linux", "windows")]
    row = [row for cuda, row in table("compilers")["newest"].items() if Version.parse(cuda) <= release][-1]
    compilers = [str(row["gcc"]), str(row["clang"])]
    return f"| {' | '.join([f'CUDA {release}', *floors, *compilers])} |\n"


def wheel_rows() -> Iterator[str]:
    """Two rows for each release of torch: upstream's own wheels, and those of the collections."""
    wheels = [wheel for wheel in load_catalog().wheels if wheel.distribution == "flash-attn" and wheel.torch]
    official = newest_by_torch(summaries(wheel for wheel in wheels if wheel.source == "official"))
    community = newest_by_torch(summaries(wheel for wheel in wheels if wheel.source != "official"))
    for torch in sorted({*official, *community}, key=by_version, reverse=True):
        for publisher, found in (("upstream", official), ("collections", community)):
            if torch in found:
                yield wheel_row(publisher, found[torch])


def newest_by_torch(found: Iterable[Summary]) -> dict[str, Summary]:
    """The summary of the newest version for each torch; they come newest first."""
    newest: dict[str, Summary] = {}
    for summary in found:
        newest.setdefault(summary.torch, summary)
    return newest


def wheel_row(publisher: str, summary: Summary) -> str:
    """A row of published wheels."""
    cells = [
        summary.torch,
        publisher,
        summary.version,
        ", ".join(summary.cuda),
        in_ranges(summary.python),
        ", ".join(summary.platforms),
    ]
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    main()
