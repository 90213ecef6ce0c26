"""CUDA for a command: where its compiler, headers and libraries are on this machine, and else the command that brings them."""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath

from flashdepot.diagnose.explain.match import RuleOutcome
from flashdepot.diagnose.explain.shell import UserShell
from flashdepot.model.host import CudaToolkit
from flashdepot.model.target import Version

_LOCAL = re.compile(r"\+cu(\d+)(\d)$")
_PLACES = (
    "$CONDA_PREFIX",
    "*",
    "*/*",
    "/usr/local/cuda*",
    "/opt/cuda*",
    "~/cuda*",
    "~/*conda*/envs/*",
    "~/*forge*/envs/*",
    "*/envs/*",
)
"""Where toolkits are, next to those that the variables name."""
_VERSION = re.compile(r"^#define (?:CUDA_VERSION|CUDART_VERSION) +(\d{5})", re.MULTILINE)
_OF_PYPI = "13"
"""The major release of CUDA whose nvcc is on PyPI: older wheels have no nvcc."""
_RELEASE = "13.0"
"""What is brought where nothing names a release: today's packages know it."""

_IN_WHEELS = "$(python -c 'import nvidia.cu13 as m; print(list(m.__path__)[0])')"
_POINT = (
    "export CUDA_HOME={home} && export CUDA_PATH=$CUDA_HOME PATH=$CUDA_HOME/bin:$PATH LIBRARY_PATH=$CUDA_HOME/lib"
    " && ln -sf libcudart.so.13 $CUDA_HOME/lib/libcudart.so"
)
"""How builds find a toolkit of wheels, which have no library without a number in its name."""
_LINKS = "for f in {folder}/lib*.so.*; do ln -sf $f ${{f%%.so.*}}.so; done"


def cuda_values(shell: UserShell, outcome: RuleOutcome, groups: Mapping[str, str]) -> dict[str, str]:
    """The values that advice may name of CUDA; what is not there has none.

    ``toolkit`` is the command that brings nvcc, or points at the one that is there, and ``no_toolkit`` the same where none is;
    ``newer_torch`` goes before it where torch is of a CUDA whose nvcc is not on PyPI.
    """
    values = {}
    if torch_cuda := groups.get("torch_cuda") or _cuda_of_torch(shell, outcome):
        values["torch_cuda"] = torch_cuda
    host, there = shell.host, _toolkits(shell)
    if there:
        values["nvcc_cuda"] = groups.get("nvcc_cuda") or minor(there[0].version)
        values |= _next_to(shell, there[0], only=len(there) == 1)
    if others := [root_of(t) for t in there[1:]]:
        values["other_cuda_home"] = others[0]
    release = torch_cuda if torch_cuda.startswith(f"{_OF_PYPI}.") else _RELEASE
    major = torch_cuda.partition(".")[0]
    fits = [toolkit for toolkit in there if major in ("", str(toolkit.version.numbers[0]))]
    roots = [root_of(t) for t in sorted(fits, key=lambda t: minor(t.version) != torch_cuda)]
    if roots:
        values["cuda_home"] = roots[0]
    root = next((root for root in roots if "/nvidia/" not in root), "")
    wheels, point = "pip install 'cuda-toolkit[nvcc,crt,nvvm,cccl,cudart]{}' && ", _POINT.format(home=_IN_WHEELS)
    if major in ("", _OF_PYPI):
        values["new_toolkit"] = wheels.format(f"=={_RELEASE}.*") + point
    if major in ("", _OF_PYPI) and (nvcc := shell.of_wheels("*/bin/nvcc")):
        home = shlex.quote(nvcc.removesuffix("/bin/nvcc"))
        values["toolkit"] = values["wheel_toolkit"] = _POINT.format(home=home)
    elif root:
        values["toolkit"] = f"export CUDA_HOME={root} CUDA_PATH={root} PATH={root}/bin:$PATH"
    elif roots:
        values["toolkit"] = _POINT.format(home=roots[0])
    elif major not in ("", _OF_PYPI):
        values |= {"old_cuda": torch_cuda, "newer_torch": f"pip install -U torch && {wheels.format('')}{point}"}
    else:
        values["toolkit"] = wheels.format(f"=={release}.*") + point
        values |= {"no_toolkit": values["toolkit"]} if host else {}
    if header := groups.get("header"):
        found = shell.of_wheels(f"*/include/{header}")
        values |= {"header_folder": shlex.quote(found.removesuffix(f"/{header}"))} if found else {}
    library, _, number = (groups.get("library") or groups.get("lib") or "").removeprefix("lib").partition(".so")
    library = library.partition(".")[0]
    if library and (found := shell.of_wheels(f"*/lib/lib{library}.so{number}*")):
        folder = shlex.quote(str(PurePosixPath(found).parent))
        values |= {"library_folder": folder, "library_links": _LINKS.format(folder=folder)}
    return values


