r"""Coefficients of a kernel model: kernel ridge regression of numbers, kernel logistic regression of two classes.

Both predict :math:`f(x) = b + \sum_i \alpha_i K(x_i, x)` and penalise :math:`\frac{\lambda}{2} \alpha^\top K \alpha`,
with the intercept free. For numbers, b is the mean of the targets, and :math:`\alpha = (K + \lambda I)^{-1} (y - b)`.
For classes, Newton's method minimises the log loss; at its end :math:`\lambda \alpha = y - p`.

References
----------
Saunders, Gammerman and Vovk, Ridge regression learning algorithm in dual variables, ICML 1998; Zhu and Hastie, Kernel
logistic regression and the import vector machine, NeurIPS 2001.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.special import expit

from p2pfl.core.encodings import Floats
from p2pfl.core.errors import LearningError
from p2pfl.core.process import one_thread

MAX_STEPS = 100
"""Most Newton steps, where classes usually take 5 to 10."""

TOLERANCE = 1e-9
"""Largest residual at the end, a probability."""


class KernelSolution(NamedTuple):
    """Coefficients of a kernel model.

    Attributes
    ----------
    dual
        Coefficient of each training row, ``[n]``.
    bias
        Intercept.
    """

    dual: Floats
    bias: float


@one_thread()
def solve_ridge(kernel: Floats, targets: Floats, *, ridge: float) -> KernelSolution:
    """Return kernel ridge regression of numbers.

    Parameters
    ----------
    kernel, targets
        Kernel of all pairs of rows ``[n, n]``, and targets ``[n]``.
    ridge
        Penalty, ``alpha`` of scikit-learn's ``KernelRidge`` on targets less their mean.

    Raises
    ------
    LearningError
        The kernel with the penalty is singular.

    Examples
    --------
    >>> solve_ridge(np.eye(2), np.array([0.0, 2.0]), ridge=1.0)
    KernelSolution(dual=array([-0.5,  0.5]), bias=1.0)
    """
    bias = float(targets.mean())
    with _checked():
        dual = np.linalg.solve(kernel + ridge * np.eye(len(kernel)), targets - bias)
    return KernelSolution(np.asarray(dual, np.float64), bias)


@one_thread()
def solve_logistic(kernel: Floats, targets: npt.NDArray[np.integer], *, ridge: float) -> KernelSolution:
    """Return kernel logistic regression of two classes.

    Parameters
    ----------
    kernel, targets
        Kernel of all pairs of rows ``[n, n]``, and classes 0 and 1, ``[n]``.
    ridge
        Penalty, 1 over ``C`` of scikit-learn's ``LogisticRegression`` on functions whose products are the kernel.

    Raises
    ------
    LearningError
        There is one class only, the kernel with the penalty is not positive definite, or Newton's method does not end.

    Examples
    --------
    >>> solution = solve_logistic(np.eye(2), np.array([0, 1]), ridge=1.0)
    >>> bool(np.allclose(solution.dual, np.array([0, 1]) - expit(np.eye(2) @ solution.dual + solution.bias)))
    True
    """
    if len(np.unique(targets)) < 2:
        raise LearningError("the training rows have one class only; take a table with both")

    def objective(dual: Floats, bias: float) -> float:
        predictor = kernel @ dual + bias
        losses = np.logaddexp(0.0, np.where(targets == 1, -predictor, predictor))
        return float(losses.sum() + ridge / 2 * dual @ (predictor - bias))

    dual, bias = np.zeros(len(kernel)), float(np.log(targets.mean() / (1 - targets.mean())))
    value = objective(dual, bias)
    for _ in range(MAX_STEPS):
        predictor = kernel @ dual + bias
        means = expit(predictor)
        residuals = targets - means
        if max(np.abs(residuals - ridge * dual).max(), abs(residuals.sum())) < TOLERANCE:
            return KernelSolution(dual, bias)
        root = np.sqrt(np.maximum(means * (1 - means), np.finfo(float).tiny))
        # (S K S + ridge I) (dual / root) = root (z - bias), with S the diagonal of root and z the working response
        with _checked():
            factor = cho_factor(root[:, None] * kernel * root + ridge * np.eye(len(kernel)))
        working, ones = (root * cho_solve(factor, part) for part in (root * predictor + residuals / root, root))
        new_bias = float(working.sum() / ones.sum())
        step, rise = working - new_bias * ones - dual, new_bias - bias
        while (reached := objective(dual + step, bias + rise)) > value + 1e-12 * abs(value):
            step, rise = step / 2, rise / 2
        dual, bias, value = dual + step, bias + rise, reached
    raise LearningError(
        f"kernel logistic regression has not ended after {MAX_STEPS} steps; set model.options.ridge higher"
    )


@contextmanager
def _checked() -> Iterator[None]:
    """Say what to do where a kernel cannot be solved."""
    try:
        yield
    except LinAlgError as error:
        raise LearningError(
            "the kernel is not positive definite, as distances of columns would make it; set model.options.ridge "
            "higher, or find out which party entered other numbers"
        ) from error
