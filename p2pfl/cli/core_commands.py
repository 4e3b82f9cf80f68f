"""The commands of the core, and their arguments."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from p2pfl.cli.command import Argument, Command, Option, Options
from p2pfl.cli.options import (
    EXPERIMENT,
    AccountingOptions,
    ExperimentOptions,
    JsonOptions,
    ModelOptions,
    OutputOptions,
    OwnTableOptions,
    PageOptions,
    PeersOptions,
    ReviewOptions,
    TrustOptions,
    count,
    fork_server,
)
from p2pfl.core.registry import find_entry_points


class HelpOptions(Options):
    """Explain the commands of a group, or the arguments of a command."""

    name: Annotated[str | None, Argument("what to explain (default: everything)", "GROUP|COMMAND")] = None


KEEP_ROWS = Option("keep masked or noisy releases, from which p2pfl verify recomputes the models")
"""Option of the commands of live peers, each of which keeps what it sends itself."""


class TrainingOptions(OutputOptions, AccountingOptions):
    """Arguments of all commands that train models."""

    no_baselines: Annotated[bool, Option("do not train peers alone and on pooled data")] = False


class SwarmOptions(TrainingOptions, PeersOptions):
    """Arguments of the commands that train all peers of an experiment."""

    experiment: Annotated[str, EXPERIMENT] = ""
    resume: Annotated[str | None, Option("continue an interrupted run", "RUN", nargs="?")] = None


class RunOptions(SwarmOptions):
    """Run every peer of an experiment on this machine."""

    one_table: ClassVar[str] = "start the peer whose table is here with p2pfl peer --name"

    broker: Annotated[list[str], Option("not the embedded one, such as mqtt://host:1883; again to fail over", "URL")]
    workers: Annotated[
        int | None, Option("processes that share the peers (default: one for each of up to 128 peers)", "N", count)
    ] = None
    keep_rows: Annotated[bool, KEEP_ROWS] = False


class SimulateOptions(SwarmOptions, OwnTableOptions):
    """Run the same experiment with all peers simulated."""

    workers: Annotated[int, Option("processes that share the peers; torchrun sets it", "N", count)] = 1
    network: Annotated[
        str | None,
        Option("predict how long live peers take over this network, such as wan", "FILE"),
    ] = None


class PeerOptions(TrainingOptions, ExperimentOptions):
    """One peer on this device."""

    no_baselines: Annotated[bool, Option("do not train a model alone afterwards")] = False
    name: Annotated[str, Option("this peer")]
    broker: Annotated[list[str], Option("instead of transport.broker; again to fail over", "URL")]
    resume: Annotated[bool, Option("go on with its last run under --runs")] = False
    keep_rows: Annotated[bool, KEEP_ROWS] = False
    on_model: Annotated[str | None, Option("shell command after each new model, $P2PFL_MODEL", "CMD")] = None


class NextOptions(TrainingOptions, TrustOptions):
    """A new run that begins with the last models of one that ended or was stopped."""

    run: Annotated[str, Argument("its run directory; on a device that of the device's peer", "RUN")]
    changes: Annotated[list[str], Option("what differs now", "KEY=VALUE", flag="--set")]
    broker: Annotated[list[str], Option("instead of the former one; again to fail over", "URL")]
    workers: Annotated[int | None, Option("as for run and simulate", "N", count)] = None


class RepeatOptions(OutputOptions, AccountingOptions, TrustOptions):
    """Run a simulation again from its directory, and compare to the bit."""

    run: Annotated[str, Argument("directory of a simulation", "RUN")]
    check: Annotated[bool, Option("end with status 1 if models, records or results differ")] = False
    changes: Annotated[
        list[str],
        Option("file on this machine, as data.options.path=own.csv (repeatable)", "KEY=PATH", flag="--set"),
    ]


class TopologyOptions(JsonOptions):
    """Degree, diameter, spectral gap, rounds to consensus."""

    topology: Annotated[str, Argument("a kind such as ring, MODULE:FUNCTION, or a graph file", "NAME|FILE")]
    peers: Annotated[int, Option("", "N", count)] = 16
    degree: Annotated[int, Option("", "K", count)] = 4
    seed: Annotated[int, Option("of random kinds")] = 0
    period: Annotated[int, Option("of epidemic schedules", "N", count)] = 64
    plot: Annotated[str | None, Option("draw it", "FILE")] = None


class ExplainOptions(JsonOptions, ReviewOptions, PeersOptions):
    """The data split and the expected cost of an experiment."""

    html: Annotated[str | None, Option("write the page that an officer signs before the run", "FILE")] = None


class PrivacyOptions(JsonOptions, ReviewOptions, PeersOptions):
    """The guarantee by observer, and whether learning together can pay; of a table, the record of its runs."""

    no_baselines: Annotated[bool, Option("do not compare with peers that learn alone")] = False
    plot: Annotated[str | None, Option("draw epsilon over rounds", "FILE")] = None


class ApproveOptions(JsonOptions, ReviewOptions):
    """Sign an experiment as the officer named in the policy beside the data."""

    key: Annotated[str, Option("private key of the officer, as p2pfl identity makes it", "FILE")]
    purpose: Annotated[str, Option("for which the policy allows runs", "PURPOSE")]
    policy: Annotated[str | None, Option("of the site (default: policy.toml beside the data of --name)", "FILE")] = None


class ColumnsOptions(JsonOptions):
    """Propose the declaration of a table's columns for an experiment file."""

    table: Annotated[str, Argument("a CSV or Parquet file of one owner", "FILE")]
    target: Annotated[str, Option("the column to predict", "COLUMN")]


