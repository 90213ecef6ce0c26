"""Keys: what is in them and what is not, and what a compiler says it has read."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from flashdepot.build.inputs import PlaceNames, read_depfile
from flashdepot.kernels.c_layer import NATIVE
from flashdepot.model.recipe import Recipe, Tool, ToolchainId, UpstreamId
from flashdepot.model.selection import Selection
from flashdepot.model.target import Version
from support.recipes import TOOLS, fa2_actions, make_action, make_recipe


def test_a_recipe_key_does_not_depend_on_where_the_source_came_from() -> None:
    other = UpstreamId("2.8.3.post2", "d" * 64, "git+file:///x", {".": "f" * 40})
    assert make_recipe(upstreams={"fa2": other}).key == make_recipe().key


@pytest.mark.parametrize(
    "other",
    [
        make_recipe("80"),
        make_recipe(upstreams={"fa2": UpstreamId("2.8.3.post2", "0" * 64)}),
        make_recipe(selection=Selection(make_recipe().selection.units, frozenset())),
        make_recipe(native_digest="0" * 64),
        make_recipe(flags={"fa2": ("-O0",)}),
        make_recipe(target=replace(make_recipe().target, driver_floor=Version("525.60.13"))),
        make_recipe(toolchain=ToolchainId(Version("13.0.88"), (replace(TOOLS[0], digest="0" * 64), *TOOLS[1:]))),
    ],
    ids=["sass", "upstream", "features", "C layer", "flags", "driver", "nvcc"],
)
def test_a_recipe_key_changes_with_everything_that_makes_the_library(other) -> None:
    assert other.key != make_recipe().key


def test_an_intent_key_changes_with_arguments_programs_source_and_environment() -> None:
    plain = make_action()
    keys = {
        plain.intent_key({}),
        replace(plain, arguments=("{cuda}/bin/nvcc", "-O2")).intent_key({}),
        replace(plain, tools=(Tool("nvcc", "13.0.88", "0" * 64),)).intent_key({}),
        replace(plain, source="src/other.cu").intent_key({}),
        plain.intent_key({"NVCC_APPEND_FLAGS": "-G"}),
    }
    assert len(keys) == 5
    assert plain.intent_key({"HOME": "/somewhere", "NVCC_APPEND_FLAGS": ""}) == plain.intent_key({})


def test_a_unit_of_two_recipes_has_one_intent_when_it_is_compiled_the_same_way() -> None:
    def intents(recipe: Recipe) -> dict[str, str]:
        made = fa2_actions(recipe)
        return {c.name: c.intent_key({}) for c in made if c.unit}

    both = make_recipe()
    one = make_recipe(selection=Selection(frozenset(sorted(both.selection.units)[:1]), both.selection.features))
    less = make_recipe(selection=Selection(both.selection.units, frozenset()))
    name = min(both.selection.units).name
    assert intents(one)[name] == intents(both)[name]
    assert intents(less)[name] != intents(both)[name]


def test_no_path_of_this_machine_is_in_an_action() -> None:
    made = fa2_actions(make_recipe())
    assert len(made) > 2
    for action in made:
        assert not [a for a in action.arguments if str(NATIVE) in a or a.startswith("/")], action.name


def test_names_become_folders_and_programs_of_this_machine_when_it_runs() -> None:
    places = PlaceNames((("upstream", Path("/src/fa")), ("cuda", Path("/opt/cuda"))))
    action = make_action(arguments=("{cuda}/bin/nvcc", "-ccbin", "{cxx}", "-I{upstream}/x"))
    command = action.command({**places.folders, "cxx": "/usr/bin/g++", "output": "/w/a.o", "depfile": "/w/a.d"})
    cuda, source = Path("/opt/cuda"), Path("/src/fa")
    assert command[:4] == [f"{cuda}/bin/nvcc", "-ccbin", "/usr/bin/g++", f"-I{source}/x"]
    assert command[-3:] == [action.source, "-o", "/w/a.o"]
    assert command[command.index("-MF") + 1] == "/w/a.d"


def test_two_names_of_a_toolkits_include_folder_are_one(tmp_path) -> None:
    (tmp_path / "targets/x86/include").mkdir(parents=True)
    (tmp_path / "targets/x86/include/cuda.h").touch()
    folders = (("cuda_include", tmp_path / "include"), ("cuda_include", tmp_path / "targets/x86/include"))
    places = PlaceNames((*folders, ("cuda", tmp_path)))
    assert places.name(f"{tmp_path}/include/cuda.h") == "{cuda_include}/cuda.h"
    assert places.name(f"{tmp_path}/targets/x86/include/cuda.h") == "{cuda_include}/cuda.h"
    assert places.path("{cuda_include}/cuda.h") == tmp_path / "targets/x86/include/cuda.h"


def test_a_path_is_named_after_the_folder_it_is_in_and_found_again() -> None:
    places = PlaceNames((("upstream", Path("/src/fa")), ("cuda", Path("/opt/cuda"))))
    assert places.name("/opt/cuda/bin/..//include/cuda.h") == "{cuda}/include/cuda.h"
    assert places.path("{cuda}/include/cuda.h") == Path("/opt/cuda/include/cuda.h")
    assert places.name("/src/fabric/x.h") == "/src/fabric/x.h"
    assert places.path("/usr/include/math.h") == Path("/usr/include/math.h")


def here(*names: str) -> tuple[str, ...]:
    """Paths as this system writes them."""
    return tuple(str(Path(name)) for name in names)


def test_nvcc_and_gcc_rules_read_alike() -> None:
    nvcc = "/w/o.o : k.cu \\\n    /usr/include/stdc-predef.h \\\n    /c/bin/..//include/cuda_runtime.h\n"
    gcc = "/w/o.o: k.cu /usr/include/stdc-predef.h \\\n /c/include/cuda_runtime.h\n"
    expected = here("/src/k.cu", "/usr/include/stdc-predef.h", "/c/include/cuda_runtime.h")
    assert read_depfile(nvcc, Path("/src")) == expected
    assert read_depfile(gcc, Path("/src")) == expected


def test_a_file_named_twice_counts_once() -> None:
    assert read_depfile("a.o: a.cu ./a.cu sub/../a.cu\n", Path("/s")) == here("/s/a.cu")


def test_blanks_hashes_and_dollars_in_names_are_read() -> None:
    assert read_depfile("a.o: my\\ file.cu c\\#.h $$x.h\n", Path("/s")) == here("/s/my file.cu", "/s/c#.h", "/s/$x.h")


def test_phony_rules_after_the_first_are_no_inputs() -> None:
    assert read_depfile("a.o: a.cu b.h\n\nb.h:\n", Path("/s")) == here("/s/a.cu", "/s/b.h")


def test_a_windows_target_with_a_drive_letter_is_not_the_end_of_the_target() -> None:
    assert read_depfile("C:/w/a.o : a.cu\r\n", Path("/s")) == here("/s/a.cu")


def test_text_without_a_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="no rule"):
        read_depfile("", Path("/s"))


@pytest.mark.skipif(os.sep != "/", reason="a backslash and digits are folders elsewhere")
def test_letters_that_nvcc_writes_by_their_bytes_are_read() -> None:
    rule = "a.o : a.cu \\\n    /home/J\\303\\274rgen\\ \\320\\266/my\\ k.h /\\377.h\n"
    assert read_depfile(rule, Path("/s"))[1:] == ("/home/Jürgen ж/my k.h", os.fsdecode(b"/\xff.h"))
