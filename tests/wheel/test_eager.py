"""Which calls skip torch's dispatcher, and that structs are packed as the compiler lays them out."""

import importlib.util
import struct
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import fake_torch
import pytest
from calls import HK, SK, SQ, B, D, H
from fake_torch import CPU, Tensor, int32

from flashdepot.wheel.builder import RUNTIME
from support.programs import compile_c
from support.tools import run_program

HOW = (0.0, None, True, (-1, -1), 0.0, None, False, False)
"""dropout_p to return_softmax, as upstream's functions pass them on."""

LENGTHS = (Tensor((B + 1,), int32), Tensor((B + 1,), int32), 150, 90)
Q, K = (B, SQ, H, D), (B, SK, HK, D)
PACKED_Q, PACKED_K = (260, H, D), (140, HK, D)


class Upstream:
    """An autograd.Function of upstream: its arguments, and what its apply says."""

    def __init__(self, arguments):
        exec(f"def forward({arguments}): ...", found := {})  # noqa: S102
        self.forward = found["forward"]

    def apply(self, *_):
        return "upstream"


@pytest.fixture
def eager(runtime):
    return importlib.import_module("flash_attn_2_cuda.eager")


def interface_of(runtime, eager):
    """The globals of an interface that has upstream's classes, after shorten."""
    functions = {name: Upstream(f"ctx, {', '.join(words.split())}") for name, (_, words) in eager._FUNCTIONS.items()}
    interface = {**functions, "flash_attn_gpu": runtime.module}
    eager.shorten(interface)
    return interface


def arguments_of(name):
    rest = (*HOW, True)
    return {
        "FlashAttnFunc": (Tensor(Q), Tensor(K), Tensor(K), *rest),
        "FlashAttnKVPackedFunc": (Tensor(Q), Tensor((B, SK, 2, HK, D)), *rest),
        "FlashAttnQKVPackedFunc": (Tensor((B, SQ, 3, H, D)), *rest),
        "FlashAttnVarlenFunc": (Tensor(PACKED_Q), Tensor(PACKED_K), Tensor(PACKED_K), *LENGTHS, *HOW, None, True),
        "FlashAttnVarlenKVPackedFunc": (Tensor(PACKED_Q), Tensor((140, 2, HK, D)), *LENGTHS, *rest),
        "FlashAttnVarlenQKVPackedFunc": (Tensor((260, 3, H, D)), LENGTHS[0], 150, *rest),
    }[name]


NAMES = [
    f"FlashAttn{name}Func" for name in ("", "KVPacked", "QKVPacked", "Varlen", "VarlenKVPacked", "VarlenQKVPacked")
]


@pytest.mark.parametrize("name", NAMES)
def test_a_plain_call_without_a_gradient_comes_here_directly(runtime, eager, name):
    out = interface_of(runtime, eager)[name].apply(*arguments_of(name))
    assert out.shape == (PACKED_Q if "Varlen" in name else Q)
    arguments = runtime.forward_args()
    assert (arguments.o.data, arguments.flags, round(arguments.scale, 6)) == (out.data_ptr(), 1, 0.125)
    assert (arguments.head_dim, arguments.heads_q) == (D, H)


@pytest.mark.parametrize(
    "around",
    [
        {"compiling": True},
        {"tracing": "a graph"},
        {"dispatch_modes": 1},
        {"function_modes": 1},
        {"functorch_level": 1},
        {"_current_level": 0},
    ],
    ids=lambda around: next(iter(around)),
)
@pytest.mark.parametrize("name", NAMES)
def test_a_call_that_something_watches_or_transforms_goes_upstreams_way(runtime, eager, name, around):
    vars(runtime.torch.around).update(around)
    assert interface_of(runtime, eager)[name].apply(*arguments_of(name)) == "upstream"
    assert runtime.calls == 0


class Subclass(Tensor):
    pass


def wanting_gradient():
    tensor = Tensor(Q)
    tensor.requires_grad = True
    return tensor


def test_a_call_that_wants_a_gradient_has_a_shorter_function(runtime, eager):
    arguments = [wanting_gradient(), *arguments_of("FlashAttnFunc")[1:]]
    assert interface_of(runtime, eager)["FlashAttnFunc"].apply(*arguments).shape == Q
    assert runtime.forward_args().q.data == arguments[0].data_ptr()


@pytest.mark.parametrize("name", ["FlashAttnQKVPackedFunc", "FlashAttnVarlenQKVPackedFunc", "FlashAttnKVPackedFunc"])
def test_the_gradient_of_a_packed_tensor_is_upstreams(runtime, eager, name):
    arguments = arguments_of(name)
    arguments[0].requires_grad = True
    assert interface_of(runtime, eager)[name].apply(*arguments) == "upstream"


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, Subclass(Q)),
        (1, Subclass(K)),
        (0, Tensor(Q, device=CPU)),
        (0, Tensor(Q, strides=(1, B, B * SQ, B * SQ * H))),
        (0, Tensor((B, SQ, H, 60))),
        (3, 0.1),
        (8, Tensor((H,), fake_torch.float32)),
        (10, True),
    ],
    ids=[
        *("subclass of q", "subclass of k", "on the CPU", "strided", "padded head dim", "dropout", "ALiBi"),
        "probabilities",
    ],
)
def test_what_the_short_way_does_not_serve_goes_upstreams_way(runtime, eager, place, value):
    arguments = list(arguments_of("FlashAttnFunc"))
    arguments[place] = value
    assert interface_of(runtime, eager)["FlashAttnFunc"].apply(*arguments) == "upstream"
    assert runtime.calls == 0


