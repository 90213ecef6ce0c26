"""The ways in which programs say that something is not there, is of a version that will not do, or is refused.

Every program has its own sentence for it ("nvcc was not found", "please install nvcc", "could not locate nvcc"), so a rule
names only the thing, as a regular expression, and the sentences are made here.
"""

from __future__ import annotations

_STATES = (
    r"(?:(?:\b(?:[A-Z]\w*)?(?:Error|Exception)|\b(?:error|ERROR|fatal|FATAL))(?: ?: | - )|\[(?:ERROR|Error|error|FATAL)\]:? "
    r"|panicked at ['\"]|\braise \w*(?:Error|Exception)\(f?['\"])(?:.*[^\w.-])?"
)
"""What a line that reports a failure begins with, and as much as may stand before the sentence; a warning does not."""

_NOT = r"(?:(?:is|was|are|were|has|have|could|can|did|does) not|(?:is|was|are|were|has|have|could|did|does)n't|not)"
_THERE = (
    r"(?:been |be |currently |correctly |properly |yet |seem to be )*"
    r"(?:installed|available|found|set|present|detected|located|imported|importable|loaded)"
)
_KINDS = (
    r"(?: (?:package|module|library|compiler|toolkit|executable|command|binary|environment variable|variable|backend"
    r"|extension|kernels?|ops|bindings|wheel))?"
)
_FAILS = r"(?:could not|couldn't|cannot|can't|can not|unable to|failed to|did not|didn't|does not|doesn't)"
_ANY = r"(?:(?:a|an|any|the|your|module|package|command|executable|working|usable|suitable|compatible|valid) )*"
_ENDS = (
    r"(?:$|[.,;:)!/](?:\s|$)|\s[(/|-]|\s(?:to|but|first|for|in|is|was|and|before|when|on|correctly|from|via|using|or|as|at"
    r"|because|found|available|detected|installed)\b)"
)
"""What may follow a thing that is missing: a number or a sign would make it a version that is."""

_NUMBER = r"v?\d+(?:\.\d+)*\+?"
_SIGN = r"(?:>=|<=|==|~=|<|>|≥)"


def missing(thing: str) -> tuple[str, ...]:
    """Patterns for "there is no such thing": it stands before the verb, or behind it."""
    named = rf"[`'\"]?(?:{thing})[`'\"]?"
    after = (
        rf"(?:{_NOT} {_THERE}|(?:is|was) (?:missing|unavailable|required|needed|absent)|missing\b|unavailable\b"
        r"|(?:must|has to|needs to|should) be installed|import(?:ing)? failed)"
    )
    before = (
        rf"(?:{_FAILS} (?:find|locate|detect|import|load|get|execute)|(?:please|must|need to|have to|should)"
        r"(?: first)? install|requires?|needs?|missing|no|error importing|make sure(?: that)?|install)"
    )
    return (
        rf"{_STATES}(?i:{named}{_KINDS} {after})",
        rf"{_STATES}(?i:{before} {_ANY}{named}{_KINDS}){_ENDS}",
    )


def unsuitable(thing: str) -> tuple[str, ...]:
    """Patterns for "another version of it is needed": the number stands behind its name, or the verb says it all."""
    named = rf"[`'\"]?(?:{thing})[`'\"]?"
    after = (
        rf"(?: version)?:? ?(?:{_SIGN} ?)?{_NUMBER}[`'\"]? (?:or (?:newer|later|higher|above|greater|older|lower|earlier)"
        r"|(?:is )?(?:required|needed|(?:not |un)supported|too (?:old|new)|(?:not |in)compatible))"
        r"|(?: version)? (?:is )?too (?:old|new)| version mismatch"
        rf"|(?: version)? (?:must|should|has to|needs to) be (?:{_SIGN}|at least|newer|older|between|{_NUMBER})"
    )
    before = (
        r"(?:(?:requires?|required|needs?|minimum|incompatible|unsupported|only supports?|at least|only)"
        rf" (?:a |the )?(?:version of )?{named}(?: version)?(?: is| of|:)? ?(?:{_SIGN}|at least|version)? ?{_NUMBER}"
        rf"|(?:upgrade|update) (?:your )?{named})"
    )
    return rf"{_STATES}(?i:{named}(?:{after}))", rf"{_STATES}(?i:{before})"


_REFUSES = (
    r"(?:(?:does not|doesn't|do not|don't|not|n't)(?: \w+)? support\w*|unsupported|(?:not|n't)(?: \w+)? implemented|cannot handle"
    r"|can't handle|cannot be used|can't be used|cannot use|can't use|incompatible|not compatible|not available|disallowed"
    r"|only (?:supports?|accepts?|works?|handles?|takes)|supports? only|requires?|needs?|expects?|expected|must be|got)"
)


