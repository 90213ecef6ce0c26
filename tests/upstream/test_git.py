import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flashdepot.errors import MissingToolError, NetworkError, UsageError
from flashdepot.upstream.git import GitSource
from support.tools import tool, write_files
from support.upstreams import (
    UNITS,
    commit_all,
    cutlass_files,
    identify,
    make_folder,
    make_repository,
    obtain,
    run_git,
    tree_files,
)

HEADER = "csrc/flash_attn/src/flash.h"


@pytest.fixture(scope="module")
def forge(tmp_path_factory):
    """Repositories of flash-attention and of CUTLASS, its submodule under a relative URL, as on a forge."""
    tool("git")
    root = tmp_path_factory.mktemp("git") / "forge"
    make_repository(root / "cutlass", cutlass_files())
    folder = make_repository(root / "flash-attention", tree_files())
    run_git(folder, "submodule", "--quiet", "add", "../cutlass", "csrc/cutlass")
    commit_all(folder, "add cutlass")
    return root


@pytest.fixture
def repository(forge, tmp_path):
    """A copy of these repositories that may be changed; gives that of flash-attention."""
    return shutil.copytree(forge, tmp_path / "forge", symlinks=True) / "flash-attention"


def spec(repository, ref="main"):
    return f"git+{repository.as_uri()}@{ref}"


def head(repository):
    return run_git(repository, "rev-parse", "HEAD")


def change(repository, text):
    write_files(repository, {HEADER: text})
    return commit_all(repository)


def header(tree):
    return (tree.root / HEADER).read_text()


def test_a_branch_becomes_a_tree_with_cutlass_and_its_commits_on_record(repository, cache, tmp_path):
    tree = obtain(spec(repository), cache)
    assert tree.units == UNITS
    assert (tree.id.version, tree.id.origin) == ("9.9.9", f"git+{repository.as_uri()}")
    assert tree.id.commits == {".": head(repository), "csrc/cutlass": head(tmp_path / "forge/cutlass")}
    assert tree == identify(spec(repository), cache)
    assert not (tree.root / "csrc/composable_kernel").exists()
    assert not list(tree.root.rglob(".git"))


def test_a_commit_and_a_folder_with_the_same_bytes_have_the_same_digest(repository, cache, tmp_path):
    folder = make_folder(tmp_path / "folder")
    assert obtain(spec(repository), cache).id.digest == identify(str(folder), cache).id.digest


def test_a_branch_that_moved_is_picked_up_and_an_earlier_commit_can_be_gone_back_to(repository, cache):
    first = obtain(spec(repository), cache)
    new = change(repository, "// new\n")
    second = obtain(spec(repository), cache)
    assert (header(second), second.id.commits["."]) == ("// new\n", new)
    assert second.id.digest != first.id.digest
    back = obtain(spec(repository, first.id.commits["."]), cache)
    assert (back.id, header(back)) == (first.id, header(first))


def test_a_server_that_gives_only_what_a_branch_leads_to_is_asked_for_its_branches(repository, cache, monkeypatch):
    first = head(repository)
    change(repository, "// new\n")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "protocol.version")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "0")
    assert header(obtain(spec(repository, first), cache)) == "#pragma once\n"


def test_a_branch_that_was_rewritten_is_picked_up(repository, cache):
    change(repository, "// old\n")
    obtain(spec(repository), cache)
    run_git(repository, "reset", "--quiet", "--hard", "HEAD~1")
    change(repository, "// rewritten\n")
    assert header(obtain(spec(repository), cache)) == "// rewritten\n"


@pytest.mark.parametrize("kind", ["lightweight", "annotated", "short", "branch with a slash"])
def test_tags_short_hashes_and_any_branch_name_are_resolved(repository, cache, kind):
    commit = head(repository)
    if kind == "short":
        ref = commit[:10]
    elif kind.startswith("branch"):
        ref = "feature/x"
        run_git(repository, "branch", ref)
    else:
        ref = "v9.9.9"
        run_git(repository, "tag", *(["--annotate", "--message=x"] if kind == "annotated" else []), ref)
    assert obtain(spec(repository, ref), cache).id.commits["."] == commit


def test_a_commit_that_no_branch_reaches_is_fetched_by_its_hash(repository, cache):
    lost = change(repository, "// lost\n")
    run_git(repository, "reset", "--quiet", "--hard", "HEAD~1")
    assert header(obtain(spec(repository, lost), cache)) == "// lost\n"