class PredictOptions(AccountingOptions, ModelOptions):
    """Predictions of a saved model for the rows of a table, as CSV."""

    table: Annotated[
        str,
        Argument(
            "a CSV or Parquet file with the columns of the training, or a .npy file of pictures or tokens; with {peer} "
            "in its name for a run directory whose peers have different columns; with --live that of one peer, or -",
            "TABLE",
        ),
    ]
    average: Annotated[list[str], Option("also average with this model, trained apart (repeatable)", "MODEL")]
    out: Annotated[str | None, Option("write them there (default: standard output)", "FILE")] = None
    live: Annotated[
        bool,
        Option("with the other peers, which run the same for their tables (a helper for -) until stopped"),
    ] = False
    name: Annotated[
        str | None, Option("with --live: the peer whose rows are here (default: that of MODEL)", "PEER")
    ] = None
    broker: Annotated[list[str], Option("with --live: instead of transport.broker; again to fail over", "URL")]
    most: Annotated[int, Option("with --live: rows that a feature holder answers in 24 hours", "ROWS", count)] = 1000


class EvaluateOptions(JsonOptions, AccountingOptions, ModelOptions):
    """Scores of a saved model on a table, with 95 % intervals."""

    table: Annotated[str, Argument("a CSV or Parquet file with the columns of the training", "TABLE")]
    average: Annotated[list[str], Option("also average with this model, trained apart (repeatable)", "MODEL")]
    by: Annotated[str | None, Option("also score each group of rows with one value there", "COLUMN")] = None
    seed: Annotated[int, Option("seed of the bootstrap behind the intervals")] = 0


def _formats() -> list[str]:
    """Return the formats of ``p2pfl export``."""
    return ["torch", "onnx", *find_entry_points("p2pfl.exporters")]


class ExportOptions(ModelOptions):
    """Write a saved model, with its preprocessing, for other software."""

    to: Annotated[
        str,
        Option(
            "torch.export, ONNX; of trees XGBoost's JSON, or a module with a scikit-learn estimator",
            choices=_formats,
        ),
    ]
    out: Annotated[str | None, Option("default: MODEL with another ending", "FILE")] = None


class CardOptions(Options):
    """A model card of a run, as Markdown."""

    run: Annotated[str, Argument("a run directory", "RUN")]
    exact: Annotated[bool, Option("print exact statistics of the training data, if public")] = False
    out: Annotated[str | None, Option("write it there (default: standard output)", "FILE")] = None


class ReportOptions(PageOptions):
    """Tables and pages of a run, or of several side by side."""

    runs: Annotated[list[str], Argument("run directories, or that of a sweep", "RUN")]
    html: Annotated[str | None, Option("write a page that needs no other file", "FILE")] = None
    csv: Annotated[str | None, Option("write rounds of a run, or settings of a comparison", "FILE")] = None
    tensorboard: Annotated[str | None, Option("write event files for TensorBoard", "DIR")] = None
    tex: Annotated[str | None, Option("write the tables for LaTeX with booktabs", "FILE")] = None
    docx: Annotated[str | None, Option("write the tables for Word", "FILE")] = None
    plot: Annotated[str | None, Option("draw scores of one run, or of each setting of several", "FILE")] = None
    by: Annotated[Literal["round", "bytes"], Option("with --plot of several: the horizontal axis")] = "round"
    metric: Annotated[str | None, Option("score to compare (default: that of the summaries)", "NAME")] = None


