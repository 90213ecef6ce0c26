"""The written cases of ``cases.toml``: a machine, a torch, and what is to be installed there."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from flashdepot.build.schedule import Capacity
from flashdepot.catalog import load_catalog
from flashdepot.depot import Depot
from flashdepot.files.documents import read_toml
from flashdepot.model.candidate import Judged, Plan, WheelRequest
from flashdepot.model.environment import Environment
from flashdepot.model.host import CudaToolkit, HostRecord
from flashdepot.model.request import LibraryRequest
from flashdepot.model.target import Version
from flashdepot.model.wheel import COMMUNITY, DEFAULT_SOURCES
from flashdepot.resolve.decide import decide, explain
from flashdepot.resolve.facts import NamedFacts, override
from flashdepot.resolve.plan import OwnWheels
from support.toolkits import make_host

_DATA = read_toml(Path(__file__).with_name("cases.toml"))


@dataclass(frozen=True, eq=False)
class Case:
    name: str
    values: dict[str, Any]

    def __str__(self) -> str:
        return self.name

    @property
    def facts(self) -> Environment:
        v = self.values
        named = NamedFacts(
            v["torch"], v.get("cuda"), v.get("cxx11_abi"), v["python_tag"], v["platform"], v["glibc"] or None,
            tuple(v["gpus"]), v["driver"] or None,
        )  # fmt: skip
        facts = override(Environment(), named)
        return replace(facts, libc_name="musl") if v.get("musl") else facts

    @property
    def request(self) -> WheelRequest:
        v, allow = self.values, self.values.get("allow", [])
        return WheelRequest(
            self.facts,
            distribution=v.get("distribution", "flash-attn"),
            version=v.get("version", ""),
            sources=frozenset(v.get("sources", DEFAULT_SOURCES)) | (frozenset(allow) & {COMMUNITY}),
            allow_uncertain="uncertain" in allow,
        )

    @property
    def host(self) -> HostRecord:
        """The machine that a library would be compiled on: the one that it is for."""
        facts, compiler = self.facts, self.values["compiler"]
        toolkits = (CudaToolkit(f"/usr/local/cuda-{v}", Version(v), "PATH") for v in self.values["toolkits"])
        host = make_host(*toolkits, gcc=(compiler,) if compiler else (), platform=str(facts.platform))
        return replace(host, libc=facts.libc, libc_name=facts.libc_name, driver=facts.driver)

    @cached_property
    def own(self) -> tuple[Judged, ...]:
        return tuple(OwnWheels(LibraryRequest(), self.host, EMPTY, Capacity(16, 64 * 10**9)).candidates(self.request))

    @cached_property
    def decision(self) -> Plan:
        return decide(self.request, CATALOG, self.own)


EMPTY = Depot(Path(__file__).with_name("a-depot-that-is-not-there"))
CASES = [Case(entry["name"], {**_DATA["default"], **entry}) for entry in _DATA["case"]]
CATALOG = load_catalog().wheels


def choice_of(decision: Plan) -> str:
    """``ours``, ``build``, ``none``, or the wheel's file name."""
    if decision.chosen is None:
        return "none"
    candidate = decision.chosen.candidate
    return str(candidate.origin) if candidate.origin.compiles else candidate.name


def reasons_against(case: Case, named: str) -> set[frozenset[str]]:
    """The ids of the rules against each candidate of a name: several collections can have one of the same name."""
    own = [judged for judged in case.own if str(judged.candidate.origin) == named]
    found = own or explain(case.decision, named)
    return {frozenset(reason.id for reason in judged.reasons) for judged in found}
