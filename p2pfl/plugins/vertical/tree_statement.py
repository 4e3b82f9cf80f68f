"""Statement of who learns what in boosting of columns at different peers."""

from __future__ import annotations

from p2pfl.plugins.vertical.statement import GUESSED_IDS, KEY_BYTES, VerticalRun, listed
from p2pfl.results.formats import size


class BoostingRun(VerticalRun):
    """Public facts of a run of boosting, whose histograms the label holder receives."""

    def _statement(self) -> str:
        return (
            f"no row leaves its owner; {self.label} receives histograms of the columns of {listed(self.features)}, "
            "without names and cuts, and for each split that it uses the side of each common row; this holds if "
            f"{self._assumption()}"
        )

    def _learned(self) -> dict[str, str]:
        labelled = self.joined == "labelled"
        own_rows = f"which of its rows {self.label} has" if labelled else "which of its rows all have"
        label_rows = "on which side of a split rows lie that a party lacks" if labelled else own_rows
        learned = {f"{self.label}, the label holder": "; ".join([label_rows, *self._of_label()])}
        for peer in self.features:
            learned[f"{peer}, a feature holder"] = f"{own_rows}; {self.received}"
        if self.helper is not None:
            learned[f"{self.helper}, the helper"] = (
                "pseudonyms: the sizes of all overlaps, and which keys repeat; no row, no sum, no name of a column, "
                "no id"
            )
        everybody = "numbers of rows and columns of each party, and of common rows by key"
        learned["every peer"] = f"{everybody}; {self.published}"
        others = f", {listed(self.others)}" if self.others else ""
        return learned | {f"the broker{others}": "sizes, times and numbers of messages"}

    def _of_label(self) -> list[str]:
        return [
            (
                "how many rows of each node are in each bin of each column of the others, with sums of its own "
                "derivatives, and so how many of each class"
            ),
            "one bit of each row, training or test, for each split that it uses: at last an interval of useful columns",
        ]

    def _malicious(self) -> dict[str, str]:
        lies = {
            f"{self.label}, if it does not follow the protocol": (
                "reads the bins of chosen people, and the side of all common people at as many cuts as trees have "
                "splits; only a contract answers this"
            )
        }
        if self.helper is not None:
            lies[f"{self.helper}, if it deals wrong numbers"] = (
                f"makes the model wrong and learns nothing more; a check by {self.label} finds faults, but no "
                "deliberate ones"
            )
            lies[f"{self.helper} and a party, if they conspire"] = "read the bins or derivatives of the other party"
        return lies | {"anybody with guessed ids": GUESSED_IDS}

    def _cost(self) -> str:
        aligned = self.keys * KEY_BYTES * self.rows * (len(self.parties) + 1)
        return (
            f"about {size(int(aligned))} to align; once {size(8 * self.rows)} for each bin of a party, and "
            f"{size(24 * self.rows)} for each counted node and other party, if {self.rows:,} rows are common"
        )