def test_a_branch_with_the_name_of_a_commit_does_not_stand_for_it(repository, cache):
    pinned = head(repository)
    other = change(repository, "// other\n")
    # git refuses to create such a branch by that name, a hostile server does not.
    write_files(repository, {f".git/refs/heads/{pinned}": f"{other}\n"})
    assert obtain(spec(repository, pinned), cache).id.commits["."] == pinned


def test_a_full_hash_that_is_cached_needs_no_repository_and_no_network(repository, cache, monkeypatch):
    tree = obtain(spec(repository), cache)
    write_files(repository, {".git/HEAD": "broken"})
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", "1")
    monkeypatch.setenv("PATH", "")
    assert obtain(spec(repository, tree.id.commits["."]), cache) == tree


def test_a_branch_of_a_server_cannot_be_looked_up_offline(cache, monkeypatch):
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", "1")
    with pytest.raises(NetworkError, match=r"'main' of https://host\.invalid/x\.git needs the network"):
        obtain("git+https://token@host.invalid/x.git@main", cache)


def test_a_local_repository_works_offline_but_its_submodule_of_a_server_does_not(repository, cache, monkeypatch):
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", "1")
    assert obtain(spec(repository), cache).units == UNITS
    run_git(repository, "config", "--file", ".gitmodules", "submodule.csrc/cutlass.url", "https://127.0.0.1:1/cutlass")
    remote = commit_all(repository)
    for tree in cache.glob("commit-*"):
        shutil.rmtree(tree)
    with pytest.raises(NetworkError, match="transport 'https' not allowed"):
        obtain(spec(repository, remote), cache)


def test_a_server_that_is_not_there_is_named_without_the_token(cache):
    tool("git")
    with pytest.raises(NetworkError, match=r"https://127\.0\.0\.1:1/x\.git cannot be fetched at 'main'") as caught:
        obtain("git+https://s3cret@127.0.0.1:1/x.git@main", cache)
    assert "s3cret" not in caught.value.message + caught.value.hint


def test_only_a_commit_with_new_cutlass_fetches_cutlass(repository, cache, tmp_path):
    obtain(spec(repository), cache)
    change(repository, "// new\n")
    (tmp_path / "forge/cutlass").rename(tmp_path / "forge/away")
    assert obtain(spec(repository), cache).units == UNITS


def test_a_submodule_that_cannot_be_fetched_is_named_and_leaves_nothing(repository, cache, tmp_path):
    (tmp_path / "forge/cutlass").rename(tmp_path / "forge/away")
    with pytest.raises(NetworkError, match="cannot be fetched"):
        obtain(spec(repository), cache)
    assert list(cache.iterdir()) == []
    (tmp_path / "forge/away").rename(tmp_path / "forge/cutlass")
    assert obtain(spec(repository), cache).units == UNITS


def test_the_token_of_a_submodule_url_is_not_shown(repository, cache):
    url = "https://s3cret@127.0.0.1:1/cutlass"
    run_git(repository, "config", "--file", ".gitmodules", "submodule.csrc/cutlass.url", url)
    commit_all(repository)
    with pytest.raises(NetworkError, match=r"127\.0\.0\.1:1/cutlass") as caught:
        obtain(spec(repository), cache)
    assert "s3cret" not in caught.value.message


def test_the_users_own_replacement_of_a_submodule_url_is_honoured(repository, cache, tmp_path, home):
    run_git(
        repository, "config", "--file", ".gitmodules", "submodule.csrc/cutlass.url", "https://forge.invalid/cutlass"
    )
    commit_all(repository)
    (home / ".gitconfig").write_text(
        f'[url "{(tmp_path / "forge/cutlass").as_uri()}"]\n\tinsteadOf = https://forge.invalid/cutlass\n'
    )
    assert obtain(spec(repository), cache).units == UNITS


def test_a_commit_without_the_submodule_is_refused_with_what_it_lacks(tmp_path, cache):
    tool("git")
    plain = make_repository(tmp_path / "plain", tree_files())
    with pytest.raises(MissingToolError, match="lacks CUTLASS"):
        obtain(spec(plain), cache)
    assert not list(cache.glob("commit-*"))


def test_cutlass_may_be_plain_files_of_the_commit(tmp_path, cache):
    tool("git")
    plain = make_repository(tmp_path / "plain", tree_files() | cutlass_files("csrc/cutlass/"))
    assert set(obtain(spec(plain), cache).id.commits) == {"."}


