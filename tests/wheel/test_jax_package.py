"""flashdepot_jax: what a traced program calls, how it is batched, differentiated and split over devices."""

import functools
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.fa_abi import BackwardArgs, ForwardArgs
from support.programs import compile_recorder_for_xla
from support.wheels import lay_out

DEVICES = 4
os.environ.setdefault("XLA_FLAGS", f"--xla_force_host_platform_device_count={DEVICES}")

jax = pytest.importorskip("jax", reason="jax is not installed")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

P = PartitionSpec
try:
    shard_map = jax.shard_map
except AttributeError:  # before jax 0.6, which before 0.5 cannot check the replication of what it calls
    from jax.experimental.shard_map import shard_map as checking

    shard_map = functools.partial(checking, check_rep=False)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The package as a wheel lays it out, over a C library that records."""
    site = tmp_path_factory.mktemp("site")
    compile_recorder_for_xla(site, lay_out(site))
    sys.path.insert(0, str(site))
    yield importlib.import_module("flashdepot_jax")
    sys.path.remove(str(site))


def arrays(*shapes: tuple[int, ...], dtype: Any = jnp.bfloat16) -> list[Any]:
    return [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]


def calls(function: Callable[..., Any], *given: Any) -> list[ForwardArgs | BackwardArgs]:
    """The struct of each call of the C library in a traced function, in order."""

    def inside(jaxpr: Any) -> Iterator[Any]:
        for equation in jaxpr.eqns:
            if equation.primitive.name == "ffi_call":
                yield dict(equation.params["attributes"])
            for value in equation.params.values():
                if hasattr(inner := getattr(value, "jaxpr", value), "eqns"):
                    yield from inside(inner)

    found = inside(jax.make_jaxpr(function)(*given).jaxpr)
    return [
        (BackwardArgs if attributes["function"] else ForwardArgs).from_buffer_copy(
            attributes["arguments"].val.tobytes()
        )
        for attributes in found
    ]


def test_a_call_carries_the_whole_problem(package) -> None:
    q, k, v = arrays((3, 70, 8, 64), (3, 90, 2, 64), (3, 90, 2, 64), dtype=jnp.float16)
    (args,) = calls(
        lambda q, k, v: package.flash_attn_func(q, k, v, softmax_scale=0.5, window_size=(16, 0), softcap=30.0), q, k, v
    )
    assert (args.batch, args.seqlen_q, args.seqlen_k, args.heads_q, args.heads_k, args.head_dim) == (
        3,
        70,
        90,
        8,
        2,
        64,
    )
    assert (args.scale, args.softcap, args.window_left, args.window_right) == (0.5, 30.0, 16, 0)
    assert (args.q.batch_stride, args.q.row_stride, args.q.head_stride) == (70 * 8 * 64, 8 * 64, 64)
    assert (args.k.batch_stride, args.k.row_stride, args.k.head_stride) == (90 * 2 * 64, 2 * 64, 64)
    assert args.dtype == 1


def test_a_head_dim_that_no_kernel_has_is_padded_and_keeps_its_scale(package) -> None:
    q = jax.ShapeDtypeStruct((1, 8, 2, 36), jnp.bfloat16)
    (args,) = calls(lambda q: package.flash_attn_func(q, q, q), q)
    assert args.head_dim == 40
    assert args.scale == pytest.approx(1 / 6)
    assert jax.eval_shape(lambda q: package.flash_attn_func(q, q, q), q).shape == q.shape


def test_packed_sequences_pass_their_longest_and_their_rows(package) -> None:
    q, k = arrays((100, 4, 64), (120, 2, 64))
    lengths = jax.ShapeDtypeStruct((6,), jnp.int32)
    (args,) = calls(lambda q, k, c: package.flash_attn_varlen_func(q, k, k, c, c, 30, 40, causal=True), q, k, lengths)
    assert (args.batch, args.seqlen_q, args.seqlen_k, args.total_q, args.total_k) == (5, 30, 40, 100, 120)
    assert args.flags == 1


def test_vmap_joins_its_axis_to_the_batch_of_one_call(package) -> None:
    q, k = arrays((5, 3, 70, 8, 64), (3, 90, 2, 64))
    (args,) = calls(jax.vmap(lambda q, k: package.flash_attn_func(q, k, k), in_axes=(0, None)), q, k)
    assert args.batch == 15


def test_gradients_of_a_batched_call_are_one_call(package) -> None:
    def loss(q: Any, k: Any) -> Any:
        return package.flash_attn_func(q, k, k, deterministic=True).astype(jnp.float32).sum()

    q, k = arrays((5, 3, 70, 8, 64), (5, 3, 90, 2, 64))
    first, second = calls(jax.vmap(jax.grad(loss, argnums=(0, 1))), q, k)
    assert isinstance(first, ForwardArgs)
    assert isinstance(second, BackwardArgs)
    assert second.batch == 15
    assert second.flags == 16
    assert second.d_o.row_stride == 8 * 64


def test_packs_under_vmap_run_one_after_the_other(package) -> None:
    q = jax.ShapeDtypeStruct((2, 100, 4, 64), jnp.bfloat16)
    lengths = jax.ShapeDtypeStruct((2, 6), jnp.int32)
    run = jax.vmap(lambda q, c: package.flash_attn_varlen_func(q, q, q, c, c, 30, 40))
    assert jax.eval_shape(run, q, lengths).shape == q.shape
    (args,) = calls(run, q, lengths)
    assert args.total_q == 100


@pytest.mark.parametrize(
    ("heads", "spec", "device", "moves"),
    [
        ((8, 4), P("x", None, "y", None), "2,70,4,64", False),
        ((8, 8), P(None, None, ("x", "y"), None), "4,70,2,64", False),
        ((8, 1), P("x", None, None, None), "2,70,8,64", False),
        ((8, 1), P("x", None, "y", None), "2,70,8,64", True),  # one key head cannot be split: the queries come together
    ],
)
def test_devices_share_batch_and_heads_and_exchange_nothing_for_it(package, heads, spec, device, moves) -> None:
    mesh = Mesh(np.array(jax.devices()[:DEVICES]).reshape(2, 2), ("x", "y"))
    of_keys = spec if heads[1] > 1 else P(spec[0], None, None, None)

    def sharded(length: int, heads: int, spec: Any) -> Any:
        return jax.ShapeDtypeStruct((4, length, heads, 64), jnp.bfloat16, sharding=NamedSharding(mesh, spec))

    def loss(q: Any, k: Any, v: Any) -> Any:
        return package.flash_attn_func(q, k, v, causal=True).astype(jnp.float32).sum()

    q, k = sharded(70, heads[0], spec), sharded(90, heads[1], of_keys)
    text = jax.jit(jax.grad(loss, argnums=(0, 1, 2))).lower(q, k, k).compile().as_text()
    assert f"bf16[{device}]" in next(line for line in text.splitlines() if "flashdepot_attention" in line)
    assert bool(re.search(r"all-(gather|to-all)|collective-permute", text)) == moves


def test_shard_map_calls_with_the_arrays_of_one_device(package) -> None:
    mesh = Mesh(np.array(jax.devices()[:DEVICES]).reshape(2, 2), ("x", "y"))
    spec = P("x", None, "y", None)
    run = shard_map(package.flash_attn_func, mesh=mesh, in_specs=(spec,) * 3, out_specs=spec)
    q, k = arrays((4, 70, 8, 64), (4, 90, 4, 64))
    (args,) = calls(run, q, k, k)
    assert (args.batch, args.heads_q, args.heads_k) == (2, 4, 2)


@pytest.mark.parametrize("of_keys", [P("x"), P()], ids=["keys divided", "keys on every device"])
def test_gradients_go_through_shard_map_and_are_taken_within_it(package, of_keys) -> None:
    mesh = Mesh(np.array(jax.devices()[:2]), ("x",))
    q, k = arrays((4, 70, 8, 64), (4 if of_keys == P("x") else 2, 90, 4, 64))
    specs = (P("x"), of_keys, of_keys)

    def loss(attention: Any) -> Any:
        def of(*arrays: Any) -> Any:
            return attention(*arrays).astype(jnp.float32).sum()

        return jax.grad(of, argnums=(0, 1, 2))

    shared = shard_map(package.flash_attn_func, mesh=mesh, in_specs=specs, out_specs=P("x"))
    within = shard_map(loss(package.flash_attn_func), mesh=mesh, in_specs=specs, out_specs=specs)
    for run in (loss(shared), within):
        assert [made.shape for made in jax.eval_shape(run, q, k, k)] == [q.shape, k.shape, k.shape]
        first, second = calls(run, q, k, k)
        assert (first.batch, second.batch) == (2, 2)


@pytest.mark.parametrize(
    ("shapes", "dtype", "complaint"),
    [
        (((1, 8, 2, 64), (1, 8, 2, 64)), jnp.float32, "expected float16 or bfloat16"),
        (((8, 2, 64), (8, 2, 64)), jnp.bfloat16, "expected 4 dimensions"),
        (((1, 8, 3, 64), (1, 8, 2, 64)), jnp.bfloat16, "expected a multiple"),
        (((1, 8, 2, 264), (1, 8, 2, 264)), jnp.bfloat16, "1 to 256"),
        (((2, 8, 2, 64), (1, 8, 2, 64)), jnp.bfloat16, "a batch of 2"),
        (((1, 8, 2, 64), (1, 8, 2, 32)), jnp.bfloat16, "one head dim"),
    ],
)
def test_arrays_that_cannot_be_are_refused_by_name(package, shapes, dtype, complaint) -> None:
    q, k = arrays(*shapes, dtype=dtype)
    with pytest.raises((TypeError, ValueError), match=complaint):
        jax.eval_shape(package.flash_attn_func, q, k, k)
