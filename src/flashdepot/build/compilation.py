"""One compiler run, described without a path of this machine, and the list of those that a recipe needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flashdepot.build.dialect import GNU, Dialect, dialect_of
from flashdepot.build.flags import feature_defines
from flashdepot.build.names import PlaceNames
from flashdepot.build.native import c_layer_sources
from flashdepot.model.canonical import digest_of
from flashdepot.model.recipe import Recipe, Tool
from flashdepot.model.selection import Feature, Unit
from flashdepot.toolchain.probe_compile import SOURCE_NAME

ACTION_SCHEMA = 1


@dataclass(frozen=True)
class Compilation:
    """One compiler run: ``arguments`` in terms of :class:`PlaceNames`, without its outputs.

    It runs in the folder ``place``, with ``source`` relative to it, so that no absolute path gets into the object.
    ``unit`` is ``None`` for a source of our own C layer.
    """

    name: str
    place: str
    source: str
    arguments: tuple[str, ...]
    tools: tuple[Tool, ...]
    unit: Unit | None = None
    dialect: Dialect = GNU

    def intent_key(self, environment: Mapping[str, str]) -> str:
        """The digest of all that is known before the inputs are: arguments, programs, and environment."""
        return digest_of(
            {
                "schema": ACTION_SCHEMA,
                "source": f"{{{self.place}}}/{self.source}",
                "arguments": list(self.arguments),
                "tools": [t.to_json() for t in self.tools],
                "environment": {v: environment[v] for v in self.dialect.variables if environment.get(v)},
            }
        )

    def command(self, places: PlaceNames, programs: Mapping[str, str], output: Path) -> list[str]:
        """The arguments to run here: names replaced by folders and programs, outputs added.

        :param output: the object file; its depfile gets the same name with ``.d``.
        """
        names = {**{name: str(folder) for name, folder in places.places}, **programs}
        arguments = []
        for argument in self.arguments:
            for name, value in names.items():
                argument = argument.replace(f"{{{name}}}", value)  # noqa: PLW2901
            arguments.append(argument)
        return [*arguments, "-MD", "-MF", str(output.with_suffix(".d")), "-c", self.source, "-o", str(output)]


def compilations(
    recipe: Recipe,
    *,
    tree_features: frozenset[Feature],
    native: Path,
    nvcc_options: frozenset[str],
    source_name: bool,
) -> tuple[Compilation, ...]:
    """Every compiler run of a recipe: one a translation unit, one a source of the C layer.

    :param nvcc_options: the long options of the nvcc at hand.
    :param source_name: whether it takes the arguments that replace a source's absolute path in its internal names.
    """
    tools = recipe.toolchain.tools
    dialect = dialect_of(recipe.toolchain.host_compiler.name)
    host_flags = dialect.host_flags(recipe.toolchain.cuda, nvcc_options)
    cxx_tools = tools if dialect.c_layer_by_nvcc else tools[tools.index(recipe.toolchain.host_compiler) :]

    def cuda(name: str, source: str, place: str, unit: Unit | None, extra: tuple[str, ...]) -> Compilation:
        arguments = [dialect.nvcc, "-ccbin", "{cxx}", *recipe.flags, *extra, "-I{native}/shim"]
        if "--objdir-as-tempdir" in nvcc_options:
            arguments.append("--objdir-as-tempdir")
        if "--frandom-seed" in nvcc_options:
            arguments.append(f"--frandom-seed={name}")
        if source_name:
            arguments += [word.format(name=f"{place}/{source}") for word in SOURCE_NAME]
        return Compilation(name, place, source, tuple(arguments), tools, unit, dialect)

    defines = feature_defines(tree_features, recipe.selection.features)
    kernels = [
        cuda(
            u.name,
            f"csrc/flash_attn/src/{u.name}.cu",
            "upstream",
            u,
            (*defines, "-Icsrc/cutlass/include", "-Icsrc/flash_attn/src"),
        )
        for u in sorted(recipe.selection.units)
    ]
    own_kernels = [
        cuda(
            _own_name(native, p),
            p.relative_to(native).as_posix(),
            "native",
            None,
            ("-I{native}/include", "-I{native}/src"),
        )
        for p in c_layer_sources(native, ".cu")
    ]
    includes = ("-I{generated}", "-I{native}/include", "-I{native}/src", "-I{native}/shim")
    upstream = ("-I{upstream}/csrc/flash_attn/src", "-I{upstream}/csrc/cutlass/include", "-isystem", "{cuda_include}")
    own = [
        Compilation(
            _own_name(native, p),
            "native",
            p.relative_to(native).as_posix(),
            (
                *dialect.c_layer,
                *(host_flags if dialect.c_layer_by_nvcc else (f"-frandom-seed={_own_name(native, p)}",)),
                *includes,
                *upstream,
            ),
            cxx_tools,
            dialect=dialect,
        )
        for p in c_layer_sources(native, ".cpp")
    ]
    return (*kernels, *own_kernels, *own)


def _own_name(native: Path, source: Path) -> str:
    """``native-device``, ``native-fa2-units``: what a source of the C layer is called in logs and archives."""
    return "-".join(("native", *source.relative_to(native / "src").with_suffix("").parts))
