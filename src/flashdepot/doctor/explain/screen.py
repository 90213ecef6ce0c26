"""Which of many patterns and texts can be in a piece of a log, found in one pass over it."""

from __future__ import annotations

from collections.abc import Iterable

import re2

from flashdepot.doctor.explain.pattern import Pattern


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
