"""The options that say where something must run: the same for every command, made from :class:`NamedFacts`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from flashdepot.cli.common import host_option, into, load_host, python_option
from flashdepot.model.host import HostRecord

if TYPE_CHECKING:
    from flashdepot.api.given import Given

Command = TypeVar("Command", bound=Callable[..., None])

_OPTIONS: Mapping[str, Callable[[Any], Any]] = {
    "torch": click.option(
        "--torch", metavar="VERSION", help="PyTorch: 2.8.0+cu128, or none.  [default: the environment's]"
    ),
    "torch_cuda": click.option(
        "--torch-cuda",
        metavar="12.8|none",
        help="CUDA that the named PyTorch is built with.  [default: that of PyPI's build]",
    ),
    "cxx11_abi": click.option(
        "--cxx11abi/--no-cxx11abi", "cxx11_abi", default=None, help="C++ ABI of the PyTorch build, new or old."
    ),
    "python_tag": click.option(
        "--python-tag", metavar="3.12|cp312", help="Python version or tag; 3.13t is free-threaded."
    ),
    "platform": click.option("--platform", metavar="linux-x86_64", help="Platform, or a wheel's platform tag."),
    "glibc": click.option("--glibc", metavar="2.31", help="Version of the GNU C library."),
    "gpu": click.option("--gpu", metavar="9.0", multiple=True, help="Compute capability (repeatable)."),
    "driver": click.option("--driver", metavar="570.1", help="Version of NVIDIA's driver."),
}
"""One for each field of :class:`NamedFacts`."""


def _given(
    *,
    torch: str | None = None,
    torch_cuda: str | None = None,
    cxx11_abi: bool | None = None,
    python_tag: str | None = None,
    platform: str | None = None,
    glibc: str | None = None,
    gpu: tuple[str, ...] = (),
    driver: str | None = None,
    python: str | None = None,
    host_file: Path | None = None,
) -> Given:
    from flashdepot.api.given import Given  # noqa: PLC0415  (a depot hit needs neither)
    from flashdepot.resolve.facts import NamedFacts  # noqa: PLC0415

    named = NamedFacts(torch, torch_cuda, cxx11_abi, python_tag, platform, glibc, gpu, driver)
    return Given(named, host_file, python)


environment_options = into("given", _given, *_OPTIONS.values(), python_option, host_option)
"""For what depends on a Python environment: the argument ``given``, a :class:`Given`."""

_MACHINE = ("glibc", "gpu", "driver")


def _host(*, glibc: str | None, gpu: tuple[str, ...], driver: str | None, host_file: Path | None) -> HostRecord | None:
    if (glibc, gpu, driver) == (None, (), None):
        return load_host(host_file)
    return _given(glibc=glibc, gpu=gpu, driver=driver, host_file=host_file).machine


machine_options = into("host", _host, *(_OPTIONS[name] for name in _MACHINE), host_option)
"""For what depends on a machine and not on its Python: the argument ``host``, ``None`` for this machine as it is."""
