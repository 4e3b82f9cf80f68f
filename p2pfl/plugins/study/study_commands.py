"""The commands ``p2pfl sweep`` and ``p2pfl value``."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from p2pfl.cli.command import Argument, Command, Option
from p2pfl.cli.options import (
    AccountingOptions,
    OutputOptions,
    OwnTableOptions,
    PageOptions,
    PeersOptions,
    count,
    fork_server,
)


class SweepOptions(OutputOptions, OwnTableOptions, PeersOptions):
    """One experiment under many settings and seeds, compared."""

    experiment: Annotated[str, Argument("an experiment, or a file that describes a study", "EXPERIMENT|STUDY")]
    over: Annotated[list[str], Option("values to compare; again to combine keys", "KEY=V1,V2")]
    random: Annotated[list[str], Option("draw values from a range", "KEY=LOW..HIGH[:log|integer]")]
    draws: Annotated[int | None, Option("how often all --random keys are drawn (default: 1)", "N", count)] = None
    without: Annotated[
        list[str],
        Option("leave out a combination (repeatable)", "KEY=V ..."),
    ]
    seeds: Annotated[str | None, Option("how many, or which, such as 0,3,7 (default: 5)", "N|LIST")] = None
    against: Annotated[list[str], Option("the reference (default: the first value of the first --over)", "KEY=VALUE")]
    metric: Annotated[str | None, Option("score to compare (default: that of the summary)", "NAME")] = None
    budget: Annotated[str | None, Option("end every run at this cost, bytes=60MB or gradients=5000", "COST")] = None
    baselines: Annotated[bool, Option("also train peers alone and on pooled data")] = False
    jobs: Annotated[int | None, Option("processes, of one thread each (default: all cores)", "N", count)] = None
    out: Annotated[str | None, Option("where runs are and go (default: NAME-sweep under --runs)", "DIR")] = None


class ValueOptions(PageOptions, AccountingOptions, PeersOptions):
    """Measure what the data of each peer are worth: Shapley, Banzhaf, leave one out."""

    one_table: ClassVar[str] = "let whoever may hold all tables run it, because no peer alone can value the others"

    method: Annotated[Literal["shapley", "banzhaf", "loo"], Option("")] = "shapley"
    draws: Annotated[int, Option("permutations or coalitions with more than ten peers", "N", count)] = 200
    metric: Annotated[str | None, Option("score (default: that of the summary)", "NAME")] = None
    credits: Annotated[int | None, Option("share whole credits by the positive values", "N", count)] = None
    key: Annotated[str | None, Option("private key that signs the credits", "FILE")] = None
    out: Annotated[str | None, Option("write the signed credits", "FILE")] = None
    check: Annotated[str | None, Option("recompute the credits of a signed file", "FILE")] = None


def sweep(options: SweepOptions) -> int:
    """Run ``p2pfl sweep``."""
    with fork_server(options, "p2pfl.plugins.study.sweep_preload"):
        from p2pfl.plugins.study import sweep_command  # noqa: PLC0415

        return sweep_command.run(options)


SWEEP = Command("study", SweepOptions, "p2pfl.plugins.study.study_commands:sweep")
VALUE = Command("study", ValueOptions, "p2pfl.plugins.study.value_command:run")
