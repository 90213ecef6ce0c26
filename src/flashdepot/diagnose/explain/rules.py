"""The rules: what a failure looks like, why it happens, what fixes it. One data file a class, in ``rules/``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from flashdepot.diagnose.explain.pattern import Pattern
from flashdepot.diagnose.explain.steps import Step
from flashdepot.files.documents import read_toml

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
    return (rf"{_STATES}(?i:{named}{_KINDS} {after})", rf"{_STATES}(?i:{before} {_ANY}{named}{_KINDS}){_ENDS}")


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


_NOT_A_COMMAND = (
    "is not recogni[sz]ed|n'est pas reconnu|ist entweder falsch|no se reconoce|não é reconhecido|non è riconosciuto"
    "|не является|不是内部"
)
_STARTS_NOT = "(?:failed to|could not|cannot|unable to) (?:find|spawn|execute|run|start|launch)"


def unstarted(program: str) -> tuple[str, ...]:
    """Patterns for "there is no such program" in the words of what would start it: shells, loaders, Python, Rust."""
    named = rf"(?:[^'\"]*[\\/])?(?:{program})(?:\.exe)?"
    return (
        rf"\b(?:{program})(?:\.exe)?'?: (?:command )?not found",
        rf"command not found: (?:{program})\b",
        rf"'{named}' (?:{_NOT_A_COMMAND})",
        rf"[Cc]an't recogni[sz]e '(?:{program})\b",
        rf"which: no (?:{program}) in ",
        rf"\['which', '{named}'\].*returned non-zero",
        rf"(?:No such file or directory:? |\[Errno 2\].*|\[WinError [23]\].*|os error 2.*|FileNotFoundError: .*)'{named}'",
        rf"(?i:{_STARTS_NOT}) '{named}'",
        rf"(?i:{_STARTS_NOT}) (?:\S*[\\/])?(?:{program})(?:$|[\s:.,;])",
    )


def crashed(program: str) -> tuple[str, ...]:
    """Patterns for "that program crashed", in either order."""
    crash = r"(?:segfault(?:s|ed|ing)?|segmentation fault|crash(?:es|ed|ing)?|core dumped|SIGSEGV|(?:died|killed) (?:by|with|due to) signal 11)"
    named = rf"'?(?:{program})(?:\.exe)?'?"
    return (rf"(?i)\b{crash}\b.{{0,30}}\b{named}\b", rf"(?i)(?:^|[\s`'/(]){named}(?:\s|: |' ).{{0,30}}\b{crash}\b")


WINDOWS_SIGNS = (
    "win_amd64", "win-amd64", ".pyd", "winerror", "cl.exe", "link.exe", "site-packages\\", "\\lib\\", "dll load failed",
    "powershell", "c:\\users", "d:\\", "\\scripts\\", "nvcc.exe", "lnk1", "lnk2", "windows-",
)  # fmt: skip
"""Texts in lower case, one of which a log of Windows has."""

AMD_SIGNS = (
    "libamdhip64", "+rocm", "hipcc", "hiperror", "/opt/rocm", "hip error", "hip/hip_runtime", "rocm-smi", "amd-smi",
    "gfx90", "gfx94", "gfx95", "gfx10", "gfx11", "gfx12", "pytorch_rocm_arch", "radeon", "ck only supports",
    "devicegroupedmultiheadattention", "flash_attn_triton_amd", "flash_attention_triton_amd",
)  # fmt: skip
"""Texts in lower case, one of which a log of a machine with AMD GPUs has."""

FIELD_SIGNS = (
    "torch", "flash", "fa_fwd", "fa_bwd", "cuda", "nvcc", "cudnn", "cublas", "nccl", "nvidia", "gpu", "rocm", "hipcc", "triton",
    "attention", "_attn", "attn_", "cutlass", "cpp_extension", "libtorch", "vllm", "sglang", "sgl_kernel", "xformers",
    "transformers", "huggingface", "diffusers", "diffusion", "deepspeed", "accelerate", "bitsandbytes", "unsloth",
    "axolotl", "megatron", "transformer_engine", "transformer-engine", "sageattention", "mamba", "causal-conv1d",
    "causal_conv1d", "gptq", "awq", "exllama", "comfyui", "custom_nodes", "webui", "text-generation",
    "text_generation", "candle", "cudarc", "mistralrs", "llama", "qwen", "deepseek", "mistral", "tensorrt", "apex",
    "jetson", "natten", "spconv", "pytorch3d", "detectron", "gaussian", "splat", "nerf", "minkowski",
    "nvdiffrast", "tinycudann", "tiny-cuda", "cumm", "kaolin", "mmcv", "pyg_lib", "megablocks", "grouped_gemm",
    "deep_gemm", "deep_ep", "fbgemm", "pointops", "pointgroup", "pcdet", "groundingdino", "grounding_dino", "lietorch",
    "nunchaku", "onnxruntime", "cupy",
    "ggml", "gguf", "whisper", "cubecl", "nvinfer", "[trt]",
)  # fmt: skip
"""Texts in lower case, one of which a log of PyTorch, of models or of kernels for GPUs has."""

OWN_ERRORS = (
    "runtimeerror:", "oserror:", "valueerror:", "attributeerror:", "assertionerror:", "filenotfounderror:", "typeerror:",
    "keyerror:", "permissionerror:", "indexerror:", "importerror:", "syntaxerror:", "nameerror:", "unicodedecodeerror",
    "unicodeencodeerror", "http error",
)  # fmt: skip
"""Texts in lower case of errors that a package's own build raises, which say more than that the build failed."""

