"""Start a program that sees only some files, and no network: Linux's Landlock, and a network namespace of its own.

    python -I -S landlock.py SPEC PROGRAM ARGUMENT...

SPEC is a JSON object: ``readable`` and ``writable`` list files and folders. Without a program it says as JSON what it
can close: ``files``, ``network`` and ``tcp``. Landlock: https://docs.kernel.org/userspace-api/landlock.html; the numbers are those
of ``linux/landlock.h``, and its system calls have the same on every architecture.
"""

import ctypes
import json
import os
import stat
import sys

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1
_NO_NEW_PRIVS = 38
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_ALL_BY_VERSION = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
_TCP, _WITH_TCP = 0b11, 4  # bind and connect, from version 4 on
_SCOPES, _WITH_SCOPES = 0b11, 6  # abstract sockets and signals, from version 6 on

_libc = ctypes.CDLL(None, use_errno=True)


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def version() -> int:
    """The version of Landlock that the kernel speaks, 0 where it has none or it is turned off."""
    spoken: int = _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))
    return max(0, spoken)


def leave_network() -> bool:
    """Leave the network for an empty one; :returns: whether that is allowed."""
    return any(_libc.unshare(flags) == 0 for flags in (_NEW_NETWORK, _NEW_USER | _NEW_NETWORK))


def restrict(readable: list[str], writable: list[str]) -> None:
    """Take from this process, and all that it starts, every file but these.

    :raises OSError: when the kernel refuses.
    """
    spoken = version()
    everything = _ALL_BY_VERSION[min(spoken, max(_ALL_BY_VERSION))]
    attributes = _Ruleset(everything, _TCP if spoken >= _WITH_TCP else 0, _SCOPES if spoken >= _WITH_SCOPES else 0)
    size = 24 if spoken >= _WITH_SCOPES else 16 if spoken >= _WITH_TCP else 8  # as the structure grew
    ruleset = _require(_libc.syscall(_CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), 0))
    for paths, allowed in ((readable, _READ), (writable, everything)):
        for path in paths:
            _allow(ruleset, path, allowed & everything)
    _require(_libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0))
    _require(_libc.syscall(_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def _allow(ruleset: int, path: str, allowed: int) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # what is not there needs no permission
        return
    if not stat.S_ISDIR(os.fstat(parent).st_mode):
        allowed &= _OF_FILES
    rule = _PathBeneath(allowed, parent)
    _require(_libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0))
    os.close(parent)


def _require(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def main(arguments: list[str]) -> None:
    """Confine this process and become the program."""
    specification, *command = arguments
    alone = leave_network()
    if not command:
        sys.stdout.write(json.dumps({"files": version() > 0, "network": alone, "tcp": version() >= _WITH_TCP}))
        return
    seen = json.loads(specification)
    restrict(seen["readable"], seen["writable"])
    os.execvp(command[0], command)  # noqa: S606  (no shell: that is the point)


if __name__ == "__main__":
    main(sys.argv[1:])
