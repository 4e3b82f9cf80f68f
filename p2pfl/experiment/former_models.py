"""Last models of the peers of a run, with which the next one begins, each peer with its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import safetensors

from p2pfl.core.errors import InputError, ModelError
from p2pfl.experiment.approval import experiment_digest
from p2pfl.experiment.file.reading import read_kept
from p2pfl.experiment.schema import Experiment
from p2pfl.learning.models import model_file_of, names_models


@dataclass(frozen=True)
class FormerModels:
    """Last models of the peers of a run.

    Parameters
    ----------
    path
        Path of the model of each peer, with ``{peer}``, in a folder of the run directory.
    """

    path: str

    @classmethod
    def of(cls, experiment: Experiment) -> Self | None:
        """Return the models that ``model.pretrained`` names for each peer; ``None`` where it does not."""
        pretrained = experiment.model.pretrained
        return cls(str(pretrained)) if names_models(pretrained) else None

    @property
    def folder(self) -> Path:
        """Directory of the run."""
        return Path(self.path).parent.parent

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the experiment of the run, the same on all devices."""
        return experiment_digest(read_kept(self.folder / "experiment.toml", whole=False))

    def rounds(self, peers: Iterable[str]) -> int:
        """Return after how many rounds these peers ended.

        Raises
        ------
        InputError
            They ended after different rounds, or a file does not say it.
        """
        ended = {peer: _rounds(model_file_of(self.path, peer)) for peer in peers}
        if len({*ended.values()}) > 1:
            first, last = (pick(ended, key=lambda peer: ended[peer]) for pick in (min, max))
            raise InputError(
                f"{self.folder} ended after {ended[first]} rounds of {first} and {ended[last]} of {last}; resume it "
                f"until it ends, or let all begin with one model, such as {model_file_of(self.path, last)} as "
                "model.pretrained"
            )
        return next(iter(ended.values()), 0)

    def identity(self, peers: Iterable[str]) -> str:
        """Return what all peers of the next run must have alike: the settings and the rounds of this one."""
        return f"the models of {self.digest[:16]} after {self.rounds(peers)} rounds"


def _rounds(file: str) -> int:
    """Return after how many rounds a model was written."""
    try:
        with safetensors.safe_open(file, framework="np") as opened:
            return 1 + int((opened.metadata() or {})["round"])
    except (safetensors.SafetensorError, KeyError, ValueError):
        raise ModelError(f"{file} is no model that a run has written; name the last model of a run") from None
