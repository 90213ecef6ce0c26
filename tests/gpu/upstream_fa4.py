"""A pytest plugin that runs flash-attn-4's own tests over family fa4 of an installed flash_attn.

Usage, with torch, einops and a wheel that holds fa4, where SOURCE has flash-attn-4's flash_attn/cute/testing.py:

    PYTHONPATH=scripts:tests/gpu FA4_SOURCE=SOURCE pytest -p upstream_sample -p upstream_fa4 --sample 3000 SOURCE/tests/cute/FILE.py

The plugin stands in for flash_attn.cute.interface. Every call is forced to fa4, so what fa4 refuses is a skipped test
whose reason begins with "refused"; what the C ABI has no words for begins with "not in the ABI". Neither CuTe DSL nor
upstream's kernels are imported.

Upstream's layouts that the ABI lacks are translated, all by torch: values of another head dim than the keys' get zeros
as columns; lengths beside padded rows become a packed batch; pages of another size than 256 become pages of 256.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ["FLASH_ATTENTION_FAMILY"] = "fa4"

import pytest
import torch
from flash_attn_2_cuda import bwd, fwd, fwd_kvcache, library, varlen_bwd, varlen_fwd
from torch.nn.functional import pad

FA4 = 4
PAGE = 256
REFUSALS = ("it has no ", "is not in this library", "which its kernels do not count")
LEFT_OUT: Counter[str] = Counter()


class NotServed(Exception):  # noqa: N818  (no error: a test that does not apply)
    """What this test asks for is not in the ABI, or fa4 refuses it."""


def served(call: Callable[..., list[Any]], *arguments: object) -> list[Any]:
    """Run a function of the wheel by fa4; no other family can have run it, since its number is in the arguments."""
    assert library._family == FA4
    try:
        return call(*arguments)
    except RuntimeError as error:
        if any(words in str(error) for words in REFUSALS):
            raise NotServed(f"refused: {error}") from None
        raise


def require(ok: object, what: str) -> None:
    """Skip the test unless the ABI has the words for what it asks."""
    if not ok:
        raise NotServed(f"not in the ABI: {what}")


def check_options(options: dict[str, Any]) -> None:
    """Skip what no field of the ABI says."""
    for name in ("qv", "gather_kv_indices", "learnable_sink", "score_mod", "score_mod_bwd", "mask_mod"):
        require(options.pop(name, None) is None, name)
    for name in ("aux_tensors", "aux_scalars", "block_sparse_tensors", "block_sparse_tensors_bwd"):
        require(options.pop(name, None) is None, name)
    require(options.pop("seqlen_k_per_split", None) is None, "seqlen_k_per_split")
    require(options.pop("num_splits", 1) == 1, "num_splits")
    for name in ("pack_gqa", "scheduler_metadata", "disable_scheduler_metadata", "min_seqlen_k"):
        options.pop(name, None)  # these change how a kernel works, not what it answers


def ends(window: tuple[int | None, int | None]) -> tuple[int, int]:
    """Upstream's None is the wheel's -1; upstream's negative ends, which hide the nearest keys, are not in the ABI."""
    left, right = window
    if left is not None and right is not None and left + right < 0:
        return -1, -1  # upstream takes an empty window for none
    require(min(left or 0, right or 0) >= 0, "a window with a negative end")
    return -1 if left is None else left, -1 if right is None else right


def same_dims(q: Any, k: Any, v: Any) -> tuple[Any, Any, Any]:
    """Add columns of zeros to the narrower of keys and values."""
    wide = max(q.shape[-1], v.shape[-1])
    require(q.dtype in {torch.float16, torch.bfloat16}, f"{q.dtype}")
    require(wide <= 256, "a head dim above 256")
    require(wide % 8 == 0, "a head dim that is no multiple of 8")
    return tuple(pad(t, (0, wide - t.shape[-1])) if t.shape[-1] < wide else t for t in (q, k, v))  # type: ignore[return-value]


