"""What containers, launchers, loggers, CI services and quotations put in front of a line."""

from __future__ import annotations

_LEVEL = r"(?:TRACE|DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)"

_KINDS = (
    r"#\d+ (?:\[[^\]]*\] )?(?:\d+\.\d+ )?",  # BuildKit: step and seconds
    r"\d{1,6}\.\d{1,3}\s+",  # BuildKit: seconds alone
    r"\[(?:rank|gpu|worker|node)? ?\d+(?:,\d+)?\](?:<std(?:err|out)>)?:?\s",  # torchrun, mpirun
    r"\([\w.:-]+(?: \w+=[\w.:-]+)* pid=\d+[^)]*\)\s?",  # Ray, vLLM
    rf"(?:{_LEVEL}\s+)?\[?\d{{4}}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z| ?[+-]\d\d:?\d\d)?\]?:?\s*",
    rf"(?:{_LEVEL}\s+)?\[?\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?\]?\s*",
    rf"(?:{_LEVEL}\s+)?\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?\s+",
    r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]+ [\w./-]+(?:\[\d+\])?:\s",  # syslog
    r"[IWEF]\d{4} [\d:.]+\s+\d+ [\w.-]+:\d+\]\s",  # glog
    r"\[[\w./-]+\.(?:py|cpp|cc):\d+\]\s",
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
