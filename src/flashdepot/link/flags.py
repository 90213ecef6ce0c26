"""What a compiler and a linker need to be told."""

from __future__ import annotations

from dataclasses import dataclass

from flashdepot.link.library import LinkableLibrary, LinkKind

STATIC_NEEDS = ("-lstdc++", "-ldl", "-lrt", "-lpthread")
"""What the static library and the static CUDA runtime beside it refer to, in a linker's order."""


@dataclass(frozen=True)
class Flags:
    """Arguments for g++ and clang++, and for gcc and clang: those that go before the sources, and those after them."""

    compile: tuple[str, ...]
    link: tuple[str, ...]


def flags(library: LinkableLibrary, kind: LinkKind) -> Flags:
    """The arguments that use a library from where it lies.

    A program with the shared one finds it again by an ``-rpath``; the static one leaves no trace of its folder.
    """
    include = f"-I{library.include}"
    folder = library.folder(kind)
    if kind is LinkKind.SHARED:
        return Flags((include,), (f"-L{folder}", f"-Wl,-rpath,{folder}", "-lflashattention"))
    archives = (str(folder / "libflashattention.a"), str(folder / "libcudart_static.a"))
    return Flags((include, "-DFA2_STATIC"), (*archives, *STATIC_NEEDS))
