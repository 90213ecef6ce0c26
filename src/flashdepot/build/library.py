"""A recipe to a library folder in the depot: compile, link, add what travels with it, write its manifest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from flashdepot import __version__
from flashdepot.build.engine import BuildOutcome, Engine, Executor
from flashdepot.build.inputs import PlaceNames, place_of, places
from flashdepot.build.local import local_executor
from flashdepot.build.objects import Linking, compilers_of, put_objects
from flashdepot.build.sbom import PLACE as SBOM_PLACE
from flashdepot.build.sbom import sbom
from flashdepot.build.schedule import Outlook
from flashdepot.depot import Depot
from flashdepot.depot.actions import ActionRecord
from flashdepot.errors import CompileError, MissingToolError
from flashdepot.events import BuildProgress, OnFile
from flashdepot.facts.gpus import choose_sass, driver_floor
from flashdepot.files.disk import sha256_file
from flashdepot.host.probe import this_platform
from flashdepot.kernels import family_of, provide, untested_code
from flashdepot.kernels.actions import CONFIG_HEADER, Compilers, c_layer_actions, c_layer_flags, config_header
from flashdepot.kernels.c_layer import NATIVE, c_layer_digest, read_c_layer
from flashdepot.model.limits import Limits
from flashdepot.model.manifest import Manifest, ManifestFile
from flashdepot.model.recipe import FRONT_END, PUBLISHED, Action, Recipe
from flashdepot.model.selection import Selection
from flashdepot.model.target import Architecture, Platform, Target
from flashdepot.process.confinement import is_lifted
from flashdepot.toolchain.choose import Toolchain, identify_toolchain
from flashdepot.toolchain.linked import Linked
from flashdepot.toolchain.nvcc import compresses_newly, usual_compression
from flashdepot.toolchain.wheels import known_trees
from flashdepot.upstream import SourceTree
from flashdepot.upstream.source import source_digest

LIBRARY = "libflashattention"


class Options(msgspec.Struct, frozen=True):
    """How to build, where the recipe leaves a choice.

    ``compress`` is a mode of nvcc's ``--compress-mode``; empty for the smallest that every driver of the CUDA major
    version reads.
    """

    compress: str = ""


class BuildPlan(msgspec.Struct, frozen=True):
    """A recipe with all that it takes to carry it out here.

    ``sources`` are the :func:`~flashdepot.upstream.source_digest` of the trees when the recipe was made, by family.
    """

    recipe: Recipe
    trees: Mapping[str, SourceTree]
    toolchain: Toolchain
    licences: Mapping[str, str]
    compilers: Compilers
    provided: Mapping[str, Path]
    sources: Mapping[str, str]

    @property
    def linking(self) -> Linking:
        """How its objects become libraries."""
        return Linking(self.compilers.target, self.toolchain.zig)

    @property
    def is_foreign(self) -> bool:
        """Whether a source is not one of the published ones, whose digests are known."""
        return any(tree.id.origin != PUBLISHED for tree in self.trees.values())

    def actions(self) -> tuple[Action, ...]:
        """Every compiler run of the recipe."""
        return tuple(
            action
            for family, tree in self.trees.items()
            for action in family_of(family).compiler.actions(self.recipe, tree, self.compilers)
        ) + tuple(c_layer_actions(self.recipe, self.compilers, {f: family_of(f).c_layer_words for f in self.trees}))

    def places(self, generated: Path) -> PlaceNames:
        """The folders of this machine that compilations name; ``generated`` is the one of the written header."""
        trees = {place_of(family): tree.root for family, tree in self.trees.items()}
        return places({**trees, "native": NATIVE, "generated": generated}, self.provided, self.toolchain)


def prepare(
    trees: Mapping[str, SourceTree],
    selection: Selection,
    wanted: Sequence[Architecture],
    platform: Platform,
    toolchain: Toolchain,
    depot: Depot,
    options: Options,
    on_file: OnFile,
) -> BuildPlan:
    """Find the recipe of a library, and try all that could stop it before the long work begins.

    :param on_file: called with the name of each file of a toolchain before it is fetched.
    :raises UsageError: when the tree lacks a licence text, without which no binary of it may be passed on.
    """
    nvcc = toolchain.nvcc
    provided = provide(trees, this_platform(), depot.layout.toolchains, on_file)
    texts = {
        name: text for family, tree in trees.items() for name, text in family_of(family).licences(tree.files).items()
    }
    identity = identify_toolchain(toolchain)
    compilers = compilers_of(toolchain, identity, platform, depot.layout.toolchains)
    sass = choose_sass(wanted, nvcc.version, nvcc.codes)
    compress = options.compress or usual_compression(nvcc.version)
    flags = {family: family_of(family).compiler.flags(compilers, sass, compress=compress) for family in trees}
    oldest = {family: family_of(family).oldest_gpu for family in trees}
    flags |= c_layer_flags(compilers, sass, oldest, compress=compress)
    newly = any(compresses_newly(words) for words in flags.values())
    floor = driver_floor(nvcc.version.major, platform.system, compressed=newly)
    recipe = Recipe(
        upstreams={family: tree.id for family, tree in trees.items()},
        selection=selection,
        target=Target(platform, nvcc.version.major, sass, floor),
        toolchain=identity,
        native_digest=Linking(compilers.target, toolchain.zig).digest,
        flags=flags,
    )
    return BuildPlan(recipe, trees, toolchain, texts, compilers, provided, _source_digests(trees))


def foresee_build(plan: BuildPlan, depot: Depot, limits: Limits) -> Outlook:
    """What running a recipe takes, beyond what the depot has; nothing is compiled."""
    with depot.workspace() as work:
        local = Depot(depot.root)  # what remotes have is not fetched to foresee a build
        return _engine(plan, local, limits, BuildProgress(), work).foresee(plan.actions())


def _engine(plan: BuildPlan, depot: Depot, limits: Limits, progress: BuildProgress, work: Path) -> Engine:
    """The engine of a build that works in a folder ``work``, with the header that it compiles already there."""
    generated, recipe = work / "generated", plan.recipe
    generated.mkdir()
    lines = [
        line
        for family, tree in plan.trees.items()
        for line in family_of(family).compiler.config_lines(recipe.selection, recipe.target.sass, tree)
    ]
    _written(generated / CONFIG_HEADER, config_header(recipe, lines))
    executor, environment = _executor(plan, limits, progress, work, generated), plan.toolchain.whole_environment()
    return Engine(depot, recipe, executor, environment, progress, work, keep_going=limits.keep_going)


def _executor(plan: BuildPlan, limits: Limits, progress: BuildProgress, work: Path, generated: Path) -> Executor:
    actions, places = plan.actions(), plan.places(generated)
    if limits.farm is None:
        return local_executor(actions, places, plan.toolchain, limits, work, progress, foreign=plan.is_foreign)
    from flashdepot.build.farm import FarmExecutor, handed_out  # noqa: PLC0415  (most builds have none)
    from flashdepot.build.farm_worker import Site  # noqa: PLC0415

    own, nvcc = {"native": NATIVE, "generated": generated}, plan.toolchain.nvcc
    sources = handed_out({family: tree.files for family, tree in plan.trees.items()}, own)
    environment = plan.toolchain.whole_environment()
    site = Site(
        families=tuple(plan.trees),
        tools=plan.recipe.toolchain.tools,
        sass=plan.recipe.target.sass,
        variables={name: environment.get(name, "") for action in actions for name in action.variables},
        cuda="" if nvcc.root.name in known_trees() else str(nvcc.root),
        release=".".join(nvcc.version.text.split(".")[:2]),
        confined=plan.is_foreign and not is_lifted(),
    )
    return FarmExecutor(limits.farm, site, sources, places, limits, work, progress.note)


def build_library(
    plan: BuildPlan,
    depot: Depot,
    limits: Limits,
    progress: BuildProgress,
    agree: Callable[[Outlook], None] = lambda _: None,
) -> tuple[Manifest, BuildOutcome]:
    """Run a recipe and store the result.

    :param agree: called before the first compiler starts; what it raises ends the build.
    """
    with depot.workspace() as work:
        engine, planned = _engine(plan, depot, limits, progress, work), plan.actions()
        outlook = engine.foresee(planned)
        _require_device_code(planned, outlook)
        agree(outlook)
        outcome = engine.run(planned)
        objects = put_objects(planned, outcome, depot, work / "objects")
        folder = work / "linked"
        folder.mkdir()
        progress.note("Linking.")
        linked = plan.linking.link(objects, folder)
        engine.linked()
        files = _library_files(plan, linked, folder)
        manifest = _manifest(plan, outcome, linked, files)
        files[SBOM_PLACE] = folder / "sbom.json"
        files[SBOM_PLACE].write_bytes(sbom(manifest, manifest.name, manifest.upstream.version))
        manifest = replace(manifest, files=(*manifest.files, _listed(SBOM_PLACE, files[SBOM_PLACE])))
        _require_unchanged(plan)
        depot.artifacts.store(manifest, files)
    return manifest, outcome


def _require_device_code(planned: Sequence[Action], outlook: Outlook) -> None:
    """:raises MissingToolError: on Windows, when kernels are not in the depot or on a remote."""
    device = [action for action in planned if action.suffix == ".fatbin"]
    lacking = [action.name for action in device if action.name in outlook.jobs]
    if lacking and this_platform().system == "windows":
        raise MissingToolError(
            f"No remote has the device code of {len(lacking)} of {len(device)} kernels, {lacking[0]} among them, and nvcc "
            "does not run on Windows with zig.",
            hint="In WSL or on Linux, with --target windows-x86_64 or any other: flashdepot get, then: flashdepot depot push",
        )


def compile_afresh(
    plan: BuildPlan, units: Collection[str], depot: Depot, limits: Limits, progress: BuildProgress
) -> tuple[ActionRecord, ...]:
    """Compile some units of a recipe, both sides of them, whatever any depot has of them; nothing is kept.

    :returns: the records of what was compiled.
    """
    by_name = {action.name: action for action in plan.actions()}
    names = {action.name for action in by_name.values() if action.unit and action.unit.name in units}
    names |= {action.name for action in by_name.values() if names & set(action.needs.values())}
    wanted = list(names)
    while wanted:
        needed = [need for name in wanted for need in by_name[name].needs.values() if need not in names]
        names.update(needed)
        wanted = needed
    with depot.workspace() as work:
        engine = _engine(plan, Depot(work / "afresh"), limits, progress, work)
        chosen = [action for name, action in by_name.items() if name in names]
        engine.foresee(chosen)
        outcome = engine.run(chosen)
    return tuple(outcome.actions.values())


def _source_digests(trees: Mapping[str, SourceTree]) -> dict[str, str]:
    """The digest of all that a compiler can reach, as it is now, by family."""
    return {family: source_digest(family_of(family).sources.layout, tree.files) for family, tree in trees.items()}


def _require_unchanged(plan: BuildPlan) -> None:
    """:raises CompileError: when what was built from is not what the recipe's key was made of any more."""
    now = _source_digests(plan.trees)
    changed = [
        f"the sources in {tree.root}" for family, tree in plan.trees.items() if now[family] != plan.sources[family]
    ]
    if identify_toolchain(plan.toolchain) != plan.recipe.toolchain:
        changed.append(f"the compilers in {plan.toolchain.nvcc.root} or in {plan.toolchain.zig.root}")
    if read_c_layer() != c_layer_digest():
        changed.append(f"flashdepot itself in {NATIVE.parent}")
    if changed:
        raise CompileError(
            f"The library was not kept: {' and '.join(changed)} changed while it was built, so it is not known what is in it.",
            hint="Run the same command again: units whose inputs did not change are reused.",
        )


