"""Statement of who learns what while a split network learns."""

from __future__ import annotations

import math
from dataclasses import dataclass

from p2pfl.plugins.vertical.party_roles import MAX_FITS, MAX_PREDICTORS
from p2pfl.plugins.vertical.statement import GUESSED_IDS, KEY_BYTES, WORD, VerticalRun, listed
from p2pfl.results.formats import size


@dataclass(frozen=True, kw_only=True)
class SplitRun(VerticalRun):
    """Public facts of a run of a split network from which its statement follows.

    Parameters
    ----------
    width
        Numbers of an embedding.
    """

    width: int

    @property
    def sums(self) -> str:
        """Embedding of a row that the label holder sees, in words."""
        if len(self.features) == 1:
            return f"the embedding of {self.features[0]}"
        return f"the sum of the embeddings of {listed(self.features)}"

    def _statement(self) -> str:
        labels = self._labels() or f"; gradients show the labels of {self.label} to {listed(self.features)}"
        return (
            f"no row leaves its owner; {self.label} sees {self.sums} of each row, {self.width} numbers at each step, "
            f"which guarantees nothing for columns{labels}; this holds if all peers follow the protocol"
        )

    def _learned(self) -> dict[str, str]:
        """Return what peers learn that follow the protocol."""
        labelled = self.joined == "labelled"
        common = f"which of its rows {self.label} has" if labelled else "which of its rows all have"
        label_rows = f"which of its rows {listed(self.features)} lack, by their embeddings" if labelled else common
        tested = ", and of each test row in each round" if self.tested else ""
        learned = {
            f"{self.label}, the label holder": (
                f"{label_rows}; {self.sums} of each training row whenever it is in a step, {self.width} numbers"
                f"{tested}: with people whose columns it knows, it can reconstruct columns of others, "
                "exactly if their networks are linear and take no more columns than that, else in part"
            )
        }
        for peer in self.features:
            learned[f"{peer}, a feature holder"] = (
                f"{common}; whenever a training row is in a step, the gradient of its embedding, {self._shown()}; the "
                f"gradient also shows what {self.label} predicts at that step, hence something of its columns"
            )
        if self.helper is not None:
            matched = "pseudonyms: the sizes of all overlaps, and which keys repeat"
            learned[f"{self.helper}, the helper"] = f"{matched}; no row, no name of a column, no id, no network"
        everybody = "numbers of rows of each party, and of common rows by key"
        learned["every peer"] = f"{everybody}; {self.published}"
        broker = "sizes, times and numbers of messages"
        return learned | {"the broker" + (f", {listed(self.others)}" if self.others else ""): broker}

    def _shown(self) -> str:
        """Return what gradients show of labels."""
        if self.label_epsilon is None:
            return "which shows its label, nearly always after one pass over the rows"
        if self.dealt:
            return "which shows its changed label; the data are shared, so nothing is secret"
        sure = math.exp(self.label_epsilon) / (1 + math.exp(self.label_epsilon))
        return (
            f"which shows a label that is changed at random: of two classes, it is the true one with probability "
            f"{sure:.3f}, in any number of steps, and of runs that name people and classes alike"
        )

    def _malicious(self) -> dict[str, str]:
        """Return what peers can do that do not follow the protocol."""
        return {
            f"{self.label}, if it sends crafted gradients": (
                "chooses what the others' networks compute, so that embeddings show columns; the account counts a run "
                f"as all {MAX_PREDICTORS} predictors of its rows, and a process begins a round {MAX_FITS} times at "
                "most, but only a contract answers the attack itself"
            ),
            "a feature holder with some known labels": (
                "can train a top of its own on its embeddings, which then predicts labels from its columns"
            ),
            "a feature holder that sends crafted embeddings": (
                f"chooses where {self.label} predicts, so that gradients show what its columns alone do"
            ),
            "a peer that sends numbers out of range": "ends the run",
            "anybody with guessed ids": GUESSED_IDS,
        }

    def _cost(self) -> str:
        """Return the bytes of a party, as the formulae of its messages give them."""
        aligned = self.keys * KEY_BYTES * self.rows * (len(self.parties) + 1)
        passed = 2 * WORD * self.width * self.rows
        return (
            f"about {size(int(aligned))} to align and {size(passed)} for each pass over the rows, if {self.rows:,} "
            "rows are common"
        )
