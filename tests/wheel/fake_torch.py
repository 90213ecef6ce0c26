"""As much of torch as flash_attn_2_cuda touches, without memory behind it: tensors are addresses, shapes and strides."""

import contextlib
import functools
import itertools
import math
import types
from collections.abc import Iterator

_addresses = itertools.count(0x1000, 0x1000)


class Dtype:
    def __init__(self, name, size):
        self.name, self.size = name, size

    def __repr__(self):
        return f"torch.{self.name}"


float16, bfloat16, float32 = Dtype("float16", 2), Dtype("bfloat16", 2), Dtype("float32", 4)
int32, int64, uint8 = Dtype("int32", 4), Dtype("int64", 8), Dtype("uint8", 1)


class Device:
    def __init__(self, kind="cuda", index=0):
        self.type, self.index = kind, index

    def __str__(self):
        return f"{self.type}:{self.index}" if self.type == "cuda" else self.type

    def __eq__(self, other):
        return str(self) == str(other)

    def __hash__(self):
        return hash(str(self))


CUDA, CPU = Device(), Device("cpu")


def contiguous_strides(shape):
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


class Tensor:
    """Keeps in `done` what was done to it in place, and in `base` what it was made from."""

    def __init__(self, shape, dtype=float16, device=CUDA, strides=None, base=None, values=()):
        self.shape, self.dtype, self.device = tuple(shape), dtype, device
        self._strides = tuple(strides) if strides is not None else contiguous_strides(self.shape)
        self._address = next(_addresses) if self.numel() else 0
        self.base, self.values, self.done = base, list(values), []

    @property
    def is_cuda(self):
        return self.device.type == "cuda"

    def get_device(self):
        return self.device.index if self.is_cuda else -1

    def stride(self, dim=None):
        return self._strides if dim is None else self._strides[dim]

    def data_ptr(self):
        return self._address

    def dim(self):
        return len(self.shape)

    def numel(self):
        return math.prod(self.shape)

    def element_size(self):
        return self.dtype.size

    def is_contiguous(self):
        return self._strides == contiguous_strides(self.shape)

    def item(self):
        return self.values[0]

    requires_grad = False

    def float(self):
        return self if self.dtype is float32 else Tensor(self.shape, float32, self.device, base=self)

    def contiguous(self):
        return Tensor(self.shape, self.dtype, self.device, base=self)

    def unbind(self, dim):
        shape = (*self.shape[:dim], *self.shape[dim + 1 :])
        strides = (*self._strides[:dim], *self._strides[dim + 1 :])
        return [Tensor(shape, self.dtype, self.device, strides, base=self) for _ in range(self.shape[dim])]

    def new_empty(self, *shape, dtype=None):
        return Tensor(shape, dtype or self.dtype, self.device)

    def index_select(self, dim, index):
        assert dim == 0
        return Tensor((index.shape[0], *self.shape[1:]), self.dtype, self.device, base=("select", self, index))

    def expand(self, *shape):
        return Tensor(shape, self.dtype, self.device, base=self)

    def zero_(self):
        self.done.append("zero")

    def fill_(self, value):
        self.done.append(("fill", value))

    def copy_(self, other):
        self.done.append(("copy", other.base))

    def neg_(self):
        self.done.append("neg")

    def __neg__(self):
        return Tensor(self.shape, self.dtype, self.device, base=("neg", self))

    def __getitem__(self, key):
        dots, cut = key
        assert dots is Ellipsis
        return Tensor((*self.shape[:-1], cut.stop), self.dtype, self.device, self._strides, base=self)


class Generator:
    """A CUDA generator as torch had it up to 2.14."""

    def __init__(self, seed=1234, offset=0):
        self.seed_, self.offset_ = seed, offset

    def initial_seed(self):
        return self.seed_

    def get_offset(self):
        return self.offset_

    def set_offset(self, offset):
        assert offset % 4 == 0
        self.offset_ = offset


class StateGenerator(Generator):
    """A CUDA generator with the method that torch 2.15 added."""

    captured = False

    def philox_state(self, increment):
        before, self.offset_ = self.offset_, self.offset_ + increment
        if self.captured:
            return Tensor((1,), int64), Tensor((1,), int64), Tensor((1,), int64, CPU, values=[before])
        return tuple(Tensor((1,), int64, CPU, values=[n]) for n in (self.seed_, before, 0))


def empty(*shape, dtype=float32, device=CPU):
    return Tensor(shape, dtype, device)


def zeros(*shape, dtype=float32, device=CPU):
    tensor = Tensor(shape, dtype, device)
    tensor.zero_()
    return tensor


def full(shape, value, dtype=float32, device=CPU):
    return Tensor(shape, dtype, device, values=[value] * math.prod(shape))


