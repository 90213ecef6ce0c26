"""Start a program that sees only some files, has no sockets, and cannot change what it only reads.

    python -I -S confine.py SPEC PROGRAM ARGUMENT...

SPEC is a JSON object: ``by`` is ``bubblewrap`` or ``landlock``, ``cwd`` the folder to start in, and ``readable`` and
``writable`` list files and folders. With only ``by`` it finds out whether that works here: exit status 0. Either way a
seccomp filter refuses what has to do with neither files nor compiling. Landlock:
https://docs.kernel.org/userspace-api/landlock.html; numbers are those of ``linux/landlock.h``, ``linux/seccomp.h`` and
``asm/unistd.h``. The filter is a table of our own, not libseccomp's: that is a shared library which few machines have.
"""

import ctypes
import json
import os
import platform
import stat
import struct
import sys

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1
_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_DEVICES = 1 << 6 | 1 << 11
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_ALL_BY_VERSION = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
_SCOPES, _WITH_SCOPES = 0b11, 6  # abstract sockets and signals, from version 6 on

_EVERYWHERE = (
    *range(424, 434),  # signals by descriptor, io_uring, and the newer calls for mounts
    *(438, 440, 442, 448, 467),  # other processes' files and memory, mounts
    *(452, 463, 466, 469),  # fchmodat2, setxattrat, removexattrat, file_setattr
)
"""What is refused, by the number that it has on every CPU."""

_REFUSED = {
    "x86_64": (
        0xC000003E,
        56,
        (
            *(41, 42, 49, 50, 53),  # socket, connect, bind, listen, socketpair
            *(90, 91, 92, 93, 94, 260, 268),  # chmod, chown and their kin
            *(132, 235, 261, 280),  # times of files
            *(188, 189, 190, 197, 198, 199),  # extended attributes
            *(29, 30, 31, 64, 68, 69, 70, 71, 240, 241),  # shared memory, semaphores, messages
            *(101, 310, 311, 312),  # other processes' memory
            *(248, 249, 250),  # keys
            *(155, 161, 165, 166, 272, 308),  # mounts and namespaces
            *(133, 259, 303, 304),  # devices, and files by their handles
            *(163, 164, *range(167, 174), 175, 176, 179),  # what only root may
            *(227, 246, 305, 313, 320),
            *(103, 298, 300, 321, 323),  # the kernel's log, counters, watches and programs
        ),
    ),
    "aarch64": (
        0xC00000B7,
        220,
        (
            *(198, 203, 200, 201, 199),
            *(52, 53, 54, 55),
            *(88,),
            *(5, 6, 7, 14, 15, 16),
            *(194, 196, 195, 190, 186, 189, 188, 187, 180, 181),
            *(117, 270, 271, 272),
            *(217, 218, 219),
            *(41, 51, 40, 39, 97, 268),
            *(33, 264, 265),
            *(89, 170, 224, 225, 142, 161, 162, 105, 106, 60, 112, 104, 266, 273, 294),
            *(116, 241, 262, 280, 282),
        ),
    ),
}
"""By CPU: its number for auditors, that of ``clone``, and the calls that are refused."""

_NEW_NAMESPACES = 0x7E020000  # of clone's flags
_CLONE3, _X32 = 435, 0x40000000
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_LOAD, _IS, _AT_LEAST, _HAS, _GIVE = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _CPU_AT, _FIRST_ARGUMENT_AT = 0, 4, 16

_libc = ctypes.CDLL(None, use_errno=True)


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def seccomp_filter(machine: str) -> bytes:
    """The filter for a CPU, as ``struct sock_filter`` has it; :raises KeyError: for one without a table."""
    cpu, clone, calls = _REFUSED[machine]
    refuse = (_GIVE, 0, 0, _ERROR | _EPERM)
    steps = [(_LOAD, 0, 0, _CPU_AT), (_IS, 1, 0, cpu), refuse]
    steps += [(_LOAD, 0, 0, _NUMBER_AT), (_AT_LEAST, 0, 1, _X32), refuse]
    # glibc and musl do with clone what they cannot do with clone3, whose flags no filter can see.
    steps += [(_IS, 0, 1, _CLONE3), (_GIVE, 0, 0, _ERROR | _ENOSYS)]
    for call in sorted({*calls, *_EVERYWHERE}):
        steps += [(_IS, 0, 1, call), refuse]
    steps += [(_IS, 0, 3, clone), (_LOAD, 0, 0, _FIRST_ARGUMENT_AT), (_HAS, 0, 1, _NEW_NAMESPACES), refuse]
    return b"".join(struct.pack("=HBBI", *step) for step in (*steps, (_GIVE, 0, 0, _ALLOW)))


def by_landlock(readable: list[str], writable: list[str]) -> None:
    """Take from this process, and all that it starts, every file but these, and the calls that are refused.

    :raises OSError: when the kernel refuses.
    """
    spoken = _require(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG)))
    everything = _ALL_BY_VERSION[min(spoken, max(_ALL_BY_VERSION))]
    attributes = _Ruleset(everything, 0, _SCOPES if spoken >= _WITH_SCOPES else 0)
    size = 24 if spoken >= _WITH_SCOPES else 8  # as the structure grew
    ruleset = _require(_libc.syscall(_CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), 0))
    for paths, allowed in ((readable, _READ), (writable, everything & ~_MAKE_DEVICES)):
        for path in paths:
            _allow(ruleset, path, allowed & everything)
    _require(_libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0))
    _require(_libc.syscall(_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)
    code = seccomp_filter(platform.machine())
    _require(_libc.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(_Program(len(code) // 8, code)), 0, 0))


def bubblewrap(readable: list[str], writable: list[str], cwd: str) -> list[str]:
    """The words before a command that bubblewrap is to run; it reads the filter from a file that it inherits."""
    code = os.memfd_create("filter", 0)
    os.write(code, seccomp_filter(platform.machine()))
    os.lseek(code, 0, os.SEEK_SET)
    binds: list[tuple[str, str]] = []
    wanted = [("--ro-bind-try", path) for path in readable] + [("--bind-try", path) for path in writable]
    for option, path in sorted(wanted, key=lambda bind: bind[1]):  # what is inside something else comes after it
        around = [outer for outer, folder in binds if path.startswith(f"{folder}/")]
        if around[-1:] != [option]:  # else it is there, perhaps as a link over which nothing can be mounted
            binds.append((option, path))
    mounts = [word for option, path in binds for word in (option, path, path)]
    # As its process 1 the program is waited for by bubblewrap itself, which so counts its costs.
    isolated = ("--unshare-all", "--die-with-parent", "--new-session", "--as-pid-1", "--seccomp", str(code))
    return ["bwrap", *isolated, "--tmpfs", "/tmp", "--dev", "/dev", "--proc", "/proc", *mounts, "--chdir", cwd, "--"]  # noqa: S108  (an empty one)


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
    seen = json.loads(specification)
    if seen["by"] == "bubblewrap":
        command = [*bubblewrap(seen["readable"], seen["writable"], seen["cwd"]), *command]
    else:
        os.get_exec_path()  # imports what could not be read afterwards
        by_landlock(seen["readable"], seen["writable"])
    os.execvp(command[0], command)  # noqa: S606  (no shell: that is the point)


if __name__ == "__main__":
    main(sys.argv[1:])