def test_a_name_that_the_repository_does_not_have_is_refused(repository, cache):
    with pytest.raises(UsageError, match="has no branch, tag or commit 'no-such-branch'"):
        obtain(spec(repository, "no-such-branch"), cache)


@pytest.mark.parametrize(
    "hostile",
    [
        "git+https://host/x.git@--upload-pack=touch pwned",
        "git+https://host/x.git@-x",
        "git+https://host/x.git@a:b",
        "git+https://host/x.git@a..b",
        "git+https://host/x.git@a b",
        "git+https://host/x.git@",
        "git+https://host/x.git",
        "git+--upload-pack=x@main",
        "git+-x@main",
        "git+ext::sh -c 'touch pwned'@main",
        "git+ssh://-oProxyCommand=touch pwned/x@main",
        "git+ssh://-oProxyCommand=x/x@main",
        "git+ssh://me@-oProxyCommand=x/x@main",
        "git+git@host:x/y.git@main",
        "git+file:///nowhere/at/all@main",
        "git+https://ho\tst/x@main",
        "git+FILE:///tmp@main",
        "git+http://host/x@main",
    ],
)
def test_a_hostile_or_crooked_source_is_refused_before_git_runs(hostile, cache, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError) as caught:
        obtain(hostile, cache)
    assert caught.value.hint
    assert not cache.exists()


@pytest.mark.parametrize(
    ("text", "url", "ref"),
    [
        ("git+https://h/x.git@feature/y", "https://h/x.git", "feature/y"),
        ("git+ssh://git@h/x.git@v1", "ssh://git@h/x.git", "v1"),
    ],
)
def test_url_and_ref_are_distinguished(text, url, ref):
    assert GitSource.parse(text) == GitSource(url, ref)


def test_a_password_never_reaches_the_record():
    assert GitSource("https://me:pw@h/x", "m").public_url == "https://h/x"
    assert GitSource("ssh://git:pw@h/x", "m").public_url == "ssh://git@h/x"


def test_hooks_do_not_run_and_links_are_not_followed(repository, cache, tmp_path, home):
    template = tmp_path / "template" / "hooks"
    template.mkdir(parents=True)
    (template / "post-checkout").write_text(f"#!/bin/sh\ntouch {tmp_path}/pwned\n")
    (template / "post-checkout").chmod(0o755)
    (home / ".gitconfig").write_text(f"[init]\n\ttemplateDir = {template.parent}\n")
    (tmp_path / "secret").write_text("secret")
    (repository / "csrc/flash_attn/src/leak.h").symlink_to(tmp_path / "secret")
    commit_all(repository)
    tree = obtain(spec(repository), cache)
    assert not (tmp_path / "pwned").exists()
    assert not (tree.root / "csrc/flash_attn/src/leak.h").is_symlink()
    assert (tree.root / "csrc/flash_attn/src/leak.h").read_text() == str(tmp_path / "secret")


def test_the_variables_of_an_outer_git_do_not_matter(repository, cache, monkeypatch, tmp_path):
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    assert obtain(spec(repository), cache).units == UNITS


def test_a_missing_git_is_named(repository, cache, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingToolError, match="needs the git program"):
        obtain(spec(repository), cache)


def test_a_tree_that_lost_a_file_is_made_again(repository, cache):
    tree = obtain(spec(repository), cache)
    (tree.root / HEADER).unlink()
    assert header(obtain(spec(repository, tree.id.commits["."]), cache)) == "#pragma once\n"


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
@pytest.mark.parametrize("command", ["init", "fetch", "checkout", "submodule"])
def test_a_kill_after_any_step_leaves_no_half_tree_and_the_next_run_completes_it(repository, cache, command):
    code = (
        "import os, pathlib, sys; from flashdepot.upstream import git as module; from flashdepot.kernels.fa2 import Fa2\n"
        "real = module.git\n"
        "def die(*a, **k):\n"
        "    result = real(*a, **k)\n"
        "    if sys.argv[3] in a: os.kill(os.getpid(), 9)\n"
        "    return result\n"
        "module.git = die\n"
        "Fa2.sources.obtain(sys.argv[1], pathlib.Path(sys.argv[2]))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    arguments = [sys.executable, "-c", code, spec(repository), str(cache), command]
    assert subprocess.run(arguments, env=environment, check=False).returncode == -signal.SIGKILL
    assert not list(cache.glob("commit-*"))
    assert obtain(spec(repository), cache).units == UNITS
