"""The part of torch's interface that the rows of a peer need, on arrays of numpy, for devices without torch.

:mod:`p2pfl.core.tensors` chooses between the two. Names, arguments and results are those of torch, whose manual
describes them: numbers of Python and tensors without axes do not widen the type of a tensor with axes, and views share
memory. What is missing here raises :class:`AttributeError`.
"""

# mypy: ignore-errors

import contextlib
import math
import operator
from collections import namedtuple
from types import SimpleNamespace

import numpy as np

__version__ = "none"
inf, nan = math.inf, math.nan
strided = "torch.strided"
contiguous_format = None
Extremes = namedtuple("Extremes", ["values", "indices"])
Bounds = namedtuple("Bounds", ["min", "max"])
Factors = namedtuple("Factors", ["Q", "R"])


class dtype:  # noqa: N801 -- torch's name
    """Type of numbers; there is one object of each."""

    def __init__(self, name, array):
        self.name, self.is_floating_point, self.is_complex = name, "float" in name, False
        self.array = np.dtype(array)
        self.itemsize = self.array.itemsize

    def __repr__(self):
        return f"torch.{self.name}"

    def __reduce__(self):
        return self.name  # pickled and copied by name, so that identity holds


float16, float32, float64 = dtype("float16", "f2"), dtype("float32", "f4"), dtype("float64", "f8")
int8, int16, int32, int64 = dtype("int8", "i1"), dtype("int16", "i2"), dtype("int32", "i4"), dtype("int64", "i8")
uint8, uint16, uint32, uint64 = (dtype(f"uint{8 * n}", f"u{n}") for n in (1, 2, 4, 8))
bool = dtype("bool", "?")
BRAIN = np.dtype([("bfloat16", "<u2")])
"""Bits of bfloat16, the upper half of float32: numpy has no such numbers, so they can only be moved and converted."""
bfloat16 = dtype("bfloat16", BRAIN)
TYPES = {
    each.array: each
    for each in (float16, float32, float64, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool)
}
WHOLE, REAL = np.dtype("i8"), np.dtype("f4")


class device:  # noqa: N801
    """The processor."""

    def __init__(self, type="cpu", index=None):
        if str(type).partition(":")[0] != "cpu":
            raise RuntimeError(f"device {type} needs torch, which is not installed")
        self.type, self.index = "cpu", index

    def __eq__(self, other):
        return isinstance(other, device)

    def __hash__(self):
        return 0

    def __repr__(self):
        return "device(type='cpu')"

    __str__ = lambda self: "cpu"  # noqa: E731


CPU = device()


def _array(value):
    """Return the array of a tensor, and anything else as it is."""
    return value.array if isinstance(value, Tensor) else value


def _kind(of):
    """Return 0 for booleans, 1 for whole numbers, 2 for others."""
    return {"b": 0, "f": 2}.get(of.kind, 1)


def _widest(kinds):
    """Return the common type of arrays; whole numbers do not widen others."""
    most = max(map(_kind, kinds))
    return np.result_type(*(each for each in kinds if _kind(each) == most))


def _common(*values):
    """Return the type of the result of an operation, see :mod:`p2pfl.core.numpy_tensors`."""
    full, bare, kinds = [], [], []
    for value in values:
        if isinstance(value, np.ndarray):
            (full if value.ndim else bare).append(value.dtype)
        elif isinstance(value, np.generic):
            kinds.append(_kind(value.dtype))
        else:
            kinds.append(0 if value is True or value is False else 2 if isinstance(value, float) else 1)
    result = _widest(full) if full else None
    if bare:
        other = _widest(bare)
        result = other if result is None or _kind(other) > _kind(result) else result
    most = max(kinds, default=0)
    if result is None or most > _kind(result):
        result = (np.dtype("?"), WHOLE, REAL)[most]
    return result


def _both(a, b):
    """Return two operands as arrays of their common type, or as numbers of Python."""
    a, b = _array(a), _array(b)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.dtype == b.dtype:
        return a, b
    kind = _common(a, b)
    return np.asarray(a, kind), np.asarray(b, kind)


