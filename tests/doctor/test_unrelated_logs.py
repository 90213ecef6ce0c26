"""What programs that have nothing to do with FlashAttention print when they fail, as they print it now."""

import subprocess
import sys
from pathlib import Path

import pytest

from doctor.logs import classes
from support.tools import tool

PYTHON = {
    "a missing key": "{}['a']",
    "a missing name": "from os import nothing",
    "a missing file": "open('/nonexistent/file.txt')",
    "a failed assertion": "assert 1 == 2, 'no'",
    "a chain of exceptions": "try:\n  1/0\nexcept Exception as e:\n  raise ValueError('bad') from e",
    "a refused connection": "import urllib.request as u; u.urlopen('http://127.0.0.1:1/')",
    "a broken archive": "import zipfile, io; zipfile.ZipFile(io.BytesIO(b'x'))",
    "broken compression": "import zlib; zlib.decompress(b'abc')",
    "a missing library": "import ctypes; ctypes.CDLL('libnosuch.so.3')",
    "a missing function": "import ctypes; ctypes.CDLL(None).no_such_function",
    "a program that failed": "import subprocess; subprocess.run(['false'], check=True)",
    "a program that is missing": "import subprocess; subprocess.run(['no-such-program'])",
    "too much memory": "bytearray(10**15)",
    "a wrong argument": "def flash(a): pass\nflash(b=1)",
    "a timeout": "raise TimeoutError('timed out waiting for the lock')",
    "an operator that is not there": "raise NotImplementedError('no operator for this')",
    "a syntax error": "def f(:\n pass",
}
CPLUSPLUS = {
    "an undeclared name": "int main(){return x;}",
    "an error directive": '#error "unsupported platform"',
    "a missing function": "void f();int main(){f();}",
    "a template": "#include <map>\nint main(){std::map<int,int> m; m.push_back(1);}",
    "a static assertion": 'static_assert(sizeof(int)==8,"int is not 8");int main(){}',
}


def failing(command: list[str], **more: object) -> bytes:
    done = subprocess.run(command, capture_output=True, check=False, **more)  # type: ignore[call-overload]
    assert done.returncode != 0
    return done.stdout + done.stderr


@pytest.mark.parametrize("what", PYTHON)
def test_a_traceback_of_another_program_is_not_claimed(what: str) -> None:
    assert classes(failing([sys.executable, "-c", PYTHON[what]])) == []


@pytest.mark.parametrize(
    ("text", "options"),
    [
        *((text, []) for text in CPLUSPLUS.values()),
        *(("int main(){}", words) for words in (["-L/nowhere", "-lnosuchlib"], ["-march=nonsense"], ["-frobnicate"])),
    ],
    ids=[*CPLUSPLUS, "library", "architecture", "option"],
)
def test_an_error_of_another_compilation_is_not_claimed(text, options, tmp_path) -> None:
    source = tmp_path / "main.cpp"
    source.write_text(text)
    assert classes(failing([tool("g++"), str(source), *options, "-o", str(tmp_path / "main")])) == []


def test_what_pip_says_itself_means_the_same_for_any_package(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--target", str(tmp_path), "no-such-thing==9"]
    assert classes(failing(command)) == ["version-not-published"]


def test_a_module_that_python_does_not_find_is_named_in_any_program() -> None:
    assert classes(failing([sys.executable, "-c", "import no_such_module"])) == ["module-missing"]


def test_a_full_disk_is_named_whatever_was_written_to_it() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    program = "open('/dev/full', 'w').write('x' * 100000)"
    assert classes(failing([sys.executable, "-c", program])) == ["disk-full"]