def refused(thing: str, by: str) -> tuple[str, ...]:
    """Patterns for "that does not take this": both and the verb in a line, in any order that a sentence can have."""
    return (
        rf"{_STATES}(?i:\b(?:{by})\b.*\b{_REFUSES}\b.*\b(?:{thing}))",
        rf"{_STATES}(?i:\b{_REFUSES}\b.*\b(?:{by})\b.*\b(?:{thing}))",
        rf"{_STATES}(?i:\b(?:{thing})\b.*\b{_REFUSES}\b.*\b(?:{by})\b)",
        rf"{_STATES}(?i:\b{_REFUSES}\b.*\b(?:{thing})\b.*\b(?:{by})\b)",
    )


def unloaded(file: str) -> tuple[str, ...]:
    """Patterns for "this library cannot be loaded"."""
    named = rf"[`'\"]?(?:[\w.+-]*[\\/])*(?P<library>{file})[`'\"]?"
    kind = r"(?:(?:dynamic|shared|native|this|CUDA) )*(?:library|lib|dll|dynlib/dll|file)?:? ?"
    return (
        rf"(?:^|{_STATES})(?i:{_FAILS} (?:find|load|open|locate|dlopen) {_ANY}{kind}{named})",
        rf"{_STATES}(?i:(?:(?:error|failure) (?:loading|opening)|dlopen failed:?|no) {_ANY}{named})",
        rf"{_STATES}(?i:{named} (?:(?:could|can) ?not be (?:loaded|found|opened|located)|(?:was |is )?not found|is missing|missing))",
    )


_DIFFERS = r"(?:mismatch\w*|(?:(?:does|do|did) not|doesn't|don't|didn't) match|differs?|is different from|incompatible)"


def differing(one: str, other: str) -> tuple[str, ...]:
    """Patterns for "these two are not of one version": both with their numbers and a verb, or both and "does not match"."""
    built = rf"(?:{other})\b.*\b(?:built|compiled) (?:with|for|against|using)\b.*\b(?:{one})"
    return (
        rf"{_STATES}(?i:\b(?:{one})\b.*\b{_DIFFERS}\b.*\b(?:{other})\b)",
        rf"{_STATES}(?i:\b(?:{other})\b.*\b{_DIFFERS}\b.*\b(?:{one})\b)",
        rf"{_STATES}(?i:\b{_DIFFERS}\b.*\b(?:{one})\b.*\b(?:{other})\b.*\d)",
        rf"{_STATES}(?i:\b{built}\b.*\d.*\b(?:but|while|whereas)\b.*\d)",
    )


def built_for(thing: str) -> tuple[str, ...]:
    """Patterns for "it was compiled with another version of this than the one that is there"."""
    differs = r"(?:\b(?:does not|doesn't) match|mismatch|\d.*\b(?:runtime|running|installed|found)\b.*\d)"
    built = rf"(?:re)?(?:built|compiled|linked) (?:with|for|against|using) (?:the )?(?:{thing})\b"
    return (
        rf"{_STATES}(?i:(?:was|is|were|been) {built}.*\d.*\b(?:but|while|whereas|you have|installed|running|found|current)\b.*\d)",
        rf"{_STATES}(?i:(?:needs to|must|has to|should) be {built})",
        rf"{_STATES}(?i:\b(?:{thing})\b.*\b(?:used to (?:build|compile)|built with|compiled with)\b.*{differs})",
    )


def coded(number: str, text: str) -> tuple[str, ...]:
    """Patterns for an error of the CUDA or HIP runtime: its number behind such a word, or the text that the runtime has for it."""
    api = r"\b(?:cuda|hip)\w*(?: (?:runtime|driver|api|initiali[sz]ation|init|kernel|launch|call))*"
    failed = r"(?:error|failure|exception|failed with|fails with)"
    return (
        rf"(?i){api} ?{failed}\b(?:,? (?:with|code|error|status|number))*\W{{0,2}}(?:{number})(?:$|\.(?:\s|$)|[^\w.%/])",
        rf"\bcu(?:da)?[A-Z]\w+(?:\(\))? returned (?:error )?(?:{number})(?:$|\.(?:\s|$)|[^\w.%/])",
        rf"(?i){api} ?{failed}\b.{{0,120}}\b(?:{text})",
    )


def crashed(program: str) -> tuple[str, ...]:
    """Patterns for "that program crashed", in either order."""
    crash = r"(?:segfault(?:s|ed|ing)?|segmentation fault|crash(?:es|ed|ing)?|core dumped|SIGSEGV|(?:died|killed) (?:by|with|due to) signal 11)"
    named = rf"'?(?:{program})(?:\.exe)?'?"
    return (rf"(?i)\b{crash}\b.{{0,30}}\b{named}\b", rf"(?i)(?:^|[\s`'/(]){named}(?:\s|: |' ).{{0,30}}\b{crash}\b")