@np.errstate(all="ignore")
def _binary(function, a, b, out=None):
    a, b = _both(a, b)
    return Tensor(function(a, b)) if out is None else _into(out, function, a, b)


def _into(out, function, *operands):
    function(*operands, out=out.array, casting="same_kind")
    return out


@np.errstate(all="ignore")
def _divide(a, b):
    a, b = _both(a, b)
    return Tensor(np.true_divide(a, b, dtype=a.dtype if a.dtype.kind == "f" else REAL))


def _convert(array, kind):
    """Return the numbers of an array in another type; to bfloat16, halves round to the even neighbour."""
    if array.dtype == BRAIN:
        array = (array.view("<u2").astype("<u4") << 16).view("<f4")
    if kind != BRAIN:
        return array.astype(kind)
    bits = array.astype("<f4").view("<u4")
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(array), bits >> 16 | 0x40, rounded).astype("<u2").view(BRAIN)  # NaN becomes a quiet one


def _axes(dim):
    return tuple(dim) if isinstance(dim, list) else dim


def _shape(sizes):
    sizes = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
    return tuple(operator.index(size) for size in sizes)


def _index(index):
    return tuple(map(_array, index)) if isinstance(index, tuple) else (_array(index),)


class Tensor:
    """Array of numpy with the methods of a tensor of torch; attributes are those of torch.

    Examples
    --------
    >>> rows = tensor([[3.0, 4.0]])
    >>> linalg.vector_norm(rows, dim=-1, dtype=float64).tolist()
    [5.0]
    >>> (rows * tensor(2.0, dtype=float64)).dtype
    torch.float32
    """

    __slots__ = ("array",)
    __array_ufunc__ = None  # numpy leaves operators to this class
    device, layout, requires_grad = CPU, strided, False

    def __init__(self, array):
        self.array = array if isinstance(array, np.ndarray) else np.asarray(array)

    def __array__(self, dtype=None, copy=None):
        return np.array(self.array, dtype, copy=copy)

    def __repr__(self):
        return f"tensor({np.array2string(self.array, separator=', ')}, dtype={self.dtype})"

    def __getstate__(self):
        return self.array

    def __setstate__(self, array):
        self.array = array

    __hash__ = object.__hash__
    dtype = property(lambda self: TYPES[self.array.dtype])
    shape = property(lambda self: self.array.shape)
    ndim = property(lambda self: self.array.ndim)
    itemsize = property(lambda self: self.array.itemsize)
    nbytes = property(lambda self: self.array.nbytes)
    T = property(lambda self: Tensor(self.array.T))
    mT = property(lambda self: Tensor(self.array.swapaxes(-1, -2)))  # noqa: N815

    def dim(self):
        return self.array.ndim

    def size(self, dim=None):
        return self.array.shape if dim is None else self.array.shape[dim]

    def stride(self, dim=None):
        strides = tuple(each // self.array.itemsize for each in self.array.strides)
        return strides if dim is None else strides[dim]

    def numel(self):
        return self.array.size

    def element_size(self):
        return self.array.itemsize

    def is_floating_point(self):
        return self.dtype.is_floating_point

    def is_complex(self):
        return self.array.dtype.kind == "c"

    def numpy(self):
        return self.array

    def tolist(self):
        return self.array.tolist()

    def __len__(self):
        return len(self.array)

    def __iter__(self):
        return map(self.__getitem__, range(len(self.array)))

    def __bool__(self):
        return self.array.__bool__()

    def __float__(self):
        return self.array.item() + 0.0

    def __int__(self):
        return math.trunc(self.array.item())

    def __index__(self):
        return operator.index(self.array.item())

    def __getitem__(self, index):
        index = _index(index)
        part = self.array[index]
        return Tensor(part if isinstance(part, np.ndarray) else self.array[(*index, ...)])  # a number, as a view

    def __setitem__(self, index, value):
        self.array[_index(index)] = _array(value)

    # Types and copies

    def detach(self):
        return self

    cpu = detach

    def to(self, *wanted, dtype=None, copy=False, **_):
        for each in wanted:
            dtype = each.dtype if isinstance(each, Tensor) else each if isinstance(each, globals()["dtype"]) else dtype
        with np.errstate(all="ignore"):
            kind = self.array.dtype if dtype is None else dtype.array
            return self if kind == self.array.dtype and not copy else Tensor(_convert(self.array, kind))

    def double(self):
        return self.to(float64)

    def float(self):
        return self.to(float32)

    def long(self):
        return self.to(int64)

    def bool(self):
        return self.to(bool)

    def clone(self, **_):
        return Tensor(self.array.copy())

    def contiguous(self):
        return self if self.array.flags.c_contiguous else self.clone()

    # Shapes

    def view(self, *sizes):
        if isinstance(sizes[0], dtype):
            return Tensor(self.array.view(sizes[0].array))
        seen = self.array.reshape(_shape(sizes))
        if seen.size and not np.may_share_memory(seen, self.array):
            raise RuntimeError(f"a view of shape {seen.shape} would copy these strides; use reshape")
        return Tensor(seen)

    def reshape(self, *sizes):
        return Tensor(self.array.reshape(_shape(sizes)))

    def view_as(self, other):
        return self.view(other.shape)

    def flatten(self, start_dim=0, end_dim=-1):
        shape = self.array.shape or (1,)
        last = end_dim % len(shape) + 1
        return Tensor(self.array.reshape(*shape[:start_dim], math.prod(shape[start_dim:last]), *shape[last:]))

    def squeeze(self, dim=None):
        if dim is not None and self.array.shape[dim] != 1:
            return self
        return Tensor(self.array.squeeze(dim))

    def unsqueeze(self, dim):
        return Tensor(np.expand_dims(self.array, dim))

    def transpose(self, one, other):
        return Tensor(self.array.swapaxes(one, other))

    def movedim(self, source, destination):
        return Tensor(np.moveaxis(self.array, source, destination))

    def permute(self, *dims):
        return Tensor(self.array.transpose(_shape(dims)))

    def expand(self, *sizes):
        sizes = _shape(sizes)
        own = (1,) * (len(sizes) - self.array.ndim) + self.array.shape
        shape = tuple(mine if size == -1 else size for size, mine in zip(sizes, own, strict=True))
        wide = np.broadcast_to(self.array, shape)  # where numbers repeat, nothing can be written
        return Tensor(self.array.reshape(shape) if wide.size == self.array.size else wide)

    def expand_as(self, other):
        return self.expand(other.shape)

    def repeat(self, *sizes):
        return Tensor(np.tile(self.array, _shape(sizes)))

    def unbind(self, dim=0):
        return tuple(self.movedim(dim, 0))

    def split(self, sizes, dim=0):
        return split(self, sizes, dim)

    def tensor_split(self, sections, dim=0):
        return tuple(map(Tensor, np.array_split(self.array, _array(sections), dim)))

    # Reductions

    def sum(self, dim=None, keepdim=False, *, dtype=None):
        kind = dtype.array if dtype is not None else None if self.array.dtype.kind == "f" else WHOLE
        with np.errstate(all="ignore"):
            return Tensor(self.array.sum(_axes(dim), dtype=kind, keepdims=keepdim))

    def mean(self, dim=None, keepdim=False, *, dtype=None):
        with np.errstate(all="ignore"):
            count = self.array.size if dim is None else math.prod(np.take(self.array.shape, dim, mode="wrap").flat)
            total = self.sum(dim, keepdim, dtype=dtype)
            return total / (count or nan)

    def var(self, dim=None, *, correction=1, keepdim=False):
        with np.errstate(all="ignore"):
            return Tensor(self.array.var(_axes(dim), ddof=correction, keepdims=keepdim))

    def norm(self, dim=None, *, keepdim=False):
        return linalg.vector_norm(self, dim=dim, keepdim=keepdim)

    def amax(self, dim=None, keepdim=False):
        return Tensor(self.array.max(_axes(dim), keepdims=keepdim))

    def amin(self, dim=None, keepdim=False):
        return Tensor(self.array.min(_axes(dim), keepdims=keepdim))

    def max(self, dim=None, keepdim=False):
        if dim is None:
            return self.amax()
        return Extremes(self.amax(dim, keepdim), self.argmax(dim, keepdim))

    def min(self, dim=None, keepdim=False):
        if dim is None:
            return self.amin()
        return Extremes(self.amin(dim, keepdim), self.argmin(dim, keepdim))

    def argmax(self, dim=None, keepdim=False):
        return Tensor(np.argmax(self.array, dim, keepdims=keepdim))

    def argmin(self, dim=None, keepdim=False):
        return Tensor(np.argmin(self.array, dim, keepdims=keepdim))

    def all(self, dim=None, keepdim=False):
        return Tensor(self.array.all(_axes(dim), keepdims=keepdim))

    def any(self, dim=None, keepdim=False):
        return Tensor(self.array.any(_axes(dim), keepdims=keepdim))

    def prod(self, dim=None):
        return Tensor(self.array.prod(_axes(dim)))

    def nanmean(self):
        return Tensor(np.nanmean(self.array, dtype=self.array.dtype))

    def softmax(self, dim):
        return log_softmax(self, dim).exp()

    def diff(self, dim=-1):
        return Tensor(np.diff(self.array, axis=dim))

    def diagonal(self):
        return Tensor(self.array.diagonal())

    def cumsum(self, dim):
        return Tensor(self.array.cumsum(dim))

    def sort(self, dim=-1, *, descending=False, stable=False):
        order = self.argsort(dim, descending=descending, stable=stable)
        return Extremes(self.gather(dim, order), order)

    def argsort(self, dim=-1, *, descending=False, stable=False):
        if not descending:
            return Tensor(np.argsort(self.array, dim, kind="stable" if stable else None))
        order = np.argsort(np.flip(self.array, dim), dim, kind="stable")  # as flipped, equal numbers keep their order
        return Tensor(self.array.shape[dim] - 1 - np.flip(order, dim))

    def topk(self, k, dim=-1):
        values, order = self.sort(dim, descending=True, stable=True)
        few = tuple(slice(k) if axis == dim % self.array.ndim else slice(None) for axis in range(self.array.ndim))
        return Extremes(values[few], order[few])

    # Places

    def gather(self, dim, index):
        return Tensor(np.take_along_axis(self.array, index.array, dim))

    def index_select(self, dim, index):
        return Tensor(self.array.take(index.array, dim))

    def index_copy_(self, dim, index, source):
        np.moveaxis(self.array, dim, 0)[index.array] = np.moveaxis(source.array, dim, 0)
        return self

    def index_add_(self, dim, index, source, *, alpha=1):
        np.add.at(np.moveaxis(self.array, dim, 0), index.array, np.moveaxis((source * alpha).array, dim, 0))
        return self

    def index_add(self, dim, index, source, *, alpha=1):
        return self.clone().index_add_(dim, index, source, alpha=alpha)

    def index_fill_(self, dim, index, value):
        np.moveaxis(self.array, dim, 0)[index.array] = value
        return self

    def scatter_(self, dim, index, source):
        np.put_along_axis(self.array, index.array, _array(source), dim)
        return self

    def scatter(self, dim, index, source):
        return self.clone().scatter_(dim, index, source)

    def index_copy(self, dim, index, source):
        return self.clone().index_copy_(dim, index, source)

    def scatter_reduce_(self, dim, index, source, reduce):
        places = [*np.indices(index.array.shape, sparse=True)]
        places[dim] = index.array
        function = {"amax": np.maximum, "amin": np.minimum, "sum": np.add}[reduce]
        function.at(self.array, tuple(places), source.array[tuple(map(slice, index.array.shape))])
        return self

    def scatter_reduce(self, dim, index, source, reduce):
        return self.clone().scatter_reduce_(dim, index, source, reduce)

    def index_put_(self, places, values):
        self[places] = values
        return self

    def nonzero(self):
        return Tensor(np.argwhere(self.array))

    def where(self, condition, other):
        return where(condition, self, other)

    def copy_(self, source):
        self.array[...] = source.array
        return self

    def new_zeros(self, *sizes, dtype=None, **_):
        return zeros(*sizes, dtype=dtype or self.dtype)

    def new_ones(self, *sizes, dtype=None, **_):
        return ones(*sizes, dtype=dtype or self.dtype)

    def new_empty(self, *sizes, dtype=None, **_):
        return empty(*sizes, dtype=dtype or self.dtype)

    def new_full(self, size, value, *, dtype=None, **_):
        return full(size, value, dtype=dtype or self.dtype)

    def new_tensor(self, data, *, dtype=None, **_):
        return tensor(data, dtype=dtype or self.dtype)

    # Arithmetic

    def add(self, other, *, alpha=1):
        return _binary(np.add, self, other if alpha == 1 else mul(other, alpha))

    def add_(self, other, *, alpha=1):
        return self.__iadd__(other if alpha == 1 else mul(other, alpha))

    def sub(self, other, *, alpha=1):
        return _binary(np.subtract, self, other if alpha == 1 else mul(other, alpha))

    def sub_(self, other, *, alpha=1):
        return self.__isub__(other if alpha == 1 else mul(other, alpha))

    def lerp(self, end, weight):
        return lerp(self, end, weight)

    def clamp(self, min=None, max=None):
        result = self
        result = result if min is None else _binary(np.maximum, result, min)
        return result if max is None else _binary(np.minimum, result, max)

    def clamp_min(self, least):
        return self.clamp(least)

    def clamp_max(self, most):
        return self.clamp(None, most)

    def nan_to_num(self, nan=0.0, posinf=None, neginf=None):
        return Tensor(np.nan_to_num(self.array, nan=nan, posinf=posinf, neginf=neginf))

    def __neg__(self):
        return Tensor(-self.array)

    def __invert__(self):
        return Tensor(~self.array)

    def __matmul__(self, other):
        a, b = _both(self, other)
        return Tensor(a @ b)

    def __truediv__(self, other):
        return _divide(self, other)

    def __rtruediv__(self, other):
        return _divide(other, self)

    def __pow__(self, other):
        return self.square() if other == 2 else _binary(np.power, self, other)

    pow = __pow__

    def __itruediv__(self, other):
        return self.copy_(_divide(self, other))


OPERATORS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "lshift": np.left_shift,
    "rshift": np.right_shift,
}
COMPARISONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
ELEMENTWISE = {
    "abs": np.abs,
    "sqrt": np.sqrt,
    "square": np.square,
    "exp": np.exp,
    "log": np.log,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "cos": np.cos,
    "floor": np.floor,
    "round": np.rint,
    "sign": np.sign,
    "isfinite": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "logical_not": np.logical_not,
}


