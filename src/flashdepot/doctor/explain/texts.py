"""Which of many texts are in a piece of a log, found fast."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

_LETTERS = bytes(ord(" ") if chr(b).isascii() and not chr(b).isalpha() else b for b in range(256))
_TELLING = 3  # shorter words are in so many others that looking for them tells nothing
_COMMON = 100  # a part that so many words have is taken to be everywhere
_REMEMBERED = 1 << 20  # bytes of words: what is remembered of a log is bounded


class Texts:
    """Texts in lower case, to be looked for in one piece of a log after another.

    Logs repeat themselves. A piece is taken apart into words, and a text is looked for only if each of its own words
    is part of one of them, which is found out once for each word of the log. Of a new word, its runs of letters are
    looked at first: they repeat themselves even where numbers do not.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._encoded = {text: text.encode() for text in texts}
        self._words = {text: _telling(data.split()) for text, data in self._encoded.items()}
        words = frozenset[bytes]().union(*self._words.values())
        self._runs = {word: _telling(_runs(word)) for word in words}
        self._met_words = _Met(words)
        self._met_runs = _Met(frozenset[bytes]().union(*self._runs.values()))

    def present_in(self, lowered: bytes) -> set[str]:
        """Return the texts that are in a piece of a log.

        :param lowered: the piece, in lower case.
        """
        words = self._met_words.parts_of(set(lowered.split()), self._likely)
        return {text for text, data in self._encoded.items() if self._words[text] <= words and data in lowered}

    def _likely(self, joined: bytes) -> list[bytes]:
        """Those of the texts' words whose runs of letters are all there."""
        there = self._met_runs.parts_of(set(_runs(joined)))
        return [word for word, runs in self._runs.items() if runs <= there]


class _Met:
    """Words of a log that were met, and which of them have which parts."""

    def __init__(self, parts: Iterable[bytes]) -> None:
        self._holders: dict[bytes, set[bytes]] = {part: set() for part in parts}
        self._known: set[bytes] = set()
        self._size = 0

    def parts_of(self, words: set[bytes], likely: Callable[[bytes], Iterable[bytes]] | None = None) -> set[bytes]:
        """Return the parts that some of the words have.

        :param likely: names the parts that new words, joined, can have; left out, all are tried.
        """
        if self._size > _REMEMBERED:
            self._forget()
        new = words - self._known
        joined = b" ".join(new)
        self._size += len(joined)
        self._known |= new
        for part in likely(joined) if likely else self._holders:
            holders = self._holders[part]
            if len(holders) < _COMMON and part in joined:
                holders.update(islice(_words_with(part, joined), _COMMON))
        return {part for part, has in self._holders.items() if len(has) >= _COMMON or not has.isdisjoint(words)}

    def _forget(self) -> None:
        self._size = 0
        self._known.clear()
        for holders in self._holders.values():
            holders.clear()


def _telling(words: Iterable[bytes]) -> frozenset[bytes]:
    return frozenset(word for word in words if len(word) >= _TELLING)


def _words_with(part: bytes, joined: bytes) -> Iterator[bytes]:
    found = joined.find(part)
    while found >= 0:
        end = joined.find(b" ", found)
        end = end if end >= 0 else len(joined)
        yield joined[joined.rfind(b" ", 0, found) + 1 : end]
        found = joined.find(part, end)


def _runs(data: bytes) -> list[bytes]:
    return data.translate(_LETTERS).split()
