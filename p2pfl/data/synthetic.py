"""The synthetic federation of FedProx."""

from functools import partial
from pathlib import Path

import numpy as np

from p2pfl.core.errors import DataError
from p2pfl.core.rows import draw
from p2pfl.data.data_description import Description
from p2pfl.data.dataset import FloatArray, IntArray
from p2pfl.data.sources import Private


def synthetic(
    _: Path | None, *, alpha: float = 1.0, beta: float = 1.0, iid: bool = False, features: int = 60, classes: int = 10
) -> Private:
    r"""Generate Synthetic(alpha, beta): devices whose models and inputs differ, one device for each peer.

    Device k has :math:`\lfloor e^{z} \rfloor + 50` samples with :math:`z \sim N(4, 2^2)`,

    .. math::
        x \sim N(v_k, \mathrm{diag}(j^{-1.2})), \quad v_{kj} \sim N(B_k, 1), \quad B_k \sim N(0, \beta^2), \\
        y = \arg\max_c (W_k x + b_k)_c, \quad W_k, b_k \sim N(u_k, 1), \quad u_k \sim N(0, \alpha^2).

    Here alpha and beta are standard deviations, as in the authors' program (the paper prints variances). Each device
    is drawn by the key of its name, independently of the others, and holds out a tenth of its samples for testing.

    Parameters
    ----------
    alpha, beta
        Differences between the models, and between the inputs, of devices.
    iid
        Use one model ``W, b ~ N(0, 1)`` for all devices, and :math:`v_k = 0`.
    features, classes
        Numbers of features and classes.

    References
    ----------
    Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith. Federated optimization in
    heterogeneous networks. MLSys 2020, arXiv:1812.06127.
    """
    for name, value in (("alpha", alpha), ("beta", beta)):
        if not isinstance(value, int | float) or not 0 <= value < np.inf:
            raise DataError(f'the option "{name}" must be at least 0, but it is {value!r}; 1 is usual')
    if not isinstance(iid, bool):
        raise DataError(f'the option "iid" is {iid!r}; use true or false')
    for name, count in (("features", features), ("classes", classes)):
        if not isinstance(count, int) or count < 1:
            raise DataError(f'the option "{name}" must be a whole number above 0, but it is {count!r}; change it')
    load = partial(_device, alpha=alpha, beta=beta, iid=iid, d=features, classes=classes)
    description = Description(raw="the features as they were drawn")
    return Private(load, classes=classes, test=0.1, description=description)


def _device(
    *, peer: str, peers: tuple[str, ...], seed: int, alpha: float, beta: float, iid: bool, d: int, classes: int
) -> tuple[FloatArray, IntArray]:
    del peers  # a device does not depend on the other peers
    rng = draw(seed, "synthetic", peer)
    samples = int(rng.lognormal(4, 2)) + 50
    if iid:
        v = np.zeros(d)
        W, b = _model(draw(seed, "synthetic"), 0, d, classes)
    else:
        v = rng.normal(rng.normal(0, beta), 1, d)
        W, b = _model(rng, rng.normal(0, alpha), d, classes)
    deviation = np.arange(1, d + 1) ** -0.6  # the square root of j^-1.2
    x = v + deviation * rng.standard_normal((samples, d))  # [n, d]
    return x, (x @ W + b).argmax(1)  # [n]


def _model(rng: np.random.Generator, mean: float, d: int, classes: int) -> tuple[FloatArray, FloatArray]:
    return rng.normal(mean, 1, (d, classes)), rng.normal(mean, 1, classes)