def _operator(function):
    def here(self, other):
        return _binary(function, self, other)

    def reflected(self, other):
        return _binary(function, other, self)

    @np.errstate(all="ignore")
    def in_place(self, other):
        other = _array(other)
        if not isinstance(other, np.ndarray) or (other.ndim == 0 and self.array.ndim):
            other = np.asarray(
                other,
                np.result_type(self.array, np.asarray(other))
                if _kind(np.asarray(other).dtype) > _kind(self.array.dtype)
                else self.array.dtype,
            )
        return _into(self, function, self.array, other)

    return here, reflected, in_place


def _elementwise(function):
    @np.errstate(all="ignore")
    def applied(self, *, out=None):
        return Tensor(function(self.array)) if out is None else _into(out, function, self.array)

    @np.errstate(all="ignore")
    def in_place(self):
        return _into(self, function, self.array)

    return applied, in_place


for _name, _function in OPERATORS.items():
    _here, _reflected, _in_place = _operator(_function)
    setattr(Tensor, f"__{_name}__", _here)
    setattr(Tensor, f"__r{_name}__", _reflected)
    setattr(Tensor, f"__i{_name}__", _in_place)
for _name, _function in COMPARISONS.items():
    _here, *_ = _operator(_function)
    setattr(Tensor, f"__{_name}__", _here)
    setattr(Tensor, _name, _here)