_SETTING = re.compile(r"^((?:[A-Z][A-Z0-9_]*=(?:'[^']*'|\"[^\"]*\"|[^\s'\"]+)\s+)+)(.*)$")
_PROGRAMS = (
    "apt|apt-file|cargo|cd|cmake|conda|df|dmesg|dnf|docker|export|file|flashdepot|free|g\\+\\+|gcc|git|hash|id|ldd|ls"
    "|nvcc|nvidia-smi|pip|python|rm|rustc|rustup|set|sha256sum|sudo|torchrun|uname|unset|uv|vllm|where|which|winget"
)
_COMMAND = re.compile(rf"(?:[A-Z][A-Z0-9_]*=|(?:{_PROGRAMS})(?: |$)(?!.*[,:] ))")
"""What begins a command; other words are prose, and what parts them does not end a command."""
_EXPORT = re.compile(r"\bexport ((?:[A-Z][A-Z0-9_]*=\S+\s*)+)")


def for_windows(command: str) -> str:
    """A command for a POSIX shell as cmd.exe takes it; what has no equal there stays.

    No blank stands before ``&&``: to cmd it would be the end of the value.
    """
    code, mark, comment = command.partition("   # ")
    parts = re.split(r"\s*(?:;|&&)\s+", code)
    if '"' not in code and all(map(_COMMAND.match, parts)):
        code = "&& ".join(map(_one, parts))
    for posix, windows in (("$HOME", "%USERPROFILE%"), ("which -a ", "where "), ("grep -i -E ", "findstr /i ")):
        code = code.replace(posix, windows)
    return code + mark + comment


def _one(code: str) -> str:
    if found := _EXPORT.match(code):
        return "&& ".join(f"set {setting}" for setting in found[1].split())
    if found := _SETTING.match(code):
        return "&& ".join([*(f"set {setting}" for setting in found[1].split()), found[2]])
    return code


RANKS = ("memory-or-disk", "missing-tool", "wrong-version", "source", "link", "wrapper", "symptom")
"""Kinds of causes: what stands further left makes what stands further right happen, never the other way round.

A symptom says what happened and not why; it is named only where nothing else is.
"""
SYMPTOM = RANKS.index("symptom")

_SENTENCES: Mapping[str, Callable[..., tuple[str, ...]]] = {
    "missing": missing,
    "unsuitable": unsuitable,
    "unloaded": unloaded,
    "built_for": built_for,
    "refused": refused,
    "differing": differing,
    "coded": coded,
    "crashed": crashed,
    "unstarted": unstarted,
}
"""Fields of a rule file that name things, and what makes the sentences about one."""

_LISTS = {"@field": FIELD_SIGNS, "@errors": OWN_ERRORS}
"""What stands for many texts in a rule file."""

_Text = Annotated[str, msgspec.Meta(pattern=r"^[^A-Z]*$")]
_Texts = tuple[_Text, ...]
_Patterns = tuple[Pattern, ...]


