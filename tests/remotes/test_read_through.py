from __future__ import annotations

from pathlib import Path

from remotes.machines import Machine


def test_a_library_that_one_machine_pushed_is_fetched_by_another(
    builder: Machine, user: Machine, tmp_path: Path
) -> None:
    line = builder.key()
    builder.run("remote", "add", "team", f"file://{tmp_path}/share", "--push")
    (tmp_path / "share").mkdir()
    assert builder.get()["status"] == "built"
    user.run("remote", "add", "team", f"file://{tmp_path}/share")
    user.run("keys", "trust", line)
    planned = user.get("--dry-run")
    assert planned["status"] == "offered"
    assert planned["size"] > 0
    assert not list(user.depot.glob("artifacts/*")), "a dry run fetches nothing"
    got = user.get()
    assert planned["recipe_key"] == got["recipe_key"]
    assert got["status"] == "fetched"
    assert got["units"]["compiled"] == 0
    assert user.get()["status"] == "hit"