for _name, _function in ELEMENTWISE.items():
    globals()[_name], _in_place = _elementwise(_function)
    setattr(Tensor, _name, globals()[_name])
    setattr(Tensor, f"{_name}_", _in_place)
Tensor.mul, Tensor.mul_ = Tensor.__mul__, Tensor.__imul__
Tensor.maximum, Tensor.minimum = _operator(np.maximum)[0], _operator(np.minimum)[0]


def _pair(function):
    def applied(a, b, *, out=None):
        return _binary(function, a, b, out)

    return applied


add, sub, mul, maximum, minimum, pow = (
    _pair(each) for each in (np.add, np.subtract, np.multiply, np.maximum, np.minimum, np.power)
)


# Makers


def tensor(data, *, dtype=None, device=None):
    listed = isinstance(data, (list, tuple))
    array = np.array([_array(each) for each in data] if listed else _array(data))
    typed = any(isinstance(each, (np.ndarray, np.generic, Tensor)) for each in (data if listed else [data]))
    if dtype is None and array.dtype == np.float64 and not typed:
        dtype = float32
    return Tensor(array if dtype is None else array.astype(dtype.array))


def from_numpy(array):
    return Tensor(array)


def frombuffer(buffer, *, dtype, count=-1, offset=0):
    return Tensor(np.frombuffer(buffer, dtype.array, count, offset))