class LogRule(msgspec.Struct, frozen=True, eq=False, kw_only=True, forbid_unknown_fields=True):
    """One class of failures.

    ``patterns`` show it, in a step of one of its ``phases``, or where the log does not say what ran; ``in_step`` ones only
    where it does. With ``installers`` it must not be another one that began the work. ``likely`` ones only suggest it, where the deciding line was left out of the
    log: they count when nothing is certain, with ``likely_context`` only if one of its texts is in the log, and with
    ``likely_unless`` only if none is. With ``context``, lower-case texts, the rule holds only if one of them is in the
    log; with ``unless``, only if none is. ``@field`` among them stands for all texts of the field that flashdepot is of,
    ``@errors`` for those of errors that a package's own build raises.
    ``warns`` says that the tools tell of it by a warning, which shows nothing for certain elsewhere.
    ``own`` says that what an installer says in a step of its own needs no ``context``.
    ``absence`` says that the class is concluded from something that is not there, and so never certain; nor is it where one of its
    ``unsure`` texts is in the log;
    ``or_else`` names the classes that it may be instead, the likeliest first. ``veto`` names the fact that rules it out.
    ``hides`` names classes that are consequences of this one. A line that an ``ignore`` pattern matches, such as a
    warning about something that is optional, shows nothing.
    ``details`` fill in named groups from other lines of the log. ``fix`` may have named groups, the package that the
    line is about, and facts of the host, in braces; ``fix_windows`` and ``fix_amd`` take its place where it does not
    help on that system, or with GPUs of that vendor.
    ``ours`` says that flashdepot's own library or wheel stands in for what failed.
    ``shown_by`` and ``not_shown_by`` are logs for its test.
    """

    id: str
    title: str
    rank: int
    phases: tuple[Literal["resolve", "fetch", "build", "install", "link", "import", "run"], ...]
    why: str
    fix: tuple[str, ...]
    patterns: _Patterns
    source: str
    shown_by: tuple[str, ...]
    not_shown_by: tuple[str, ...]
    fix_windows: tuple[str, ...] = ()
    fix_amd: tuple[str, ...] = ()
    in_step: _Patterns = ()
    likely: _Patterns = ()
    details: _Patterns = ()
    ignore: _Patterns = ()
    context: _Texts = ()
    likely_context: _Texts = ()
    likely_unless: _Texts = ()
    unless: _Texts = ()
    hides: frozenset[str] = frozenset()
    host: tuple[Literal["gpus", "driver", "toolkits", "compilers", "libc", "memory"], ...] = ()
    installers: tuple[Literal["", "pip", "uv", "poetry", "conda", "cargo"], ...] = ()
    ours: bool = False
    absence: bool = False
    unsure: _Texts = ()
    own: bool = False
    warns: bool = False
    or_else: tuple[str, ...] = ()
    veto: Literal["", "newer-gpu", "newer-driver"] = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """All that is looked for in a whole log, besides the patterns."""
        return self.context + self.likely_context + self.unless + self.likely_unless + self.unsure

    def takes(self, step: Step | None, *, known: bool = False) -> bool:
        """Whether it can be what went wrong in a step.

        A log that has not said what runs rules nothing out, nor does a command by itself: what stands below it may be
        of another one that was left out.

        :param known: the step must be known to be one of its phases.
        """
        if step is None or not step.phase:
            return not known
        if step.command:
            return not known or step.phase in self.phases or (step.phase == "resolve" and "build" in self.phases)
        return step.phase in self.phases and (not self.installers or step.installer in self.installers)

    def is_all_of(self, steps: Sequence[Step]) -> bool:
        """Whether a log of these steps tells of nothing but its installers' work.

        What such a log says before its first step, in a title or a quotation, is of that work too.
        """
        return any(step.installer and step.installer in self.installers for step in steps) and not any(
            step.phase in ("import", "run") for step in steps
        )

    @classmethod
    def from_toml(cls, data: Mapping[str, Any]) -> LogRule:
        """Read a rule file.

        :raises ValueError: for a missing field, an unknown one, or a value that cannot be.
        """
        if data.get("rank") not in RANKS:
            raise ValueError(f"rank {data.get('rank')!r} is none of {', '.join(RANKS)}")
        fields = {name: value for name, value in data.items() if name not in _SENTENCES}
        fields["rank"] = RANKS.index(data["rank"])
        fields["patterns"] = [*data.get("patterns", ()), *_sentences(data)]
        for name in ("context", "likely_context", "likely_unless", "unless"):
            fields[name] = [text for item in data.get(name, ()) for text in _LISTS.get(item, (item,))]
        return msgspec.convert(fields, cls, dec_hook=lambda _, text: Pattern.parse(text))


def _sentences(data: Mapping[str, Any]) -> Iterable[str]:
    for name, sentences in _SENTENCES.items():
        for thing in data.get(name, ()):
            yield from sentences(**thing) if isinstance(thing, Mapping) else sentences(thing)


@cache
def load_rules() -> tuple[LogRule, ...]:
    """Every rule, causes before consequences."""
    files = sorted(Path(__file__).with_name("rules").glob("*.toml"))
    return tuple(sorted((LogRule.from_toml(read_toml(file)) for file in files), key=lambda rule: (rule.rank, rule.id)))