class Dense(torch.autograd.Function):
    """fwd and bwd."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, numbers: dict[str, Any]) -> Any:
        out, lse, *_ = served(fwd, q, k, v, None, None, 0.0, *settings(numbers), False, None)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.numbers = numbers
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx: Any, d_out: Any, d_lse: Any) -> Any:
        require(d_lse is None, "the gradient of lse")
        q, k, v, out, lse = ctx.saved_tensors
        given = (d_out.contiguous(), q, k, v, out, lse, None, None, None, None, 0.0)
        gradients = served(bwd, *given, *settings(ctx.numbers), ctx.numbers["deterministic"], None, None)
        return *gradients[:3], None


class Packed(torch.autograd.Function):
    """varlen_fwd and varlen_bwd."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, numbers: dict[str, Any]) -> Any:
        longest = (numbers["max_q"], numbers["max_k"])
        given = (q, k, v, None, cu_q, cu_k, None, None, None, None, *longest, 0.0)
        scale, *others = settings(numbers)
        out, lse, *_ = served(varlen_fwd, *given, scale, False, *others, False, None)
        ctx.save_for_backward(q, k, v, out, lse, cu_q, cu_k)
        ctx.numbers = numbers
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx: Any, d_out: Any, d_lse: Any) -> Any:
        require(d_lse is None, "the gradient of lse")
        numbers = ctx.numbers
        q, k, v, out, lse, cu_q, cu_k = ctx.saved_tensors
        longest = (numbers["max_q"], numbers["max_k"])
        given = (d_out.contiguous(), q, k, v, out, lse, None, None, None, cu_q, cu_k, None, *longest, 0.0)
        scale, *others = settings(numbers)
        gradients = served(varlen_bwd, *given, scale, False, *others, numbers["deterministic"], None, None)
        return *gradients[:3], None, None, None


def settings(numbers: dict[str, Any]) -> tuple[Any, ...]:
    """Scale, causal, window and softcap, as all functions of the wheel take them."""
    return numbers["scale"], numbers["causal"], *numbers["window"], numbers["softcap"]


