""":class:`Site`, the private part of component-wise boosting at one peer."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy  # imports scipy.special when that is first used, which takes 6 MiB

from p2pfl.core.encodings import Floats

Log = Sequence[tuple[int, Floats | None]]
"""Steps: number of the chosen learner, and the coefficients of a shared one."""


@dataclass
class Site:
    """Scores of the samples of a peer, and its own effects, which follow from the public log of steps.

    Parameters
    ----------
    bases
        Values of the functions of each learner, ``[n, size]`` each.
    targets
        Targets, ``[n]``.
    penalties
        Penalty matrix of each learner with that of a site, ``[size, size]`` each; empty without site effects.
    offset, rate
        First score, and factor of each step.
    binary
        True if targets are two classes.
    origin
        Public numbers that all of this follows from.
    validation
        Values of the functions, and targets, of samples that decide when the model is good enough.
    """

    bases: Sequence[Floats]
    targets: Floats
    penalties: Sequence[Floats]
    offset: float
    rate: float
    binary: bool
    origin: bytes
    validation: tuple[Sequence[Floats], Floats] | None = None
    applied: int = 0
    history: array[float] = field(default_factory=lambda: array("d"))
    scores: Floats = field(init=False)
    effects: list[Floats] = field(init=False)

    def __post_init__(self) -> None:
        self.scores = np.full(len(self.targets), self.offset)
        self._checked = np.full(0 if self.validation is None else len(self.validation[1]), self.offset)
        self.effects = [np.zeros(basis.shape[1]) for basis in self.bases]
        self._stacked = np.ascontiguousarray(np.concatenate([*self.bases], axis=1).T)  # [sizes, n]
        self._starts = np.cumsum([0, *(basis.shape[1] for basis in self.bases)])
        self._inverses = [
            np.linalg.inv(basis.T @ basis + penalty)
            for basis, penalty in zip(self.bases, self.penalties, strict=bool(self.penalties))
        ]
        self._residuals = self.targets
        width = self._starts[-1]
        self._products: Floats | None = None  # with the residuals of the scores as they are
        self._errors = np.zeros((width, width))
        for place, inverse in enumerate(self._inverses):
            where = slice(self._starts[place], self._starts[place + 1])
            gram = self.bases[place].T @ self.bases[place]
            self._errors[where, where] = inverse @ gram @ inverse - 2 * inverse

    def follows(self, choices: Floats, firsts: Floats) -> bool:
        """Return whether the steps applied so far are the first ones of a log.

        Parameters
        ----------
        choices, firsts
            Chosen learner of each step, and the first coefficient of a shared one or 0, ``[steps]``.
        """
        own = np.frombuffer(self.history).reshape(-1, 2)
        count = len(own)
        return count <= len(choices) and bool((own == np.stack([choices[:count], firsts[:count]], axis=1)).all())

    def advance(self, log: Log) -> None:
        """Apply further steps."""
        for choice, shared in log:
            place = choice % len(self.bases)
            basis = self.bases[place]
            if shared is None:
                theta = self._inverses[place] @ self._fitted()[self._starts[place] : self._starts[place + 1]]
                self.effects[place] += self.rate * theta
            else:
                theta = shared[: basis.shape[1]]
            self.scores += self.rate * (basis @ theta)
            if self.validation is not None:
                self._checked += self.rate * (self.validation[0][place] @ theta)
            self._products = None
            self.history.extend((float(choice), 0.0 if shared is None else float(shared[0])))
            self.applied += 1

    def terms(self) -> Floats:
        """Return products of all functions with the residuals, their squares, the loss, and errors of own effects.

        With validation samples, their loss and their number follow.
        """
        products, residuals = self._fitted(), self._residuals
        squares = float(residuals @ residuals)
        loss = self._loss(self.targets, self.scores)
        errors = np.add.reduceat(products * (self._errors @ products), self._starts[:-1]) + squares
        checked = [] if self.validation is None else [self._loss(self.validation[1], self._checked), len(self._checked)]
        return np.concatenate([products, [squares, loss], errors if self._inverses else [], checked])

    def _loss(self, targets: Floats, scores: Floats) -> float:
        """Return the log loss, or half of the squared error, over samples."""
        if self.binary:
            return float(np.logaddexp(0.0, np.where(targets > 0, -scores, scores)).sum())
        residuals = targets - scores
        return float(residuals @ residuals) / 2

    def _fitted(self) -> Floats:
        """Return the products of all functions with the residuals, which are the negative derivative of the loss."""
        if self._products is None:
            self._residuals = self.targets - (scipy.special.expit(self.scores) if self.binary else self.scores)
            self._products = self._stacked @ self._residuals
        return self._products
