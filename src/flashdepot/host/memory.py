"""Memory and processor cores that a build may use, with control groups counted in."""

from __future__ import annotations

import os
from pathlib import Path

from flashdepot.files.atomic import text_of
from flashdepot.model.host import MemoryFacts

_CGROUP = Path("/sys/fs/cgroup")
_SELF = Path("/proc/self/cgroup")
_MEMORY = Path("/proc/meminfo")


def usable_memory(cgroup: Path = _CGROUP, membership: Path = _SELF) -> int:
    """Bytes that new processes can take: what is available now, or what the control group leaves, if that is less."""
    return min([_available(), *_group_headrooms(cgroup, membership)])


def _available() -> int:
    if kibibytes := _statistic(_MEMORY, "MemAvailable:"):
        return kibibytes << 10
    import psutil  # noqa: PLC0415  (slow to import, and Linux says it in a file)

    return int(psutil.virtual_memory().available)


def memory_facts(cgroup: Path = _CGROUP, membership: Path = _SELF) -> MemoryFacts:
    """All memory, what is available, the lowest limit of the control groups, and free swap, in bytes."""
    import psutil  # noqa: PLC0415  (slow to import, and only builds need it)

    memory = psutil.virtual_memory()
    limits = [
        int(text)
        for folder in _group_folders(cgroup, membership, "memory")
        for name in ("memory.max", "memory.limit_in_bytes")
        if (text := text_of(folder / name).strip()).isdecimal() and int(text) < memory.total
    ]
    try:
        swap = int(psutil.swap_memory().free)
    except (RuntimeError, OSError):  # Windows counts it by performance counters, which may be disabled
        swap = 0
    return MemoryFacts(int(memory.total), int(memory.available), min(limits, default=None), swap)


def usable_cores(cgroup: Path = _CGROUP, membership: Path = _SELF) -> int:
    """Cores this process may run on: its CPU affinity, or its control group's quota, if that is less."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = []
    for folder in _group_folders(cgroup, membership, "cpu"):
        words = text_of(folder / "cpu.max").split()
        if not words:
            words = [text_of(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
        if len(words) == 2 and words[0].isdecimal() and words[1].isdecimal():  # noqa: PLR2004
            quotas.append(max(1, int(words[0]) // int(words[1])))
    return min([affinity, *quotas])


def _group_headrooms(cgroup: Path, membership: Path) -> list[int]:
    headrooms = []
    for folder in _group_folders(cgroup, membership, "memory"):
        for limit_name, used_name, cache_name in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            limit, used = (text_of(folder / name).strip() for name in (limit_name, used_name))
            if limit.isdecimal() and used.isdecimal():
                # Page cache counts as used, yet the kernel gives it back under pressure.
                headrooms.append(max(0, int(limit) - int(used) + _statistic(folder / "memory.stat", cache_name)))
    return headrooms


def _group_folders(cgroup: Path, membership: Path, controller: str) -> list[Path]:
    """The folders of this process's group and of those above it: a limit anywhere on the way applies."""
    folders = []
    for line in text_of(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = cgroup / controller if controllers else cgroup
        place = root / path.lstrip("/")
        while True:
            if place.is_dir():
                folders.append(place)
            if place in {root, place.parent}:
                break
            place = place.parent
    return folders


def _statistic(path: Path, name: str) -> int:
    """The number behind a name in a file with one of each a line; 0 where there is none."""
    for line in text_of(path).splitlines():
        key, value, *_ = (*line.split(), "", "")
        if key == name and value.isdecimal():
            return int(value)
    return 0
