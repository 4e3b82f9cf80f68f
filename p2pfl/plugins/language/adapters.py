"""LoRA adapters as rows: averaging factors is not averaging their product.

A layer with adapters computes with :math:`W + s B A`. The mean of the products of N peers is not the product of the
means of their factors, and :func:`naive_error` is by how much they differ. Three ways have no such error: A is a
constant (``freeze_a``), one factor trains at a time (``alternate``), or rows contain the products (``product``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import torch

from p2pfl.core.draws import draw
from p2pfl.core.errors import ModelError
from p2pfl.core.rows import Layout, Rows

Way = Literal["factors", "freeze_a", "alternate", "product"]
"""Numbers of the adapters that peers average."""


def factor_pairs(layout: Layout) -> tuple[tuple[str, str], ...]:
    """Return the names of the factors A and B of each layer with adapters, where they are matrices.

    Examples
    --------
    >>> factor_pairs(Layout(("q.lora_A.weight", "q.lora_B.weight", "head"), ((2, 5), (4, 2), (3,))))
    (('q.lora_A.weight', 'q.lora_B.weight'),)
    """
    partners = {name: name.replace("lora_A", "lora_B") for name in layout.names if "lora_A" in name}
    shapes = dict(zip(layout.names, layout.shapes, strict=True))
    return tuple((a, b) for a, b in partners.items() if b in shapes and len(shapes[a]) == len(shapes[b]) == 2)


def naive_error(rows: Rows, layout: Layout) -> float:
    r"""Return the relative error of averaging factors, over all layers.

    .. math:: \frac{\| \frac1N \sum_i B_i A_i - \bar B \bar A \|}{\| \frac1N \sum_i B_i A_i \|}

    Parameters
    ----------
    rows
        Factors of N peers, ``[N, P]``.
    layout
        Their places.

    References
    ----------
    Sun, Li, Li, Ding. Improving LoRA in privacy-preserving federated learning. ICLR 2024.

    Examples
    --------
    >>> layout = Layout(("lora_A", "lora_B"), ((1, 1), (1, 1)))
    >>> naive_error(torch.tensor([[1.0, 1.0], [3.0, 3.0]]), layout)  # the mean of 1 and 9 is not 2 times 2
    0.2
    """
    parts, count = layout.split(rows), len(rows)
    error, whole = (torch.zeros((), dtype=torch.float64, device=rows.device) for _ in range(2))
    for a, b in factor_pairs(layout):
        some_a, some_b = parts[a].double(), parts[b].double()  # [N, r, k], [N, m, r]
        whole += _sum_square(some_a, some_b)
        # the mean of products less the product of means, without their difference
        error += _sum_square(some_a - some_a.mean(0), some_b - some_b.mean(0))
    return float((error / whole).clamp_min(0).sqrt()) if count and bool(whole) else 0.0


def _sum_square(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    r"""Return :math:`\| \sum_i B_i A_i \|^2` of factors ``[N, r, k]`` and ``[N, m, r]``.

    Where all ranks together are few, it is the sum over :math:`(A A^T) \circ (B^T B)` of the stacked factors, which
    takes a hundredth of the products for 8 peers of rank 16 and layers of thousands of units.
    """
    rights, lefts = a.flatten(0, 1), b.transpose(1, 2).flatten(0, 1)  # [N r, k], [N r, m]
    if len(rights) > min(a.shape[2], b.shape[1]):
        return (lefts.T @ rights).square().sum()
    return ((rights @ rights.T) * (lefts @ lefts.T)).sum()


def factorise(product: torch.Tensor, *, rank: int, spare: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    r"""Return factors A and B of the nearest matrix of a rank.

    They are :math:`B = U \sqrt S` and :math:`A = \sqrt S V^T` of the largest singular values, and the signs are those
    that make the largest number of each column of U positive, so that all peers find the same factors. Where the matrix
    has a lower rank, further rows of A come from ``spare``, and the columns of B are 0, so that they can still train.

    Parameters
    ----------
    product
        Matrix ``[m, k]``.
    rank
        Rank r of the factors.
    spare
        ``[r, k]``: rows for directions that the matrix does not have.

    Returns
    -------
    tuple of torch.Tensor
        A, ``[r, k]``, and B, ``[m, r]``.

    References
    ----------
    Bai, Chen, Qian, Yao, Li. Federated fine-tuning of large language models under heterogeneous tasks and client
    resources. NeurIPS 2024.

    Examples
    --------
    >>> a, b = factorise(torch.diag(torch.tensor([9.0, 4.0, 1.0])), rank=2, spare=torch.ones(2, 3))
    >>> (b @ a).diag().tolist()
    [9.0, 4.0, 0.0]
    """
    u, s, v = torch.linalg.svd(product.double(), full_matrices=False)
    largest = u.gather(0, u.abs().argmax(0, keepdim=True)).sign()  # [1, min(m, k)]
    u, v = u * largest, v * largest.t()
    floor = float(s[0]) * max(product.shape) * torch.finfo(product.dtype).eps if len(s) else 0.0
    kept = min(rank, int((s > floor).sum()))
    root = s[:kept].sqrt()
    a, b = spare.double().clone(), product.new_zeros(len(product), rank, dtype=torch.float64)
    a -= a @ v[:kept].t() @ v[:kept]
    a[:kept], b[:, :kept] = root[:, None] * v[:kept], u[:, :kept] * root
    return a.to(product.dtype), b.to(product.dtype)


def common_start(tensors: Mapping[str, torch.Tensor], *, rank: int | None, seed: int) -> dict[str, torch.Tensor]:
    """Return initial tensors that are the same at all peers, whatever rank each of them trains.

    Where B is 0, as in a new adapter, A is drawn from the seed and its own name, uniformly as :mod:`peft` draws it.
    Adapters that were trained before are filled up with zeros.

    Parameters
    ----------
    tensors
        Trained tensors of one peer.
    rank
        Rank of all peers' rows; that of ``tensors`` if ``None``.
    seed
        Seed that all peers share.

    Raises
    ------
    ModelError
        A tensor has a higher rank.

    Examples
    --------
    >>> new = {"lora_A": torch.ones(2, 3), "lora_B": torch.zeros(4, 2)}
    >>> start = common_start(new, rank=3, seed=7)
    >>> start["lora_A"].shape, start["lora_B"].shape
    (torch.Size([3, 3]), torch.Size([4, 3]))
    """
    start = {name: value.detach().clone() for name, value in tensors.items()}
    layout = Layout(tuple(start), tuple(tuple(value.shape) for value in start.values()))
    for a, b in factor_pairs(layout):
        own, width = start[a].shape
        wanted = own if rank is None else rank
        if wanted < own:
            raise ModelError(f"rank is {rank}, but {a} has rank {own}; set rank to the largest of all peers")
        new, bound = not start[b].any(), width**-0.5
        whole = draw(seed, f"adapter {a}").uniform(-bound, bound, size=(wanted, width))
        start[a] = torch.from_numpy(whole).to(start[a]) if new else pad(start[a], (wanted, width))
        start[b] = pad(start[b], (len(start[b]), wanted))
    return start


def pad(value: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Return a tensor in a larger shape, filled up with zeros."""
    padded = value.new_zeros(shape)
    padded[corner(value.shape)] = value
    return padded