def test_a_refusal_of_the_library_is_the_error_of_the_call(runtime, eager):
    interface = interface_of(runtime, eager)
    runtime.answers(status=2)
    with pytest.raises(RuntimeError, match="the selection 'training' has it"):
        interface["FlashAttnFunc"].apply(*arguments_of("FlashAttnFunc"))


def test_a_version_of_upstream_with_other_arguments_stays_as_it_is(runtime, eager):
    interface = {"FlashAttnFunc": Upstream("ctx, q, k, v, softmax_scale"), "flash_attn_gpu": runtime.module}
    eager.shorten(interface)
    assert interface["FlashAttnFunc"].apply(*arguments_of("FlashAttnFunc")) == "upstream"


def test_upstream_over_another_module_stays_as_it_is(runtime, eager):
    interface = {"FlashAttnFunc": Upstream("ctx, q"), "flash_attn_gpu": SimpleNamespace(fwd=print)}
    before = dict(interface)
    eager.shorten(interface)
    assert interface == before
    assert "apply" not in vars(interface["FlashAttnFunc"])


def test_a_torch_that_cannot_say_what_happens_around_a_call_stays_as_it_is(runtime):
    del runtime.torch._C._get_tracing_state
    importlib.reload(importlib.import_module("flash_attn_2_cuda.dispatch"))
    eager = importlib.import_module("flash_attn_2_cuda.eager")
    assert interface_of(runtime, eager)["FlashAttnFunc"].apply(*arguments_of("FlashAttnFunc")) == "upstream"


@pytest.mark.parametrize(("watched", "came"), [(False, "body"), (True, "operator")])
@pytest.mark.parametrize("name", ["_flash_attn_forward", "_flash_attn_varlen_backward"])
def test_within_autograd_an_operators_body_is_called_unless_something_watches(runtime, eager, name, watched, came):
    interface = {
        "flash_attn_gpu": runtime.module,
        name: SimpleNamespace(_init_fn=lambda *_, **__: "body"),
        f"_wrapped{name}": lambda *_, **__: "operator",
    }
    eager.shorten(interface)
    runtime.torch.is_grad_enabled = lambda: False
    runtime.torch.around.dispatch_modes = int(watched)
    assert interface[f"_wrapped{name}"](Tensor(Q), 0.0, causal=True) == came


def test_a_call_outside_autograd_that_wants_a_gradient_keeps_the_operator(runtime, eager):
    interface = {
        "flash_attn_gpu": runtime.module,
        "_flash_attn_forward": SimpleNamespace(_init_fn=lambda *_: "body"),
        "_wrapped_flash_attn_forward": lambda *_: "operator",
    }
    eager.shorten(interface)
    assert interface["_wrapped_flash_attn_forward"](wanting_gradient()) == "operator"


@pytest.mark.parametrize("operator", ["forward", "varlen_forward", "backward", "varlen_backward"])
def test_upstreams_operators_answer_tensors_on_the_cpu_with_one_sentence(runtime, operator) -> None:
    kernel = runtime.torch.kernels[f"flash_attn::_flash_attn_{operator}", "CPU"]
    with pytest.raises(RuntimeError, match=r"runs on CUDA tensors.* on the CPU. torch 2.9.1 finds no CUDA GPU here"):
        kernel(Tensor((2, 8, 4, 64), device=CPU), softmax_scale=1.0)


SCRIPT = Path(__file__).parents[2] / "scripts" / "renew_abi.py"


def load(path: Path) -> ModuleType:
    """Run a module that is in no package that can be imported here: its neighbours need torch."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # where dataclasses look for the names in their annotations
    spec.loader.exec_module(module)
    return module


layout = load(RUNTIME / "layout.py")
STRUCTS = {"fa_fwd_args": layout.FORWARD_FIELDS, "fa_bwd_args": layout.BACKWARD_FIELDS}
CONSTANTS = {
    "FP16": "DTYPE",
    "BF16": "DTYPE",
    **dict.fromkeys(("CAUSAL", "WINDOW_LEFT", "WINDOW_RIGHT", "ROTARY_INTERLEAVED", "DETERMINISTIC"), "FLAG"),
}
"""The kind that the header's name of each begins with."""


def test_layout_is_what_the_script_writes_from_the_header_of_today() -> None:
    script = load(SCRIPT)
    assert script.LAYOUT.read_text() == script.layout(script.HEADER.read_text()), f"run python {SCRIPT}"


@pytest.mark.slow
def test_offsets_sizes_and_constants_are_the_compilers(tmp_path) -> None:
    prints = [
        f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));'
        for name, fields in STRUCTS.items()
        for field, _ in fields
    ]
    prints += [f'printf("{name} %zu\\n", sizeof({name}));' for name in STRUCTS]
    prints += [f'printf("{name} %d\\n", FA_{prefix}_{name});' for name, prefix in CONSTANTS.items()]
    source = tmp_path / "offsets.c"
    source.write_text(
        "#include <flash_attention.h>\n#include <stddef.h>\n#include <stdio.h>\n"
        f"int main(void) {{ {' '.join(prints)} return 0; }}\n"
    )
    said = run_program([str(compile_c(source, tmp_path / "offsets"))])
    compiled = {name: int(value) for name, value in (line.split() for line in said.splitlines())}

    ours = {name: getattr(layout, name) for name in CONSTANTS}
    for name, fields in STRUCTS.items():
        codes = [code for _, code in fields]
        for index, (field, code) in enumerate(fields):
            ours[f"{name}.{field}"] = struct.calcsize("@" + "".join(codes[: index + 1])) - struct.calcsize("@" + code)
        ours[name] = struct.calcsize("@" + "".join(codes) + "0Q")
    assert ours == compiled
