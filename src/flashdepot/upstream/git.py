"""A commit of a git repository, fetched without its history; its tree is kept. Repositories are not trusted."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from pathlib import Path
from urllib.request import url2pathname

import msgspec

from flashdepot.errors import MissingToolError, NetworkError, UsageError
from flashdepot.files.directory import PlainFiles
from flashdepot.files.disk import disk_errors
from flashdepot.files.documents import read_json, write_json
from flashdepot.files.folders import is_whole, make_whole
from flashdepot.model.codec import Digest, read
from flashdepot.model.recipe import UpstreamId
from flashdepot.net.fetch import offline, require_network
from flashdepot.process.run import run, without_credentials
from flashdepot.upstream.source import Layout, SourceTree, source_digest

_SECONDS = 3600
_SETTINGS = {
    "core.hooksPath": os.devnull,
    "core.symlinks": "false",  # a link in a tree could point at any file of the user's
    "core.autocrlf": "false",  # a tree has the same bytes, and so the same digest, on every machine
    "core.eol": "lf",
    "gc.auto": "0",  # nothing continues in the background after git returns
    "maintenance.auto": "false",
    "protocol.ext.allow": "never",
    "advice.detachedHead": "false",
}
_VARIABLES_OF_AN_OUTER_GIT = {
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES"),
    *("GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_PREFIX"),
}
"""Set while git runs a hook; a git started from there would work in the wrong repository."""


class GitFailed(Exception):  # noqa: N818  (it is caught and explained by who knows what was asked)
    """A git that ended with an error; its text is what git said, without the credentials of any URL."""


def git(*arguments: str, local: bool = False) -> str:
    """Run git and return what it printed. It runs no hook, follows no link, and never asks for a password.

    :param local: whether submodules too may come from folders of this machine, which git otherwise refuses.
    :raises GitFailed: when it fails.
    """
    settings = _SETTINGS | ({"protocol.file.allow": "always"} if local else {})
    environment = {name: value for name, value in os.environ.items() if name not in _VARIABLES_OF_AN_OUTER_GIT}
    environment["GIT_TERMINAL_PROMPT"] = "0"
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    try:
        done = run(
            ["git", *options, *arguments],
            env=environment | ({"GIT_ALLOW_PROTOCOL": "file"} if offline() else {}),
            timeout=_SECONDS,
            may_ask=True,  # ssh asks for a key's passphrase
        )
    except MissingToolError as error:
        raise MissingToolError(
            "A git source needs the git program, and it is not on PATH.",
            hint="Install it (apt install git, dnf install git), or use a published version: --upstream 2.8.3",
        ) from error
    if done.status != 0:
        said = "; ".join(line.strip() for line in done.stderr.splitlines() if line.strip())
        raise GitFailed(without_credentials(said) or f"git ended with status {done.status}")
    return done.stdout


_URL = re.compile(r"(https|ssh|file)://([^/\x00-\x20\x7f]*)(/[^\x00-\x20\x7f]+)")
_FULL_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SHORT_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_NOT_IN_REFS = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{")
_TREE, _RECORD = "tree", "commit.json"
_ALL = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")


class _Record(msgspec.Struct, frozen=True):
    """What belongs to the tree of a commit: its version, its digest, and the commits of its submodules by place."""

    version: str
    digest: Digest
    submodules: dict[str, str]


class GitSource(msgspec.Struct, frozen=True):
    """A repository's URL, and the branch, tag or commit wanted of it."""

    url: str
    ref: str

    @classmethod
    def parse(cls, spec: str) -> GitSource:
        """Read ``git+https://HOST/PATH@REF``; :raises UsageError: for another shape, or what git or ssh takes for an option."""
        url, _, ref = spec.removeprefix("git+").rpartition("@")
        match = _URL.fullmatch(url)
        if match is None:
            raise UsageError(
                f"'{spec}' is not a git source: expected git+URL@REF, with a URL of https, ssh or file and no blanks.",
                hint="For example: --upstream git+https://HOST/PATH.git@main, or git+ssh://git@HOST/PATH.git@v2.8.3",
            )
        scheme, server, path = match.groups()
        if server.startswith("-") or "@-" in server:
            raise UsageError(
                f"'{url}' is refused: its host or user begins with '-', which ssh takes for an option.",
                hint="Fix the URL: --upstream git+ssh://git@HOST/PATH.git@main",
            )
        if not ref or ref.startswith("-") or _NOT_IN_REFS.search(ref):
            raise UsageError(
                f"'{ref}' is not the name of a branch, tag or commit.", hint="List them with: git ls-remote URL"
            )
        if scheme == "file" and not Path(url2pathname(path)).is_dir():
            raise UsageError(
                f"'{url}' is not there: {url2pathname(path)} is not a folder.",
                hint="Fix the path: --upstream git+file:///PATH@REF",
            )
        return cls(url, ref)

    @property
    def is_local(self) -> bool:
        """Whether the repository is a folder of this machine."""
        return self.url.startswith("file:")

    def require_reach(self, doing: str) -> None:
        """:raises NetworkError: when it is elsewhere and the network is forbidden."""
        if not self.is_local:
            require_network(f"{doing} {self.public_url}")

    @property
    def public_url(self) -> str:
        """The URL without a password or token, fit for manifests and messages."""
        scheme, _, rest = self.url.partition("://")
        server, slash, path = rest.partition("/")
        user, _, host = server.rpartition("@")
        # With https a token may take the user's place; with ssh the user's name is part of the address.
        shown = f"{user.partition(':')[0]}@" if user and scheme == "ssh" else ""
        return f"{scheme}://{shown}{host}{slash}{path}"


