"""The commands ``p2pfl forget``, ``p2pfl repair`` and ``p2pfl verify``."""

from __future__ import annotations

from typing import Annotated, ClassVar

from p2pfl.cli.command import Argument, Command, Option
from p2pfl.cli.options import AccountingOptions, JsonOptions, OutputOptions, TrustOptions


class ForgetOptions(OutputOptions, AccountingOptions, TrustOptions):
    """Replay a run as if peers or people had never been in it, delete its models, and certify both."""

    one_table: ClassVar[str] = "play the run again with p2pfl peer, and name its directory with --replayed"

    run: Annotated[list[str], Argument("the run directory, or with --check each forgotten.json", "RUN")]
    peer: Annotated[list[str], Option("a peer that leaves (repeatable)", "PEER")]
    rows: Annotated[
        str | None, Option("the file of each owner with the keys of people who have withdrawn: gone-{peer}.txt", "FILE")
    ] = None
    start: Annotated[str | None, Option("start from this model, of a replay of the former run", "FILE")] = None
    replayed: Annotated[str | None, Option("run directory of the replay of live peers", "RUN")] = None
    ask: Annotated[str | None, Option("only write a request to leave, signed by --key", "FILE")] = None
    request: Annotated[
        list[str],
        Option("a signed request (repeatable), or who asked; with --ask: why", "FILE"),
    ]
    key: Annotated[str | None, Option("private key that signs the certificate, or the request", "FILE")] = None
    html: Annotated[str | None, Option("write the certificate as a page", "FILE")] = None
    keep: Annotated[bool, Option("keep the models of the old run, which the certificate then says")] = False
    check: Annotated[
        bool, Option("check the certificates of all peers; with --request, whether it is one to leave this run")
    ] = False
    roster: Annotated[str | None, Option("the public keys of all peers", "FILE")] = None
    opening: Annotated[str | None, Option("with --check: the key of the hash of withdrawn keys", "FILE")] = None


class VerifyOptions(JsonOptions, TrustOptions):
    """Check a run of live peers by their evidence, without the data."""

    bundles: Annotated[
        list[str],
        Argument("run directories of some or all peers, or their NAME.evidence.jsonl", "RUN"),
    ]
    roster: Annotated[str | None, Option("the public keys of all peers", "FILE")] = None
    simulation: Annotated[str | None, Option("a simulation that must have the same models", "RUN")] = None
    crate: Annotated[str | None, Option("write what was checked as a Research Object Crate", "DIR")] = None


class RepairOptions(OutputOptions, JsonOptions, TrustOptions):
    """Remove peers from a model approximately, at a third of a replay; it is no erasure, and says how far it is."""

    run: Annotated[str, Argument("directory of a simulation, or of peers whose data are all here", "RUN")]
    peer: Annotated[list[str], Option("a peer that leaves (repeatable)", "PEER")]
    replay: Annotated[bool, Option("also replay without them, twice, to compare")] = False


FORGET = Command("evidence", ForgetOptions, "p2pfl.plugins.evidence.forget_command:run")
REPAIR = Command("evidence", RepairOptions, "p2pfl.plugins.evidence.repair_command:run")
VERIFY = Command("evidence", VerifyOptions, "p2pfl.plugins.evidence.verify_command:run")