def zeros(*sizes, dtype=float32, **_):
    return Tensor(np.zeros(_shape(sizes), (dtype or float32).array))


def ones(*sizes, dtype=float32, **_):
    return Tensor(np.ones(_shape(sizes), (dtype or float32).array))


def empty(*sizes, dtype=float32, **_):
    return Tensor(np.empty(_shape(sizes), (dtype or float32).array))


def full(size, value, *, dtype=None, **_):
    value = _array(value)
    return Tensor(np.full(size, value, _common(value) if dtype is None else dtype.array))


def eye(count, *, dtype=float32, **_):
    return Tensor(np.eye(count, dtype=dtype.array))


def arange(*bounds, dtype=None, **_):
    bounds = [_array(each) for each in bounds]
    return Tensor(np.arange(*bounds, dtype=_common(*bounds) if dtype is None else dtype.array))


def zeros_like(like, *, dtype=None, **_):
    return zeros(like.shape, dtype=dtype or like.dtype)


def ones_like(like, *, dtype=None, **_):
    return ones(like.shape, dtype=dtype or like.dtype)


def empty_like(like, *, dtype=None, **_):
    return empty(like.shape, dtype=dtype or like.dtype)


def full_like(like, value, *, dtype=None, **_):
    return full(like.shape, value, dtype=dtype or like.dtype)