@lru_cache(maxsize=1)
def _toolkits(shell: UserShell) -> Sequence[CudaToolkit]:
    """The toolkits of this machine: those of its record, and those below this folder and in environments, which no variable names."""
    found = list(shell.host.toolkits if shell.host else ())
    known = {os.path.realpath(toolkit.root) for toolkit in found}
    for root in (Path(nvcc).parent.parent for pattern in _PLACES for nvcc in shell.files.find(f"{pattern}/bin/nvcc")):
        headers = (f"{root}/include/{name}" for name in ("cuda.h", "cuda_runtime_api.h"))
        said = next(filter(None, (_VERSION.search(shell.files.text(header)) for header in headers)), None)
        place = os.path.realpath(root)
        if said and place not in known and not place.startswith("/usr/bin"):
            known.add(place)
            found.append(CudaToolkit(place, Version(f"{int(said[1]) // 1000}.{int(said[1]) % 1000 // 10}"), str(root)))
    return found


def _next_to(shell: UserShell, toolkit: CudaToolkit, *, only: bool) -> dict[str, str]:
    """The folder of a toolkit that has CUDA's runtime to link, and, where it is the only one, that of a newer one next to it."""
    place = glob.escape(toolkit.root)
    archives = (
        p for name in ("lib64", "lib", "targets/*/lib") for p in shell.files.find(f"{place}/{name}/libcudart_static.a")
    )
    values = {"cuda_lib": next(archives, f"{root_of(toolkit)}/lib64/").rpartition("/")[0]}
    newer = max(shell.files.find(f"{place.rpartition('/')[0]}/cuda-1[0-9]*/bin/nvcc"), key=_number, default="")
    if only and newer and _number(newer) > toolkit.version.numbers[:2]:
        values["other_cuda_home"] = newer.removesuffix("/bin/nvcc")
    return values


def _number(nvcc: str) -> tuple[int, ...]:
    """The release that the folder of a toolkit is named by."""
    return tuple(map(int, re.findall(r"\d+", nvcc.removesuffix("/bin/nvcc").rpartition("cuda-")[2])))


def _cuda_of_torch(shell: UserShell, outcome: RuleOutcome) -> str:
    """The CUDA release of the torch that the log names, or that is in the environment that is meant; empty if not known."""
    if found := _LOCAL.search(outcome.facts.torch):
        return f"{found[1]}.{found[2]}"
    torch = shell.host.python.torch if shell.host and shell.host.python and not shell.python else None
    return minor(torch.cuda) if torch and torch.cuda else ""


def minor(version: Version) -> str:
    """``13.0`` of 13.0.88 or 13."""
    return "{}.{}".format(*(*version.numbers, 0)[:2])


def root_of(toolkit: CudaToolkit) -> str:
    """The folder of a toolkit; where it has a blank, as on Windows, by the variable that NVIDIA's installer sets to it."""
    number = minor(toolkit.version).replace(".", "_")
    return f"%CUDA_PATH_V{number}%" if " " in toolkit.root else toolkit.root