def obtain_commit(layout: Layout, source: GitSource, cache: Path) -> SourceTree:
    """The tree of a commit, with its submodules, fetching what the cache lacks.

    A branch or tag is looked up again each time; a full commit hash is not, so one that is in the cache works offline.
    """
    with disk_errors(cache):
        commit = _commit_of(source)
        folder = make_whole(cache / f"commit-{commit}", lambda folder: _export(layout, source, commit, folder))
    record = read(read_json(folder / _RECORD), _Record)
    origin, commits = f"git+{source.public_url}", {".": commit, **record.submodules}
    identity = UpstreamId(record.version, record.digest, origin, commits)
    return SourceTree.read(layout, folder / _TREE, identity)


def _commit_of(source: GitSource) -> str:
    """The full hash of what is wanted: a branch, a tag or a short hash, in that order.

    A full hash is only that commit: a branch of the same name would make a pin mean something else.
    """
    ref = source.ref
    if _FULL_COMMIT.fullmatch(ref):
        return ref
    source.require_reach(f"Looking up '{ref}' of")
    names = (f"refs/heads/{ref}", f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}")
    lines = (line.split("\t") for line in _ask(source, "ls-remote", "--quiet", "--", source.url, *names).splitlines())
    found = {name: commit for commit, name in lines}
    commit = next((found[name] for name in names if name in found), "")
    if not commit and _SHORT_COMMIT.fullmatch(ref):
        with tempfile.TemporaryDirectory(prefix="flashdepot-git-") as folder, contextlib.suppress(GitFailed):
            _ask(source, "clone", "--quiet", "--bare", "--filter=tree:0", "--template=", "--", source.url, folder)
            commit = git("--git-dir", folder, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}").strip()
    if not commit:
        raise UsageError(
            f"{source.public_url} has no branch, tag or commit '{ref}'.",
            hint=f"git ls-remote {source.public_url} lists its branches and tags.",
        )
    return commit


def _ask(source: GitSource, *arguments: str) -> str:
    """Run git on the repository; :raises NetworkError: when it fails."""
    try:
        return git(*arguments, local=source.is_local)
    except GitFailed as error:
        raise NetworkError(
            f"{source.public_url} cannot be fetched at '{source.ref}': {error}",
            hint=f"See whether git itself can reach it: git ls-remote {source.public_url}",
        ) from error


def _export(layout: Layout, source: GitSource, commit: str, folder: Path) -> None:
    """Fill ``folder`` with the tree of a commit and a record of what it is made of."""
    source.require_reach(f"Fetching {commit} of")
    checkout, tree = folder / "checkout", folder / _TREE
    git("init", "--quiet", "--template=", "--", str(checkout))
    # git resolves a submodule's relative URL against where its parent came from.
    git("-C", str(checkout), "config", "remote.origin.url", source.url)
    fetch = ("-C", str(checkout), "fetch", "--quiet", "--no-tags", "--no-recurse-submodules")
    try:
        git(*fetch, "--depth", "1", "--", source.url, commit, local=source.is_local)
    except GitFailed:  # some servers give only what a branch or tag leads to
        _ask(source, *fetch, "--update-head-ok", "--", source.url, *_ALL)
    _ask(source, "-C", str(checkout), "checkout", "--quiet", "--detach", commit, "--")
    submodules = _check_out_submodules(layout, source, checkout, folder.parent)
    for name in layout.kept:
        if (checkout / name).exists():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (checkout / name).rename(tree / name)
    shutil.rmtree(checkout)
    files = PlainFiles(tree)
    layout.require_complete(files)
    record = _Record(layout.version(files), source_digest(layout, files), submodules)
    write_json(folder / _RECORD, msgspec.to_builtins(record))


def _check_out_submodules(layout: Layout, source: GitSource, checkout: Path, cache: Path) -> dict[str, str]:
    """Fill in the submodules that a build needs, where the commit has them, and return their commits by place."""
    entries = {place: git("-C", str(checkout), "ls-tree", "HEAD", "--", place).split() for place in layout.submodules}
    # mode, type, hash, place
    submodules = {place: entry[2] for place, entry in entries.items() if entry[1:2] == ["commit"]}
    if not submodules:
        return {}
    if known := _tree_with(submodules, cache):
        for place in submodules:
            shutil.copytree(known / place, checkout / place, dirs_exist_ok=True)
        return submodules
    update = ("submodule", "--quiet", "update", "--init", "--checkout", "--depth", "1")
    _ask(source, "-C", str(checkout), *update, "--", *submodules)
    return submodules


def _tree_with(submodules: dict[str, str], cache: Path) -> Path | None:
    """Find a tree in the cache with the same submodules: most commits do not change them."""
    for folder in cache.glob("commit-*"):
        if is_whole(folder) and read_json(folder / _RECORD)["submodules"] == submodules:
            return folder / _TREE
    return None
