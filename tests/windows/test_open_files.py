"""Windows removes no file that is open: locks and workspaces leave nothing behind there, and stop nothing."""

import errno
import os
import sys
from pathlib import Path

import pytest

from flashdepot.depot import Depot
from flashdepot.files import locks
from flashdepot.files.locks import lock_file, try_lock_file

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux, which says what is open")


@pytest.fixture(autouse=True)
def _as_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    remove = Path.unlink

    def unlink(path: Path, missing_ok: bool = False) -> None:
        opened = [one.readlink() for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
        if path in opened:
            raise PermissionError(errno.EACCES, "The process cannot access the file", str(path))
        remove(path, missing_ok)

    class Windows:
        """``os`` with the name of Windows'."""

        name = "nt"

        def __getattr__(self, attribute: str) -> object:
            return getattr(os, attribute)

    monkeypatch.setattr(Path, "unlink", unlink)
    monkeypatch.setattr(locks, "os", Windows())


def test_a_lock_that_is_discarded_leaves_no_file(tmp_path: Path) -> None:
    with lock_file(tmp_path / "lock") as held:
        with pytest.raises(PermissionError):
            (tmp_path / "lock").unlink()
        held.discard()
    assert list(tmp_path.iterdir()) == []


def test_one_that_another_has_open_stays_for_that_one(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("wb"), lock_file(tmp_path / "lock") as held:
        held.discard()
        assert (tmp_path / "lock").exists()
    again = try_lock_file(tmp_path / "lock")
    assert again is not None
    again.discard()
    assert list(tmp_path.iterdir()) == []


def test_a_workspace_ends(tmp_path: Path) -> None:
    depot = Depot(tmp_path / "depot")
    with depot.workspace() as work:
        (work / "file").write_text("x")
    assert not [path for path in work.parent.iterdir() if path.name.startswith("work-")]