# Functions


def is_tensor(value):
    return isinstance(value, Tensor)


def cat(tensors, dim=0):
    kind = _widest([each.array.dtype for each in tensors])
    some = [each.array for each in tensors if each.array.shape != (0,)] or [each.array for each in tensors]
    return Tensor(np.concatenate(some, dim, dtype=kind, casting="unsafe"))


def stack(tensors, dim=0):
    return Tensor(np.stack([each.array for each in tensors], dim))


def split(values, sizes, dim=0):
    length = values.array.shape[dim]
    if not isinstance(sizes, (list, tuple)):
        sizes = [min(sizes, length - low) for low in range(0, length, sizes)] or [0]
    ends = np.cumsum(sizes).tolist()
    before = (slice(None),) * (dim % values.array.ndim)
    return tuple(values[(*before, slice(end - size, end))] for size, end in zip(sizes, ends, strict=True))


def where(condition, one, other):
    one, other = _both(one, other)
    return Tensor(np.where(condition.array, one, other))


def equal(one, other):
    return one.shape == other.shape and np.array_equal(one.array, other.array)


def lerp(start, end, weight):
    return start + (end - start) * weight


def mean(values, dim=None, keepdim=False, *, out=None):
    result = values.mean(dim, keepdim)
    return result if out is None else out.copy_(result)


