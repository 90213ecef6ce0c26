"""``.gitattributes``: libraries go to Git LFS, and no file's line endings are touched."""

from __future__ import annotations

_LFS = "filter=lfs diff=lfs merge=lfs -text"


def attribute_lines(folder: str) -> tuple[str, ...]:
    """The lines for one target's folder, with paths as from the file beside it.

    ``-text`` comes first and for all: a header whose line endings were changed by a checkout has another digest.
    """
    return (f"/{folder}/** -text", f"/{folder}/lib/shared/* {_LFS}", f"/{folder}/lib/static/* {_LFS}")


def with_lines(existing: bytes, wanted: tuple[str, ...]) -> bytes:
    """The file's bytes with the wanted lines added at its end, where they count most; those it has stay where they are.

    Its own lines, comments, line endings and order are kept byte for byte.
    """
    ending = b"\r\n" if b"\r\n" in existing else b"\n"
    have = {b" ".join(line.split()) for line in existing.splitlines()}
    missing = [line.encode() for line in wanted if b" ".join(line.encode().split()) not in have]
    if not missing:
        return existing
    start = existing if not existing or existing.endswith(b"\n") else existing + ending
    return start + b"".join(line + ending for line in missing)