def empty_strided(torch, shape, strides, dtype):
    """Make a tensor on the current device without torch's dispatcher, as code compiled by torch does."""
    assert type(shape) is type(strides) is tuple
    tensor = Tensor(shape, dtype, Device("cuda", torch.cuda.current), strides)
    torch.undispatched.append(tensor)
    return tensor


def empty_like(tensor):
    return Tensor(tensor.shape, tensor.dtype, tensor.device, base=("like", tensor))


def pad(tensor, widths):
    assert widths[0] == 0
    return Tensor((*tensor.shape[:-1], tensor.shape[-1] + widths[1]), tensor.dtype, tensor.device, base=("pad", tensor))


class Around:
    """What happens around a call; its fields are what torch says in eager mode."""

    compiling, tracing = False, None
    dispatch_modes = function_modes = 0
    functorch_level, _current_level = None, -1


class FunctionBase:
    @classmethod
    def apply(cls, *arguments):
        done = types.SimpleNamespace(save_for_backward=lambda *_: None, set_materialize_grads=lambda _: None)
        return cls.forward(done, *arguments)


class Function(FunctionBase):
    """A torch.autograd.Function whose forward is called and whose backward nobody asks for."""

    _backward_cls = types.SimpleNamespace()


class Library:
    """A torch.library.Library that notes which function serves which operator on which device."""

    def __init__(self, kernels, namespace, kind):
        self.kernels, self.namespace = kernels, namespace

    def impl(self, name, function, key):
        self.kernels[f"{self.namespace}::{name}", key] = function


def modules():
    """Make the entries of sys.modules.

    `torch.workspaces` has every uint8 tensor that was made, `torch.undispatched` what was made without the dispatcher.
    """
    torch = types.ModuleType("torch")
    torch.workspaces, torch.undispatched = [], []

    def noting(make):
        def made(*shape, dtype=float32, device=CPU):
            tensor = make(*shape, dtype=dtype, device=device)
            if dtype is uint8:
                torch.workspaces.append(tensor)
            return tensor

        return made

    torch.empty, torch.zeros, torch.empty_like, torch.full = noting(empty), noting(zeros), empty_like, full
    torch.float16, torch.bfloat16, torch.float32 = float16, bfloat16, float32
    torch.int32, torch.int64, torch.uint8 = int32, int64, uint8
    torch.__version__ = "2.9.1"
    cuda = torch.cuda = types.ModuleType("torch.cuda")
    cuda.default_generators = (Generator(), Generator(seed=5678))
    cuda.current, cuda.capturing = 0, set()

    @contextlib.contextmanager
    def device(index) -> Iterator[None]:
        before, cuda.current = cuda.current, index
        yield
        cuda.current = before

    cuda.device = device
    cuda.is_available = lambda: False
    cuda.is_current_stream_capturing = lambda: cuda.current in cuda.capturing
    torch._C = c = types.ModuleType("torch._C")
    c._cuda_getCurrentRawStream = lambda index: 0x5000 + index
    c._cuda_getDevice = lambda: cuda.current
    c._dynamo = types.ModuleType("torch._C._dynamo")
    c._dynamo.guards = types.ModuleType("torch._C._dynamo.guards")
    c._dynamo.guards._empty_strided_cuda = lambda shape, strides, dtype: empty_strided(torch, shape, strides, dtype)
    torch.dtype, torch.device, torch.Size = Dtype, Device, tuple
    torch.Tensor, torch.is_grad_enabled, torch.no_grad = Tensor, lambda: True, contextlib.nullcontext
    torch.around = around = Around()
    c._len_torch_dispatch_stack = lambda: around.dispatch_modes
    c._len_torch_function_stack = lambda: around.function_modes
    c._get_tracing_state = lambda: around.tracing
    c._functorch = types.ModuleType("torch._C._functorch")
    c._functorch.maybe_current_level = lambda: around.functorch_level
    compiler, autograd = types.ModuleType("torch.compiler"), types.ModuleType("torch.autograd")
    compiler.is_compiling = lambda: around.compiling
    autograd.forward_ad, autograd.Function = around, Function
    function = types.ModuleType("torch.autograd.function")
    function.once_differentiable = lambda backward: backward
    torch.autograd = autograd
    torch.kernels = {}
    torch.library = types.SimpleNamespace(custom_op=None, Library=functools.partial(Library, torch.kernels))
    nn, functional = types.ModuleType("torch.nn"), types.ModuleType("torch.nn.functional")
    functional.pad = pad
    made = (torch, cuda, nn, functional, c, c._functorch, c._dynamo, c._dynamo.guards, compiler, autograd, function)
    return {module.__name__: module for module in made}