def aminmax(values):
    return Bounds(values.amin(), values.amax())


def nan_to_num(values, nan=0.0, posinf=None, neginf=None):
    return values.nan_to_num(nan, posinf, neginf)


def bincount(values, *, minlength=0):
    return Tensor(np.bincount(values.array, minlength=minlength))


def searchsorted(ordered, values, *, right=False):
    return Tensor(np.searchsorted(ordered.array, values.array, side="right" if right else "left"))


def log_softmax(values, dim):
    shifted = values - values.amax(dim, keepdim=True)
    return shifted - shifted.exp().sum(dim, keepdim=True).log()


def finfo(kind):
    return SimpleNamespace(max=float.fromhex("0x1.fep127")) if kind is bfloat16 else np.finfo(kind.array)


def iinfo(kind):
    return np.iinfo(kind.array)


def _vector_norm(values, *, dim=None, keepdim=False, dtype=None):
    values = values if dtype is None else values.to(dtype)
    return values.square().sum(dim, keepdim).sqrt()


def _pad(values, widths, *, value=0):
    widths = [(0, 0)] * (values.array.ndim - len(widths) // 2) + [*zip(widths[-2::-2], widths[::-2], strict=True)]
    return Tensor(np.pad(values.array, widths, constant_values=value))


def _cross_entropy(outputs, targets, *, reduction="mean", ignore_index=-100):
    counted = targets != ignore_index
    chosen = where(counted, targets, 0)
    losses = -log_softmax(outputs, 1).gather(1, chosen.unsqueeze(1)).squeeze(1)
    losses = where(counted, losses, 0.0)
    return losses if reduction == "none" else losses.sum() / counted.sum()


def _binary_cross_entropy(logits, labels, *, reduction="mean"):
    losses = logits.clamp_min(0) - logits * labels + (-logits.abs()).exp().log1p()
    return losses if reduction == "none" else losses.mean()


def _embedding_bag(index, weight, offsets, *, mode, per_sample_weights):
    assert mode == "sum", mode
    bags = np.searchsorted(offsets.array, np.arange(len(index)), side="right") - 1
    sums = zeros(len(offsets), weight.shape[1], dtype=weight.dtype)
    return sums.index_add_(0, Tensor(bags), weight[index] * per_sample_weights.unsqueeze(-1))


def get_num_threads():
    return 1


def set_num_threads(count):
    """Do nothing, as numpy's libraries are limited where p2pfl uses several cores itself."""


def get_default_dtype():
    return float32


def no_grad():
    return contextlib.nullcontext()


inference_mode = no_grad


class Module:
    """Holder of tensors by name, of which only the forward pass can be asked for."""

    def register_buffer(self, name, tensor):
        setattr(self, name, tensor)

    def get_buffer(self, name):
        return getattr(self, name)

    def __call__(self, *arguments):
        return self.forward(*arguments)


linalg = SimpleNamespace(vector_norm=_vector_norm, qr=lambda values: Factors(*map(Tensor, np.linalg.qr(values.array))))
nn = SimpleNamespace(
    Module=Module,
    functional=SimpleNamespace(
        one_hot=lambda values, count: Tensor(np.eye(count, dtype=WHOLE)[values.array]),
        pad=_pad,
        cross_entropy=_cross_entropy,
        binary_cross_entropy_with_logits=_binary_cross_entropy,
        mse_loss=lambda outputs, targets: (outputs - targets).square().mean(),
        embedding_bag=_embedding_bag,
    ),
)
random = SimpleNamespace(get_rng_state=lambda: zeros(0, dtype=uint8), set_rng_state=lambda _: None)
cuda = SimpleNamespace(is_available=lambda: False)
backends = SimpleNamespace(cpu=SimpleNamespace(get_cpu_capability=lambda: "numpy"))
