"""What a compiler and a linker need to be told."""

from __future__ import annotations

import msgspec

from flashdepot.link.library import LinkableLibrary, LinkKind

STATIC_NEEDS = ("-lstdc++", "-ldl", "-lrt", "-lpthread")
"""What the static library and the static CUDA runtime beside it refer to on Linux, in a linker's order."""

OWN_NEEDS = ("-ldl", "-lpthread")
"""What a static library without NVIDIA's runtime refers to on Linux."""

ONE_C_RUNTIME = "/NODEFAULTLIB:LIBCMT"
"""cudart_static.lib asks for the static C runtime, the kernels for the shared one; two do not go together."""

SYSTEM_LIBRARIES = ("kernel32.lib", "advapi32.lib", "shell32.lib", "user32.lib")
"""What the static CUDA runtime needs of Windows."""

TO_LINKER = "/link"
"""What stands before the arguments that ``cl`` hands to ``link``; they are the last ones of a command."""


class Flags(msgspec.Struct, frozen=True):
    """Arguments for a compiler: those that go before the sources, and those after them.

    For a library for Linux they are those of gcc, clang and their C++ companions; for one for Windows those of ``cl``
    and ``clang-cl``, and what follows :data:`TO_LINKER` is what ``link`` and ``lld-link`` take.
    """

    compile: tuple[str, ...]
    link: tuple[str, ...]


def flags(library: LinkableLibrary, kind: LinkKind) -> Flags:
    """The arguments that use a library from where it lies.

    On Linux a program with the shared one finds it again by an ``-rpath``. The static one leaves no trace of its folder.
    """
    return _for_cl(library, kind) if library.manifest.platform.system == "windows" else _for_gcc(library, kind)


def _for_gcc(library: LinkableLibrary, kind: LinkKind) -> Flags:
    include = f"-I{library.include}"
    folder = library.folder(kind)
    if kind is LinkKind.SHARED:
        return Flags((include,), (f"-L{folder}", f"-Wl,-rpath,{folder}", "-lflashattention"))
    archives = tuple(str(folder / name) for name in library.archives)
    needs = STATIC_NEEDS if len(archives) > 1 else OWN_NEEDS
    return Flags((include, "-DFA_STATIC"), (*archives, *needs))


def _for_cl(library: LinkableLibrary, kind: LinkKind) -> Flags:
    include = f"/I{library.include}"
    folder = (TO_LINKER, f"/LIBPATH:{library.folder(kind)}")
    if kind is LinkKind.SHARED:
        return Flags((include,), (*folder, library.names.shared_linked))
    libraries = (*library.archives, *SYSTEM_LIBRARIES)
    # The objects use the C runtime as a DLL, so the program has to as well.
    return Flags(("/MD", include, "/DFA_STATIC"), (*folder, *libraries, ONE_C_RUNTIME))
