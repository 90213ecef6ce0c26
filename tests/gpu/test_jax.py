"""flashdepot_jax on the GPU: numbers and gradients compared with float32, under jit, vmap, shard_map and packed."""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.wheels import lay_out

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the other tests' memory is torch's

np = pytest.importorskip("numpy", reason="numpy is not installed")
jax = pytest.importorskip("jax", reason="jax is not installed")
jnp = jax.numpy

HEADS = [(8, 8), (8, 2), (4, 1)]


@pytest.fixture(scope="module", autouse=True)
def on_gpu() -> None:
    if jax.default_backend() != "gpu":
        pytest.skip("this jax sees no GPU")


@pytest.fixture(scope="module")
def package(library_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The package as a wheel lays it out, over the library under test."""
    site = tmp_path_factory.mktemp("site")
    shutil.copy(library_folder / "lib/shared/libflashattention.so.1", lay_out(site))
    sys.path.insert(0, str(site))
    yield importlib.import_module("flashdepot_jax")
    sys.path.remove(str(site))


def random_arrays(*shapes: tuple[int, ...], dtype: Any = jnp.bfloat16) -> list[Any]:
    keys = jax.random.split(jax.random.key(len(shapes)), len(shapes))
    return [jax.random.normal(key, shape, dtype=dtype) for key, shape in zip(keys, shapes, strict=True)]


def reference(
    q: Any, k: Any, v: Any, *, causal: bool = False, window: tuple[int, int] = (-1, -1), softcap: float = 0.0
) -> Any:
    """The same in float32 at the highest precision."""
    q, k, v = (a.astype(jnp.float32) for a in (q, k, v))
    k, v = (jnp.repeat(a, q.shape[2] // a.shape[2], axis=2) for a in (k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, precision="highest") / q.shape[-1] ** 0.5
    if softcap:
        scores = softcap * jnp.tanh(scores / softcap)
    rows, keys = (jnp.arange(n) for n in scores.shape[-2:])
    offset = keys[None, :] - rows[:, None] - (len(keys) - len(rows))
    seen = jnp.ones_like(offset, bool)
    seen &= offset <= (0 if causal else window[1] if window[1] >= 0 else len(keys))
    seen &= offset >= (-window[0] if window[0] >= 0 else -len(keys) - len(rows))
    scores = jnp.where(seen, scores, -jnp.inf)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v, precision="highest")


def assert_close(found: Any, wanted: Any) -> None:
    error = float(jnp.abs(found.astype(jnp.float32) - wanted.astype(jnp.float32)).max())
    assert error <= 0.02 * max(1.0, float(jnp.abs(wanted).max())), error


def run(function: Any, *arrays: Any) -> Any:
    """Call what a library that is not full may refuse."""
    try:
        return jax.block_until_ready(function(*arrays))
    except Exception as error:
        if "flashdepot get" in str(error):
            pytest.skip(str(error)[:200])
        raise


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize(
    "options", [{}, {"causal": True}, {"window": (64, 0)}, {"softcap": 20.0, "causal": True}], ids=str
)
def test_outputs_and_gradients_are_those_of_float32(
    package: Any, dtype: Any, heads: tuple[int, int], options: Any
) -> None:
    q, k, v, g = random_arrays(
        (2, 200, heads[0], 128), (2, 260, heads[1], 128), (2, 260, heads[1], 128), (2, 200, heads[0], 128), dtype=dtype
    )
    ours = {"window_size" if name == "window" else name: value for name, value in options.items()}

    def both(function: Any, *arrays: Any) -> Any:
        out, pull = jax.vjp(function, *arrays)
        return (out, *pull(g.astype(out.dtype)))

    found = run(jax.jit(functools.partial(both, functools.partial(package.flash_attn_func, **ours))), q, k, v)
    for one, other in zip(found, both(functools.partial(reference, **options), q, k, v), strict=True):
        assert_close(one, other)


def test_a_batch_made_by_vmap_has_the_bits_of_one_that_was_given(package: Any) -> None:
    q, k = random_arrays((3, 2, 128, 4, 128), (3, 2, 128, 4, 128))
    folded = run(package.flash_attn_func, *(a.reshape(6, 128, 4, 128) for a in (q, k, k)))
    assert (jax.vmap(package.flash_attn_func)(q, k, k).reshape(folded.shape) == folded).all()


def test_packed_sequences_give_what_each_gives_by_itself(package: Any) -> None:
    lengths = [0, 100, 170, 170, 300]
    q, k, v = random_arrays((300, 8, 128), (300, 2, 128), (300, 2, 128))
    cu = jnp.array(lengths, jnp.int32)

    def packed(q: Any, k: Any, v: Any) -> Any:
        return package.flash_attn_varlen_func(q, k, v, cu, cu, 130, 130, causal=True)

    def loss(function: Any) -> Any:
        return jax.grad(lambda *a: (function(*a).astype(jnp.float32) ** 2).sum(), argnums=(0, 1, 2))

    def apart(q: Any, k: Any, v: Any) -> Any:
        parts = [slice(a, b) for a, b in itertools.pairwise(lengths) if b > a]
        return jnp.concatenate([reference(q[None, p], k[None, p], v[None, p], causal=True)[0] for p in parts])

    assert_close(run(jax.jit(packed), q, k, v), apart(q, k, v))
    for one, other in zip(run(jax.jit(loss(packed)), q, k, v), loss(apart)(q, k, v), strict=True):
        assert_close(one, other)


def test_a_mesh_of_this_machines_gpus_shares_the_heads(package: Any) -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    spec = jax.sharding.PartitionSpec(None, None, "x", None)
    q, k = random_arrays((2, 128, 8, 128), (2, 128, 8, 128))
    shared = jax.shard_map(package.flash_attn_func, mesh=mesh, in_specs=(spec,) * 3, out_specs=spec)
    assert (run(jax.jit(shared), q, k, k) == package.flash_attn_func(q, k, k)).all()

    def gradients(function: Any) -> Any:
        return jax.jit(jax.grad(lambda *a: (function(*a).astype(jnp.float32) ** 2).sum(), argnums=(0, 1, 2)))

    for one, other in zip(run(gradients(shared), q, k, k), gradients(package.flash_attn_func)(q, k, k), strict=True):
        assert_close(one, other)


def test_what_the_library_refuses_is_an_error_with_its_words(package: Any) -> None:
    (q,) = random_arrays((1, 128, 2, 128))
    with pytest.raises(ValueError, match="scale"):
        jax.block_until_ready(jax.jit(functools.partial(package.flash_attn_func, softmax_scale=float("inf")))(q, q, q))