def _library_files(plan: BuildPlan, linked: Linked, folder: Path) -> dict[str, Path]:
    headers = ("flash_attention.h", "flash_attention.hpp")
    files = {**{f"include/{name}": NATIVE / "include" / name for name in headers}, **linked.files}
    texts = {f"share/licenses/{name}/LICENSE": text for name, text in plan.licences.items()}
    for place, text in (plan.linking.texts(plan.recipe.upstream.version) | texts).items():
        files[place] = _written(folder / place.replace("/", "-"), text)
    return files


def _written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", newline="\n")
    return path


def _listed(place: str, path: Path) -> ManifestFile:
    return ManifestFile(place, sha256_file(path), path.stat().st_size)


def _manifest(plan: BuildPlan, outcome: BuildOutcome, linked: Linked, files: Mapping[str, Path]) -> Manifest:
    recipe = plan.recipe
    listed = [_listed(place, path) for place, path in sorted(files.items())]
    links = [ManifestFile(place, "", 0, link=name) for place, name in linked.links.items()]
    return Manifest(
        recipe_key=recipe.key,
        kind="library",
        name=LIBRARY,
        upstreams=recipe.upstreams,
        selection=recipe.selection,
        platform=recipe.target.platform,
        sass=recipe.target.sass,
        toolchain=recipe.toolchain,
        c_layer=c_layer_digest(),
        driver_floor=recipe.target.driver_floor,
        libc_floor=linked.libc_floor,
        front_end=FRONT_END,
        flags=recipe.flags,
        files=(*listed, *links),
        actions={name: record.action_key for name, record in sorted(outcome.actions.items())},
        flashdepot=__version__,
        untested_gpus=untested_code(recipe.selection, recipe.target.sass),
    )
