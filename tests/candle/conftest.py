"""run_mha over a library that only records."""

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from candle_recorder import Recorded, compile_over_recorder, python_here

FORMS = (35, 37, 45)


@pytest.fixture(scope="session")
def recorded_path(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Compile run_mha of an argument list over the recorder, once."""
    folder = tmp_path_factory.mktemp("candle")

    def compile_form(form: int) -> Path:
        library = folder / f"librecorded{form}.so"
        return library if library.exists() else compile_over_recorder(form, library)

    return compile_form


@pytest.fixture
def in_a_process(recorded_path: Callable[[int], Path]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Make one call in a process of its own, because it may abort; it prints the status and what was asked."""

    def call(
        form: int, arguments: dict[str, object], *, fails: str = "", workspace: int = 0, **env: str
    ) -> subprocess.CompletedProcess[str]:
        code = (
            "import ctypes; from candle_recorder import Recorded\n"
            f"mha = Recorded(ctypes.CDLL({str(recorded_path(form))!r}), {form})\n"
            f"mha.reset({fails!r}, {workspace})\n"
            f"print(mha({arguments!r}), *mha.calls(), mha.error, sep='|')"
        )
        return python_here(code, **env)

    return call


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


@pytest.fixture
def load(recorded_path: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Recorded]:
    """Load run_mha of an argument list, with nothing recorded yet."""
    for name in ("FLASHDEPOT_CANDLE_ON_ERROR", "FLASHDEPOT_CANDLE_SYNCHRONIZE"):
        monkeypatch.delenv(name, raising=False)

    def loaded(form: int) -> Recorded:
        mha = Recorded(ctypes.CDLL(str(recorded_path(form))), form)
        mha.reset()
        return mha

    return loaded


@pytest.fixture
def mha(load: Callable[[int], Recorded], form: int) -> Recorded:
    return load(form)
