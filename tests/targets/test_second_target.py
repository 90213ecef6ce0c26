"""A target joins by its row and the file of its system; nothing else knows of it."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from flashdepot.build.objects import Linking
from flashdepot.model.recipe import Tool
from flashdepot.model.target import LINUX, Platform
from flashdepot.toolchain import linked, targets
from flashdepot.toolchain.linked import Linked
from flashdepot.toolchain.targets import System, TargetSpec
from flashdepot.toolchain.zig import Zig
from support.recipes import COMPILERS, TOOLS, fa2_actions, make_recipe


def link(_target: TargetSpec, _zig: Zig, objects: Sequence[Path], _native: Path, folder: Path) -> Linked:
    made = folder / "library.a"
    made.write_bytes(b"".join(path.read_bytes() for path in objects))
    return Linked({"lib/static/library.a": made})


PLAN9 = System(LINUX, ".9", ("-DPLAN9",), ("-plan9",), (), ())
ROW = TargetSpec(
    Platform("plan9", "riscv64"), PLAN9, "riscv64-plan9", "riscv64-unknown-plan9", "generic", ("any-plan9",)
)


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "TARGETS", (*targets.TARGETS, ROW))
    monkeypatch.setitem(linked.BY_SYSTEM, "plan9", link)


def test_every_source_is_compiled_for_it_and_device_code_once_for_all() -> None:
    by_target = {
        str(row): replace(COMPILERS, target=row, device_tools=TOOLS, zig=Tool("zig", "0.14", "f" * 64))
        for row in targets.TARGETS
    }
    recipe = make_recipe()
    ours = {action.name: action for action in fa2_actions(recipe, by_target[str(ROW)])}
    linux = {action.name: action for action in fa2_actions(recipe, by_target[str(targets.TARGETS[0])])}
    device = {name for name, action in ours.items() if action.suffix == ".fatbin"}
    assert device
    assert all(ours[name] == linux[name] for name in device)
    host = set(ours) - device
    assert all(ours[name].suffix == ".9" and "-DPLAN9" in ours[name].arguments for name in host)
    assert all("riscv64-unknown-plan9" in ours[name].arguments for name in host)
    assert {name.removesuffix("-plan9-riscv64") for name in host} == {
        name.removesuffix("-linux-x86_64") for name in set(linux) - device
    }


def test_its_system_links_the_objects(tmp_path) -> None:
    objects = [tmp_path / "a.9", tmp_path / "b.9"]
    for path in objects:
        path.write_text(path.stem)
    linking = Linking(ROW, Zig(Path("zig"), "0.14.1"))
    made = linking.link(objects, tmp_path)
    assert made.files["lib/static/library.a"].read_bytes() == b"ab"
    assert Linking(replace(ROW, zig="another"), linking.zig).digest != linking.digest
