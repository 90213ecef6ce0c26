"""How much the words of a line speak for a person who wrote it.

Programs say what must be and what was expected, and leave out articles; persons write of themselves, of this and that,
and ask. What a word says for a person is data, ``voices`` of ``sentences.toml``: weights of a logistic regression, rounded.
"""

from __future__ import annotations

import re

from flashdepot.diagnose.explain.rules import SENTENCES

QUOTED = re.compile(r"`+[^`\n]*`+|\"[^\"\n]*\"|(?<!\w)'[^'\n]*'(?!\w)")

_FEW = 5
"""Plain words that a sentence has."""

_WEIGHTS = {word: int(weight) for weight, words in SENTENCES.voices.items() for word in words.split()}
_WORD = re.compile(r"\b[A-Za-z][a-z]*(?:'[a-z]+)?\b")
_PLAIN = re.compile(r"(?<![\w./\\-])[A-Za-z][a-z']*(?![\w/\\(\[=.-]\w|[\w/\\(\[=])")
"""A plain word: not a name, path, number or key of a program."""
_IDENTIFIER = re.compile(r"[A-Za-z]_[A-Za-z]|::|[/\\=(){}<>\[\]|]|\w\.\w|[a-z][A-Z]")
_ASKS = re.compile(r"\?\W*$")
_CHANGES = re.compile(r" \(#\d+\)\s*$")
"""How the title of a commit ends."""
_IDEOGRAPHS = re.compile(r"[\u4e00-\u9fff\u3040-\u30ff]{2}[^\x00-\x7f]{4,}")
_OF_ONESELF = re.compile(r"(?:^|[\s(,*])I(?:'\w+)? [a-z]")
_STOPS = re.compile(r"[a-z)]\.\s*$")
_COLON = re.compile(r"\w: ")


def personal(line: str) -> float:
    """The sum of the weights of a line's own words, those of what it quotes left out: usually below 2 for a program's."""
    said = QUOTED.sub(" ", line)
    total: float = sum(_WEIGHTS.get(word, 0) for word in set(_WORD.findall(said.lower())))
    total += 6 * bool(_ASKS.search(said) or _IDEOGRAPHS.search(said) or _CHANGES.search(said)) + 4 * bool(
        _OF_ONESELF.search(said)
    )
    total += bool(_STOPS.search(said)) - 2 * bool(_COLON.search(said))
    return total - min(2, sum(map(bool, map(_IDENTIFIER.search, said.split())))) / 2


def asks(line: str) -> bool:
    """Whether a line is a question."""
    return _ASKS.search(line) is not None


def is_sentence(line: str) -> bool:
    """Whether a person wrote a line of several words."""
    return line.count(" ") >= _FEW - 1 and len(_PLAIN.findall(line)) >= _FEW and personal(line) >= 1