class SchemaOptions(Options):
    """The JSON Schema of the files of a run, for tools that read them."""


class IdentityOptions(JsonOptions):
    """Make a peer's key and list it in a roster of who may take part."""

    name: Annotated[str, Argument("name of the peer", "NAME")]
    keys: Annotated[str | None, Option("where NAME.pem is or goes, as trust.keys", "DIR")] = None
    roster: Annotated[str | None, Option("list it there, as trust.roster; made if it is missing", "FILE")] = None
    rotate: Annotated[bool, Option("a new key, for which the present one vouches", exclusive=True)] = False
    accept: Annotated[
        str | None,
        Option("list the key for which --rotate printed FILE", "FILE", exclusive=True),
    ] = None
    request: Annotated[
        str | None,
        Option("write a request for p2pfl deploy --collect", "FILE", exclusive=True),
    ] = None
    revoke: Annotated[
        str | None, Option("have the roster refuse the present key from now on", "REASON", exclusive=True)
    ] = None


class BrokerOptions(TrustOptions):
    """The embedded broker on its own, or a configuration for mosquitto."""

    experiment: Annotated[str, Argument("with --config: whose peers may join, by passwords", "EXPERIMENT")] = ""
    config: Annotated[
        str | None,
        Option("write mosquitto.conf and what it needs, and start nothing", "DIR"),
    ] = None
    host: Annotated[str, Option("address to listen on")] = "127.0.0.1"
    public: Annotated[list[str], Option("with --config: host by which peers reach it (repeatable)", "HOST")]
    observer: Annotated[list[str], Option("with --config: may look at the swarm (repeatable)", "NAME")]
    port: Annotated[int | None, Option("port, 0 for any free one (default: 1883, with --config 8883)")] = None
    kind: Annotated[Literal["auto", "mosquitto", "iotcore"], Option("auto is the first that is installed")] = "auto"


def run(options: RunOptions) -> int:
    """Run ``p2pfl run``."""
    with fork_server(options, "p2pfl.network.peer.launch.preload"):
        from p2pfl.cli.running import running_commands  # noqa: PLC0415

        return running_commands.run(options)


def begin_next(options: NextOptions) -> int:
    """Run ``p2pfl next``."""
    with fork_server(RunOptions(experiment="", changes=options.changes), "p2pfl.network.peer.launch.preload"):
        from p2pfl.cli.running import next_run  # noqa: PLC0415

        return next_run.begin(options)


COMMANDS = {
    "run": Command("learn", RunOptions, "p2pfl.cli.core_commands:run"),
    "simulate": Command("learn", SimulateOptions, "p2pfl.cli.running.running_commands:simulate"),
    "peer": Command("learn", PeerOptions, "p2pfl.cli.running.running_commands:peer"),
    "next": Command("learn", NextOptions, "p2pfl.cli.core_commands:begin_next"),
    "repeat": Command("learn", RepeatOptions, "p2pfl.cli.running.repeating:run"),
    "help": Command("", HelpOptions, "p2pfl.cli.command_catalogue:explain"),
    "topology": Command("plan", TopologyOptions, "p2pfl.cli.planning.topologies:run"),
    "explain": Command("plan", ExplainOptions, "p2pfl.cli.planning.explain:run"),
    "privacy": Command("plan", PrivacyOptions, "p2pfl.cli.planning.privacy:run"),
    "approve": Command("plan", ApproveOptions, "p2pfl.cli.planning.approving:run"),
    "columns": Command("plan", ColumnsOptions, "p2pfl.cli.results_commands:columns"),
    "predict": Command("models", PredictOptions, "p2pfl.cli.results_commands:predict"),
    "evaluate": Command("models", EvaluateOptions, "p2pfl.cli.results_commands:evaluate"),
    "export": Command("models", ExportOptions, "p2pfl.cli.results_commands:export"),
    "card": Command("models", CardOptions, "p2pfl.cli.results_commands:card"),
    "report": Command("results", ReportOptions, "p2pfl.cli.reports:show"),
    "schema": Command("results", SchemaOptions, "p2pfl.cli.results_commands:schema"),
    "identity": Command("operate", IdentityOptions, "p2pfl.cli.setup_commands:identity"),
    "broker": Command("operate", BrokerOptions, "p2pfl.cli.setup_commands:broker"),
}
