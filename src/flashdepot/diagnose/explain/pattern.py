"""Regular expressions that take time proportional to the text, whatever the text is: those of RE2.

A log is written by strangers. Python's ``re`` tries one way after another, and a line of 4 kB that fits a pattern almost
makes it try for minutes. RE2 has no such lines; its patterns have neither look-around nor back-references
(https://github.com/google/re2/wiki/Syntax). Its compiled patterns and matches are typed as those of ``re`` here.

A pattern is looked for in all lines of a piece of a log at once: taking the lines out one by one would cost more than
looking for the pattern, and a line can be as short as two characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property

from flashdepot.errors import MissingToolError

try:
    import re2
except ImportError as error:
    raise MissingToolError(
        f"'explain' needs google-re2, and it cannot be imported: {error}. It has wheels for Python 3.10 to 3.14.",
        hint="Install flashdepot under one of them. With uv, in its clone: uv tool install --python 3.14 .",
    ) from error

_LEVEL = r"(?:TRACE|DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)"

_KINDS = (
    r"#\d+ (?:\[[^\]]*\] )?(?:\d+\.\d+ )?",  # BuildKit: step and seconds
    r"\d{1,6}\.\d{1,3}\s+",  # BuildKit: only seconds
    r"\[(?:rank|gpu|worker|node)? ?\d+(?:,\d+)?\](?:<std(?:err|out)>)?:?\s",  # torchrun, mpirun
    r"\([\w.:-]+(?: \w+=[\w.:-]+)* pid=\d+[^)]*\)\s?",  # Ray, vLLM
    rf"(?:{_LEVEL}\s+)?\[?\d{{4}}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z| ?[+-]\d\d:?\d\d)?\]?:?\s*",
    rf"(?:{_LEVEL}\s+)?\[?\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?\]?\s*",
    rf"(?:{_LEVEL}\s+)?\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?\s+",
    r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]+ [\w./-]+(?:\[\d+\])?:\s",  # syslog
    r"[IWEF]\d{4} [\d:.]+\s+\d+ [\w./-]+:\d+\](?: \[\d+/\d+\])?\s",  # glog
    r"\[?[\w./-]+\.(?:py|cpp|cc|cu|rs|go):\d+\]\s",
    r"(?:TRACE|DEBUG) ",  # uv -v
    r"\[(?i:debug|info|warn(?:ing)?|error)\]\s(?:\[[\w./-]+\]\s)?",  # launchers of desktop programs
    r"##\[(?:error|warning|debug|group|command)\]",
    r"::(?:error|warning)[^:]*::",
    r"[A-Za-z][\w.-]{0,40} +\| ",  # docker compose
    "[│╰╭├└┃─╌\u00d7>▶✗✖❱]+",  # pip, uv, rich, quotations
    r"(?:\||[|`]->|x) +",  # uv, where it writes ASCII
    r"(?:\*\*|`{1,3}|[-*•] )",  # markdown
)

PREFIXES = rf"(?:\s*(?:{'|'.join(_KINDS)}))*\s*"
"""A regular expression, in RE2's syntax, for all that stands before what a program itself wrote, also nothing."""


_MEMORY = 1 << 20
PIECES = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[\^$'\"`]", re.DOTALL)
"""What of a pattern may be spelled otherwise here, and what an anchor or a quote is a part of."""


class Pattern:
    r"""A pattern of a rule. It is looked for in many lines at once and never matches across the end of one.

    ``^`` is where a line begins behind the prefixes of other programs, ``$`` where it ends before blanks.
    ``\w``, ``\s``, ``\d`` and ``\b`` know ASCII only; ``\pL`` is a letter of any script. Any of ``'``, ``"`` and
    `````` stands for all three: programs quote as they like.

    One that ignores case from its first letter on ``is_sentence``: words that anybody may use; others are a program's own.
    """

    def __init__(self, text: str, regex: str, options: re2.Options) -> None:
        self.text = text
        self.regex = regex
        self.options = options
        self.is_sentence = text.startswith(("(?i)", "(?i:"))

    @classmethod
    def parse(cls, text: str, *, memory: int = _MEMORY, stripped: bool = False) -> Pattern:
        """Take a pattern as rules spell it. It is compiled when it is looked for: a short log has few of those that it may have.

        :param memory: bytes for its states, which RE2 forgets rather than taking more; where they are too few for a
            pattern of many characters, it becomes slow, and stays linear.
        :param stripped: for a line whose prefixes were taken away: ``^`` is where it begins.
        """
        options = re2.Options()
        options.max_mem = memory
        options.never_nl = True
        options.log_errors = False
        regex = PIECES.sub(lambda piece: "^" if stripped and piece[0] == "^" else _spelled(piece[0]), text)
        return cls(text, f"(?m){regex}", options)

    @cached_property
    def _compiled(self) -> re.Pattern[bytes]:
        compiled: re.Pattern[bytes] = re2.compile(self.regex, self.options)
        return compiled

    @property
    def groups(self) -> frozenset[str]:
        """The names of its groups."""
        return frozenset(self._compiled.groupindex)

    def search(self, lines: bytes, start: int = 0) -> re.Match[bytes] | None:
        """The first match in lines of UTF-8 that are separated by line feeds, or ``None``."""
        return self._compiled.search(lines, start)

    def each(self, lines: bytes) -> Iterator[re.Match[bytes]]:
        """Every match, one behind the other."""
        end = 0
        while (found := self.search(lines, end)) is not None:
            yield found
            end = max(found.end(), end + 1)


_QUOTES = "'\"`"
_ANCHORS = {"^": f"(?:^{PREFIXES})", "$": r"(?:\s*$)"} | {
    spelling: f"[{_QUOTES}]" for quote in _QUOTES for spelling in (quote, "\\" + quote)
}


def _spelled(piece: str) -> str:
    if piece.startswith("[") and any(quote in piece for quote in _QUOTES):
        return re.sub(r"^\[\^?", lambda opened: opened[0] + _QUOTES, piece)
    return _ANCHORS.get(piece, piece)


class Screen:
    """Patterns and lower-case texts, to be looked for in one piece of a log after another.

    RE2's filter takes from each pattern the literals without which it cannot match, and looks for all of them at once.
    A piece without an error answers to almost none, whatever the number of rules.
    """

    def __init__(self, patterns: Iterable[Pattern], texts: Iterable[str]) -> None:
        self._filter = re2.Filter()
        self._sought: list[Pattern | str] = []
        for pattern in patterns:
            self._filter.Add(pattern.regex, pattern.options)
            self._sought.append(pattern)
        for text in texts:
            self._filter.Add(re2.escape(text), re2.Options())
            self._sought.append(text)
        self._filter.Compile()

    def possible(self, lowered: bytes) -> tuple[set[Pattern], set[str]]:
        """Return the patterns that may match a piece of a log, and the texts that are in it.

        :param lowered: the piece, in lower case.
        """
        sought = [self._sought[index] for index in self._filter.Match(lowered, potential=True) or ()]
        patterns = {pattern for pattern in sought if isinstance(pattern, Pattern)}
        return patterns, {text for text in sought if isinstance(text, str) and text.encode() in lowered}
