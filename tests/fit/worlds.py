"""Machines, environments and files at random: the same facts as a record, as words, and as bytes."""

from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st
from msgspec.structs import replace

from flashdepot.binary.fatbin import CodeKind, GpuCode
from flashdepot.binary.window import FileKind
from flashdepot.diagnose.check.place import Place, TabledTorch
from flashdepot.diagnose.check.subject import Binary
from flashdepot.model.candidate import PublishedWheel
from flashdepot.model.environment import Accelerator, PythonEnvironment, Torch
from flashdepot.model.host import Gpu, HostRecord
from flashdepot.model.target import Architecture, Version
from flashdepot.resolve.facts import facts_of
from support.toolkits import make_host, make_python

TORCHES = ("2.1.2+cu121", "2.4.1+cu121", "2.6.0+cu126", "2.8.0+cu128", "2.9.1+cu130", "2.11.0+cpu", "2.11.0+rocm6.4")
ABI = {"new": "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"}


@dataclass(frozen=True)
class Thing:
    """What is built: for which torch's ABI, CUDA, Python, C library and GPUs."""

    torch: str
    cuda: int
    python: str
    glibc: str
    sass: tuple[str, ...]

    def as_name(self) -> PublishedWheel:
        """As a wheel's name and a catalog tell it."""
        major, minor = self.glibc.split(".")
        return PublishedWheel(
            "flash-attn", "2.8.3", str(self.cuda), self.torch, True, self.python, self.python,
            f"manylinux_{major}_{minor}_x86_64", "mjun0812", "https://example.org/w.whl", 1, "", True, self.sass, "",
        )  # fmt: skip

    def as_bytes(self) -> Binary:
        """As its compiled file tells it."""
        codes = frozenset(GpuCode(CodeKind.SASS, Architecture.parse(s), "") for s in self.sass)
        return Binary(
            name=f"flash_attn_2_cuda.cpython-{self.python[2:]}-x86_64-linux-gnu.so",
            kind=FileKind.ELF_SHARED,
            machines=frozenset({"x86_64"}),
            needed=("libc10.so", "libtorch_cuda.so", f"libcudart.so.{self.cuda}", "libc.so.6"),
            version_needs=(f"GLIBC_{self.glibc}",),
            torch_symbols=frozenset({ABI["new"]}),
            containers=((codes, 3),),
        )


def environment(torch: str, python: str) -> PythonEnvironment:
    """An environment that has everything that an installation asks for."""
    found = Torch.parse(torch)
    known = replace(found, accelerator=found.accelerator or Accelerator.CPU, cxx11_abi=found.release >= Version("2.6"))
    return make_python(
        int(python[3:]),
        torch=known,
        packages={"torch": torch, "einops": "0.8"},
        installers=("uv",),
        base_prefix=Path("/usr"),
    )


@dataclass(frozen=True)
class World:
    """A machine with its environment, and a thing that may fit it."""

    host: HostRecord
    thing: Thing

    @property
    def place(self) -> Place:
        """As ``check`` sees it."""
        assert self.host.python is not None
        assert self.host.python.torch is not None
        torch = TabledTorch(self.host.python.torch, "x86_64")
        return Place(self.host, self.host.python, torch, is_here=False, environment=facts_of(self.host))


def hosts(gpus: list[str], driver: str, libc: str, torch: str, python: str) -> HostRecord:
    found = tuple(Gpu(f"GPU {g}", Architecture.parse(g), 80 * 10**9) for g in gpus)
    host = make_host(gpus=found, driver=driver)
    return replace(host, libc=Version(libc), libc_name="glibc", python=environment(torch, python))


worlds = st.builds(
    World,
    st.builds(
        hosts,
        st.lists(st.sampled_from(["8.0", "8.6", "9.0", "12.0"]), min_size=1, max_size=2, unique=True),
        st.sampled_from(["470.1", "535.2", "570.1", "580.95"]),
        st.sampled_from(["2.28", "2.35", "2.39"]),
        st.sampled_from(TORCHES),
        st.sampled_from(["cp310", "cp312"]),
    ),
    st.builds(
        Thing,
        st.sampled_from(["2.6", "2.8", "2.9"]),
        st.sampled_from([12, 13]),
        st.sampled_from(["cp310", "cp312"]),
        st.sampled_from(["2.17", "2.28", "2.35"]),
        st.sampled_from([("80",), ("80", "90"), ("90",), ("80", "90", "120")]),
    ),
)
