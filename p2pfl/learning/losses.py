"""Losses and metrics: functions ``f(outputs, targets) -> [B]`` with one number per sample."""

from collections.abc import Callable, Mapping

from p2pfl.core.errors import LearningError
from p2pfl.core.imports import describe_error, kind_of
from p2pfl.core.tensors import torch
from p2pfl.data.dataset import IGNORED

PerSample = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    r"""Return the negative log-likelihood :math:`-\log \mathrm{softmax}(o)_t` in nats, ``[B]``.

    With a class for each place, such as a pixel, outputs are ``[B, C, ...]``, targets ``[B, ...]``, and the loss of a
    sample is the mean over its places that have a class, see :data:`p2pfl.data.dataset.IGNORED`.

    Examples
    --------
    >>> cross_entropy(torch.zeros(1, 2, 3), torch.tensor([[1, -100, 0]]))
    tensor([0.6931])
    """
    return _each_counted(
        torch.nn.functional.cross_entropy(outputs, targets, reduction="none", ignore_index=IGNORED), targets
    )


def squared_error(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean squared distance to the targets of a sample, ``[B]``; there are as many outputs as targets."""
    return _each((outputs.reshape(targets.shape) - targets).square())


def binary_cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    r"""Return the mean negative log-likelihood of the labels of a sample, ``[B]``.

    Labels are 0 or 1, each by itself, and the outputs are their logits, as many as labels.
    """
    logits = outputs.reshape(targets.shape)
    return _each(
        torch.nn.functional.binary_cross_entropy_with_logits(logits, targets.to(logits.dtype), reduction="none")
    )


def _each(losses: torch.Tensor) -> torch.Tensor:
    """Return the mean over all but the first axis, ``[B]``."""
    return losses if losses.dim() == 1 else losses.flatten(1).mean(1)


def _each_counted(values: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean over the places of each sample that have a class, 0 without any; other values are 0, ``[B]``."""
    if values.dim() == 1:
        return values
    counts = (targets != IGNORED).flatten(1).sum(1)  # [B]
    return values.flatten(1).sum(1) / counts.clamp_min(1)


def mean(loss: PerSample, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean of a loss over a batch, in one operation where torch has one."""
    if loss is cross_entropy and targets.dim() == 1:
        return torch.nn.functional.cross_entropy(outputs, targets)
    if loss is squared_error:
        return torch.nn.functional.mse_loss(outputs.reshape(targets.shape), targets)
    return loss(outputs, targets).mean()


def accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the share of places of a sample with a class whose most likely class is that one, ``[B]``."""
    return _each_counted((outputs.argmax(dim=1) == targets).double(), targets)


LOSSES: Mapping[str, PerSample] = {
    "cross_entropy": cross_entropy,
    "squared_error": squared_error,
    "binary_cross_entropy": binary_cross_entropy,
}
"""Losses by their name in ``learning.loss``."""

BUILT_IN_LOSSES = (*LOSSES.values(), accuracy)


class UserFunction:
    """User-defined loss or metric, whose errors become one sentence that names it.

    Parameters
    ----------
    function
        Function of the user, or anything that can be called like one.
    name
        Name of the function, ``package.module:function``.

    Raises
    ------
    LearningError
        When called: the function raises or does not return one number per sample.

    Examples
    --------
    >>> far = UserFunction(lambda outputs, targets: (outputs - targets).abs(), name="clinic:far")
    >>> far(torch.tensor([1.0, 5.0]), torch.tensor([2.0, 2.0]))
    tensor([1., 3.])
    """

    def __init__(self, function: PerSample, *, name: str) -> None:
        self.function, self.name = function, name

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return one number per sample, ``[B]``."""
        try:
            values = self.function(outputs, targets)
        except Exception as error:
            reason = describe_error(error, module=str(getattr(self.function, "__module__", "")))
            shapes = f"outputs {tuple(outputs.shape)} and targets {tuple(targets.shape)}"
            raise LearningError(f"{self.name} fails for {shapes} ({reason}); fix the function") from error
        if not torch.is_tensor(values):
            raise self._wrong(kind_of(values), targets, "return one")
        if values.shape != targets.shape[:1]:
            remedy = "do not average over samples (reduction='none'), but over all else"
            raise self._wrong(f"shape {tuple(values.shape)}", targets, remedy)
        if values.is_complex():
            raise self._wrong("complex numbers", targets, "return real ones")
        return values

    def _wrong(self, result: str, targets: torch.Tensor, remedy: str) -> LearningError:
        return LearningError(
            f"{self.name} returns {result}, not a tensor of one number per sample, ({len(targets)},); {remedy}"
        )


def name_loss(function: PerSample) -> PerSample:
    """Return a built-in function unchanged, and any other under its own name."""
    if function in BUILT_IN_LOSSES or isinstance(function, UserFunction):
        return function
    kind = type(function)
    name = getattr(function, "__qualname__", kind.__qualname__)
    return UserFunction(function, name=f"{getattr(function, '__module__', None) or kind.__module__}:{name}")


def each_sample(function: PerSample, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return a loss or metric of K rows, ``[K, B]``, from outputs ``[K, B, *outputs]`` and targets ``[K, B, ...]``."""
    if targets.dim() == 2 and function is cross_entropy:
        # classes second: softmax along the last axis is ten times slower for few classes
        return torch.nn.functional.cross_entropy(outputs.movedim(-1, 1), targets, reduction="none")
    if targets.dim() == 2 and function is accuracy:
        # in the order in which kernels write outputs, max takes a fifth of the time of argmax along the last axis
        return (outputs.movedim(-1, 1).max(dim=1).indices == targets).double()
    return function(outputs.flatten(0, 1), targets.flatten(0, 1)).view(targets.shape[:2])