def numbers_of(q: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a call; none may be left over."""
    check_options(options)
    options.pop("return_lse", None)
    scale = options.pop("softmax_scale", None)
    numbers = {
        "scale": q.shape[-1] ** -0.5 if scale is None else scale,
        "causal": options.pop("causal", False),
        "window": ends(options.pop("window_size", (None, None))),
        "softcap": options.pop("softcap", 0.0) or 0.0,
        "deterministic": options.pop("deterministic", False),
    }
    assert not options, f"unknown to the adapter: {sorted(options)}"
    return numbers


def flash_attn_func(q: Any, k: Any, v: Any, **options: Any) -> Any:
    """Upstream's function over a dense batch."""
    numbers = numbers_of(q, options)
    if q.shape[0] == 0:
        raise NotServed("not in the ABI: a batch of none through the wheel, as upstream's FA2 refuses it")
    columns = v.shape[-1]
    out, lse = Dense.apply(*same_dims(q, k, v), numbers)
    return out[..., :columns], lse


def flash_attn_varlen_func(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None,
    max_seqlen_q: Any = None,
    max_seqlen_k: Any = None,
    seqused_q: Any = None,
    seqused_k: Any = None,
    page_table: Any = None,
    **options: Any,
) -> Any:
    """Upstream's function over packed, padded or paged sequences."""
    numbers = numbers_of(q, options)
    columns = v.shape[-1]
    q, k, v = same_dims(q, k, v)
    if cu_seqlens_q is None and cu_seqlens_k is None and seqused_q is None and seqused_k is not None:
        out, lse = cached(q, k, v, seqused_k, page_table, numbers)
        return out[..., :columns], lse
    require(page_table is None, "block_table beside cu_seqlens_q, in fa4")
    rows_q, rows_k = None, None
    if cu_seqlens_q is None:
        rows_q, cu_seqlens_q, max_seqlen_q = in_use(q, seqused_q)
        batch, length = q.shape[:2]
        q = q.flatten(0, 1)[rows_q]
    if cu_seqlens_k is None:
        rows_k, cu_seqlens_k, max_seqlen_k = in_use(k, seqused_k)
        k, v = k.flatten(0, 1)[rows_k], v.flatten(0, 1)[rows_k]
    numbers["max_q"], numbers["max_k"] = int(max_seqlen_q or q.shape[0]), int(max_seqlen_k or k.shape[0])
    out, lse = Packed.apply(q, k, v, cu_seqlens_q, cu_seqlens_k, numbers)
    if rows_q is not None:
        whole = out.new_zeros(batch * length, *out.shape[1:])
        out = whole.index_copy(0, rows_q, out).unflatten(0, (batch, length))
    return out[..., :columns], lse


def in_use(padded: Any, used: Any) -> tuple[Any, Any, int]:
    """Numbers of the rows in use of a padded batch, where each sequence starts, and the longest."""
    batch, length = padded.shape[:2]
    if used is None:
        used = torch.full((batch,), length, dtype=torch.int32, device=padded.device)
    mask = torch.arange(length, device=padded.device)[None] < used[:, None]
    starts = pad(used.cumsum(0, dtype=torch.int32), (1, 0))
    return mask.flatten().nonzero().flatten(), starts, length


def cached(q: Any, k: Any, v: Any, used: Any, table: Any, numbers: dict[str, Any]) -> tuple[Any, Any]:
    """Attention over a cache, which has no backward pass."""
    if table is not None:
        k, v, table = in_larger_pages(k, v, table)
    given = (q, k, v, None, None, used, None, None, None, None, table, None, None)
    out, lse = served(fwd_kvcache, *given, *settings(numbers), True, 0)
    return out, lse


def in_larger_pages(k: Any, v: Any, table: Any) -> tuple[Any, Any, Any]:
    """The same keys and values in pages of 256 rows, in another order."""
    batch, size = table.shape[0], k.shape[1]
    if size % PAGE == 0:
        return k, v, table
    each = -(-table.shape[1] * size // PAGE)
    order = torch.randperm(batch * each, device=k.device)

    def moved(pool: Any) -> Any:
        rows = pool[table.long()].flatten(1, 2)
        rows = pad(rows, (0, 0, 0, 0, 0, each * PAGE - rows.shape[1]))
        pages = torch.empty_like(rows.reshape(batch * each, PAGE, *rows.shape[2:]))
        pages[order] = rows.reshape(pages.shape)
        return pages

    return moved(k), moved(v), order.view(batch, each).to(torch.int32)


def _flash_attn_fwd(q: Any, k: Any, v: Any, **options: Any) -> tuple[Any, ...]:
    with torch.no_grad():
        return *flash_attn_func(q, k, v, **options), None, None


def _flash_attn_bwd(q: Any, k: Any, v: Any, out: Any, dout: Any, lse: Any, **options: Any) -> tuple[Any, ...]:
    gradients = [options.pop(name, None) for name in ("dq", "dk", "dv")]
    numbers = numbers_of(q, options)
    given = (dout, q, k, v, out, lse, *gradients, None, 0.0)
    dq, dk, dv, _ = served(bwd, *given, *settings(numbers), numbers["deterministic"], None, None)
    return dq, dk, dv


class Metadata:
    """What upstream computes ahead for its scheduler. The C layer has no such thing, so a test of it does not apply."""

    def __init__(self, **_: object) -> None:
        """Take any sizes."""

    def __getattr__(self, name: str) -> object:
        raise NotServed("not in the ABI: scheduler metadata")


def _absent(name: str) -> Callable[..., Any]:
    def absent(*_: object, **__: object) -> None:
        raise NotServed(f"not in the ABI: {name}")

    return absent


def install() -> None:
    """Put flash_attn.cute and its modules in place."""
    source = Path(os.environ["FA4_SOURCE"]) / "flash_attn" / "cute" / "testing.py"
    cute, interface, cache = (ModuleType(f"flash_attn.cute{name}") for name in ("", ".interface", ".cache_utils"))
    spec = importlib.util.spec_from_file_location("flash_attn.cute.testing", source)
    assert spec is not None, f"{source} is no Python file"
    assert spec.loader is not None, f"{source} is no Python file"
    testing = importlib.util.module_from_spec(spec)
    sys.modules["flash_attn.cute"] = cute
    spec.loader.exec_module(testing)
    for name in ("_flash_attn_bwd_sparse_mla", "flash_attn_combine"):
        setattr(interface, name, _absent(name))
    for function in (flash_attn_func, flash_attn_varlen_func):
        setattr(cute, function.__name__, function)
        setattr(interface, function.__name__, function)
    vars(interface).update(
        get_scheduler_metadata=Metadata, _flash_attn_fwd=_flash_attn_fwd, _flash_attn_bwd=_flash_attn_bwd
    )
    vars(cache)["JITCache"] = _absent("the cache of compiled kernels")
    vars(cute)["__path__"] = []
    for module, name in ((interface, "interface"), (cache, "cache_utils"), (testing, "testing")):
        sys.modules[f"flash_attn.cute.{name}"] = module
        setattr(cute, name, module)


install()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the bounds of lengths."""
    group = parser.getgroup("fa4")
    group.addoption("--longest", type=int, default=2048, help="leave out tests of longer sequences")
    group.addoption("--shortest", type=int, default=0, help="leave out tests whose longest sequence is shorter")


def _why_not(item: pytest.Item, options: Any) -> str | None:
    given = item.callspec.params if hasattr(item, "callspec") else {}
    function = item.nodeid.split("[")[0]
    if given.get("has_learnable_sink") or "learnable_sink" in function:
        return "learnable_sink"
    if function.endswith("reuses_fwd_cache"):
        return "a test of the compiler's cache at run time"
    if given.get("has_qv") or "mla" in function:
        return "qv and MLA"
    if "sm100" in function or "sm120" in function:
        return "a test for another architecture"
    if given.get("local_enum") and given.get("causal"):
        return "upstream skips causal with a window"
    if given.get("local_enum", 0) > 1 and function.endswith("test_flash_attn_output"):
        return "a window with a negative end"
    if given.get("deterministic"):
        return "deterministic, which fa4 refuses backward, and which forward is the call without it"
    if given.get("num_splits", 1) != 1:
        return "num_splits"
    if given.get("page_size") and given.get("varlen_q"):
        return "pages beside cu_seqlens_q (fa4 leaves them to fa2)"
    longest = max((given.get(name) or 0 for name in ("seqlen_q", "seqlen_k", "seqlen", "max_seq_len")), default=0)
    if not options.shortest <= longest <= options.longest:
        return f"lengths outside of {options.shortest} to {options.longest}"
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out, before the sample is drawn, what cannot apply."""
    reasons = [_why_not(item, config.option) for item in items]
    LEFT_OUT.update(reason for reason in reasons if reason)
    config.hook.pytest_deselected(items=[item for item, reason in zip(items, reasons, strict=True) if reason])
    items[:] = [item for item, reason in zip(items, reasons, strict=True) if not reason]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A test that is not served is skipped, with the reason."""
    try:
        yield
    except NotServed as reason:
        pytest.skip(str(reason))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what was left out from one of xdist's workers: all of them collect the same."""
    LEFT_OUT.update({} if LEFT_OUT else node.workeroutput.get("left_out", {}))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand over what was left out, in a worker of xdist."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = dict(LEFT_OUT)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the counts, by reason."""
    say = terminalreporter.write_line
    say("\nfa4 by flash-attn-4's own tests")
    for outcome in ("passed", "failed", "error", "skipped", "xfailed"):
        say(f"  {outcome:8} {len(terminalreporter.stats.get(outcome, ())):6}")
    why = Counter(str(report.longrepr[2])[:150] for report in terminalreporter.stats.get("skipped", ()))
    for reason, count in why.most_common():
        say(f"  skipped {count:6}  {reason}")
    for reason, count in LEFT_OUT.most_common():
        say(f"  left out before the sample {count:7}  {reason}")