def corner(shape: Sequence[int]) -> tuple[slice, ...]:
    """Return the place of a tensor of this shape in a larger one."""
    return tuple(map(slice, shape))


@dataclass(frozen=True)
class AdapterRows:
    """Places of the trained tensors of a model with adapters in a row.

    The model of a peer may have a lower rank than the row: it trains the first rows of A and columns of B, and the
    others stay as they came.

    Parameters
    ----------
    start
        Initial tensors by name, those of :func:`common_start`.
    way
        ``factors``: both factors, whose averages have an error. ``freeze_a``: B, while A is a constant that all peers
        share. ``alternate``: both, of which B trains in even rounds and A in odd ones; exact where all peers agree
        after each round, as on a complete graph. ``product``: the products, as large as the layers themselves, of
        which each peer trains the nearest ones of its rank.

    References
    ----------
    ``freeze_a`` is FFA-LoRA: Sun, Li, Li, Ding. Improving LoRA in privacy-preserving federated learning. ICLR 2024.
    ``alternate`` is RoLoRA: Chen, Guo, Ju, Dalal, Zhu, Khisti. Robust federated finetuning of LLMs via alternating
    optimization of LoRA. arXiv 2502.01755, 2025. ``product`` is FlexLoRA, see :func:`factorise`.

    Examples
    --------
    >>> start = {"q.lora_A.weight": torch.ones(2, 5), "q.lora_B.weight": torch.zeros(4, 2)}
    >>> AdapterRows(start, way="freeze_a").layout.size, AdapterRows(start, way="product").layout.size
    (8, 20)
    """

    start: Mapping[str, torch.Tensor]
    way: Way = "factors"

    def __post_init__(self) -> None:
        if self.way not in get_args(Way):
            raise ModelError(f'adapters is "{self.way}"; choose one of {", ".join(get_args(Way))}')
        if self.way != "factors" and not self.pairs:
            raise ModelError(
                f'adapters = "{self.way}" is for LoRA, but the model trains no lora_A with its lora_B; leave it out'
            )
        factors = {name for pair in self.pairs for name in pair}
        others = [name for name in self.start if "lora_" in name and name not in factors]
        if self.way != "factors" and others:
            raise ModelError(
                f'adapters = "{self.way}" is for pairs of matrices lora_A and lora_B, but the model also trains '
                f'{others[0]}; set adapters = "factors", or leave it out of the LoraConfig'
            )

    @cached_property
    def whole(self) -> Layout:
        """Places of all trained tensors."""
        return Layout(tuple(self.start), tuple(tuple(value.shape) for value in self.start.values()))

    @cached_property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Names of the factors of each layer."""
        return factor_pairs(self.whole)

    @cached_property
    def layout(self) -> Layout:
        """Places in a row."""
        shapes = dict(zip(self.whole.names, self.whole.shapes, strict=True))
        for a, b in self.pairs if self.way in ("freeze_a", "product") else ():
            width = shapes.pop(a)[1]
            if self.way == "product":
                shapes[product_name(a)] = (shapes.pop(b)[0], width)
        return Layout(tuple(shapes), tuple(shapes.values()))

    def moving(self, round: int) -> frozenset[str]:
        """Return the names of the tensors that train in a round."""
        still = {"freeze_a": 0, "alternate": round % 2}.get(self.way)
        return frozenset(self.start) - ({pair[still] for pair in self.pairs} if still is not None else frozenset())

    def initial(self, scales: Mapping[str, float]) -> torch.Tensor:
        """Return the initial row ``[P]``, given the factor s of each layer by the name of its A."""
        return self.row(self.start, before=torch.zeros(self.layout.size), scales=scales)

    def tensors(
        self, row: torch.Tensor, *, shapes: Mapping[str, Sequence[int]], scales: Mapping[str, float]
    ) -> dict[str, torch.Tensor]:
        """Return the tensors of a model with these ``shapes`` for a row ``[P]``."""
        parts = {**self.start, **self.layout.split(row)}
        for a, b in self.pairs if self.way == "product" else ():
            rank, product = shapes[a][0], parts[product_name(a)] / scales[a]
            parts[a], parts[b] = factorise(product, rank=rank, spare=self.start[a][:rank].to(product.device))
        return {name: parts[name][corner(shape)] for name, shape in shapes.items()}

    def row(
        self, tensors: Mapping[str, torch.Tensor], *, before: torch.Tensor, scales: Mapping[str, float]
    ) -> torch.Tensor:
        """Return the row ``[P]`` of a model; what the model lacks stays as it was ``before``."""
        row = before.clone()
        parts = self.layout.split(row)
        for a, b in self.pairs if self.way == "product" else ():
            parts[product_name(a)].copy_(scales[a] * (tensors[b] @ tensors[a]))
        for name, value in tensors.items():
            if name in parts:
                parts[name][corner(value.shape)] = value
        return row


def product_name(a: str) -> str:
    """Return the name of the product of the factor of a name."""
    return a.replace("lora_A", "lora_BA")
