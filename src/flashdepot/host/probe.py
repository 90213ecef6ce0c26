"""The whole record of this machine, or the part of it that decides what runs on it."""

from __future__ import annotations

import os
import platform
from dataclasses import replace
from pathlib import Path

from flashdepot.host.gpu import probe_gpus
from flashdepot.model.host import HostRecord
from flashdepot.model.target import Platform, Version

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def runtime_facts() -> HostRecord:
    """The facts that decide what runs here: platform, libc, driver and GPUs. Quick: no other program is started.

    Memory and cores are 0 and the lists of tools empty: they matter to builds alone.
    """
    driver, gpus = probe_gpus()
    return HostRecord(
        platform=this_platform(),
        os_name=_os_name(),
        libc=libc_version(),
        cores=0,
        memory=0,
        driver=driver,
        gpus=gpus,
        toolkits=(),
        compilers=(),
    )


def probe() -> HostRecord:
    """All that flashdepot knows of this machine; asks every compiler and nvcc that it finds for its version."""
    from flashdepot.host.compilers import find_compilers  # noqa: PLC0415  (a depot hit needs none of these)
    from flashdepot.host.memory import usable_cores, usable_memory  # noqa: PLC0415
    from flashdepot.host.toolkits import find_toolkits  # noqa: PLC0415

    return replace(
        runtime_facts(),
        cores=usable_cores(),
        memory=usable_memory(),
        toolkits=find_toolkits(),
        compilers=find_compilers(),
    )


def this_platform() -> Platform:
    """Operating system and CPU of this machine, named as wheels name them."""
    machine = platform.machine().lower()
    return Platform(platform.system().lower(), _MACHINES.get(machine, machine))


def libc_version() -> Version | None:
    """The GNU C library's version; ``None`` on musl, Windows and macOS."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (AttributeError, ValueError, OSError):
        return None
    return Version.parse(version) if name == "glibc" else None


def _os_name() -> str:
    try:
        lines = Path("/etc/os-release").read_text().splitlines()
    except OSError:
        return f"{platform.system()} {platform.release()}"
    fields = dict(line.split("=", 1) for line in lines if "=" in line)
    return fields.get("PRETTY_NAME", platform.system()).strip('"')
