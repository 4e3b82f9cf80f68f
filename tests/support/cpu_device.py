"""A device that exists only in tests: it computes on the CPU, and refuses what an accelerator would refuse.

Tensors on it call themselves tensors of torch's ``meta`` device, which every torch has. Operations may not mix them
with tensors of the CPU, and each one that would make the CPU wait for an accelerator is counted.
"""

import contextlib
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from p2pfl.learning import checks

DEVICE = torch.device("meta")

READS = {"_local_scalar_dense", "equal", "is_nonzero", "masked_select", "nonzero", "_unique2", "unique_dim"}
"""Operations whose result, or its shape, the CPU needs."""

BOOLEANS = {"index", "index_put", "index_put_"}
"""Operations that look for the true places of a boolean index."""


class DeviceTensor(torch.Tensor):
    """Tensor of the device."""

    @staticmethod
    def __new__(cls, real):
        out = torch.Tensor._make_wrapper_subclass(
            cls,
            real.shape,
            strides=real.stride(),
            storage_offset=real.storage_offset(),
            dtype=real.dtype,
            device=DEVICE,
        )
        out.real_ = real
        return out

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError(f"{func} ran on the device outside of its context")


class Device(TorchDispatchMode):
    """Context in which the device exists.

    Attributes
    ----------
    waits
        Number of waits, by operation and the line of p2pfl that asked for it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        leaves = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        ours = [each for each in leaves if isinstance(each, DeviceTensor)]
        others = [each for each in leaves if not isinstance(each, DeviceTensor)]
        here = self._result_is_here(name, args, kwargs, ours, others)
        if name in READS and ours:
            self._wait(name)
        fills = name in BOOLEANS - {"index"} and args[2].numel() == 1  # torch fills masks without looking for places
        masked = name in BOOLEANS and any(each is not None and each.dtype == torch.bool for each in args[1])
        if masked and ours and not fills:
            self._wait(f"{name} by booleans")
        out = func(*tree_map(_real, args), **tree_map(_real, kwargs))
        known = {id(each.real_): each for each in ours}

        def wrapped(each):
            if not isinstance(each, torch.Tensor) or id(each) in known:
                return known.get(id(each), each)
            return DeviceTensor(each) if here else each

        return tree_map(wrapped, out)

    def _result_is_here(self, name, args, kwargs, ours, others) -> bool:
        """Return whether the result is on the device, and refuse arguments of two devices."""
        if name == "_to_copy":
            here = kwargs.get("device") == DEVICE if kwargs.get("device") is not None else bool(ours)
            if ours and not here:
                self._wait("copy to the CPU")
            if others and here and not kwargs.get("non_blocking"):
                self._wait("copy to the device")
            return here
        if name == "copy_":
            if isinstance(args[0], DeviceTensor) != isinstance(args[1], DeviceTensor):
                self._wait("copy between devices")
            return False
        assert not (ours and any(each.dim() for each in others)), f"{name} mixes tensors of two devices"
        if name in BOOLEANS and ours and others:
            self._wait(f"{name} of a number of the CPU")
        return bool(ours) or kwargs.get("device") == DEVICE

    def _wait(self, what: str) -> None:
        frame = sys._getframe()
        while frame is not None and "p2pfl" not in Path(frame.f_code.co_filename).parts[-3:-1]:
            frame = frame.f_back
        where = "elsewhere" if frame is None else f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}"
        self.waits[f"{what} in {where}"] += 1


def _real(each):
    if isinstance(each, DeviceTensor):
        return each.real_
    return torch.device("cpu") if isinstance(each, torch.device) and each == DEVICE else each


@contextlib.contextmanager
def device() -> Iterator[Device]:
    """Let learners find the device in place of ``cuda``."""
    known = checks.find_device
    with (
        mock.patch.object(checks, "find_device", lambda name: DEVICE if name == "cuda" else known(name)),
        Device() as found,
    ):
        yield found


@contextlib.contextmanager
def _sync_debug_mode(mode):
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode")  # some versions of torch call it a prototype
        torch.cuda.set_sync_debug_mode(mode)
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Synchronization debug mode")
            torch.cuda.set_sync_debug_mode(before)


def waiting_forbidden():
    """Let CUDA raise an error where the CPU would wait for it."""
    return _sync_debug_mode("error")


def waiting_allowed():
    """Let the CPU wait for CUDA, inside of :func:`waiting_forbidden` too."""
    return _sync_debug_mode("default")
