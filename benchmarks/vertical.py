"""Vertical models on the tables of FATE, and a logistic regression of many rows over a real broker.

    python -m benchmarks.vertical [--data FOLDER] [ROWS ...]

FATE's examples split the credit cards of the UCI repository into 13 + 10 columns and the temperatures of a motor into
4 + 7. Each table is learned from by two parties and a helper, and all rows are scored by predictions from the files of
both parties; FATE's tables are left out without ``--data``. With ``ROWS``, two parties with ten columns each and a
helper fit a logistic regression of synthetic rows: three processes ``p2pfl peer`` over one mosquitto. Seconds are those
of the round, which aligns the rows and fits the model, from when the last peer is there, and of processors in each
process from its start to its end, which depend less on other work on the machine. Bytes are those that all peers send.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from p2pfl import simulate
from p2pfl.network.transport.broker import embedded
from p2pfl.plugins.vertical.vertical_prediction import predict_together
from p2pfl.results import Run
from p2pfl.results.models import Predictor

PEERS = ("ada", "bob", "cleo")
"""A feature holder, the label holder and the helper."""

COLUMNS = 10
"""Columns of each party of the synthetic table."""

SEED = 0


@dataclass(frozen=True)
class Example:
    """Tables of two parties in FATE's examples.

    Parameters
    ----------
    folder
        Folder of the tables.
    family
        Family of the target.
    """

    folder: str
    family: str


EXAMPLES = {
    "credit": Example("default_credit_hetero", "binomial"),
    "motor": Example("motor_hetero", "gaussian"),
}


def experiment(folder: Path, family: str) -> dict[str, object]:
    """Return the experiment of two parties and a helper on the tables in a folder."""
    options = {"path": str(folder / "{peer}.csv"), "label": "bob", "helper": "cleo", "keys": [["id:exact"]]}
    return {
        "name": "vertical",
        "seed": SEED,
        "rounds": 1,
        "topology": {"kind": "complete", "peers": [*PEERS]},
        "data": {"name": "vertical", "options": options},
        "model": {"name": "glm", "options": {"family": family}},
        "privacy": {"mode": "pairwise"},
    }


def declare_columns(folder: Path, peer: str, *, family: str) -> None:
    """Write the declaration beside the table of a party: numbers, and at bob the target."""
    with (folder / f"{peer}.csv").open(encoding="utf-8") as file:
        names = [name for name in next(csv.reader(file)) if name != "id"]
    columns = dict.fromkeys(names, '"number"')
    lines = []
    if "y" in columns:
        lines, columns["y"] = ['target = "y"'], '["0", "1"]' if family == "binomial" else '"number"'
    lines += ["[columns]", *(f"{name} = {rule}" for name, rule in columns.items())]
    (folder / f"{peer}.columns.toml").write_text("\n".join(lines), "utf-8")


def score_example(data: Path, example: Example) -> tuple[float, float]:
    """Return the score of the label holder alone and of both parties on the rows of training: AUC, or R²."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        for peer in PEERS[:2]:
            (folder / f"{peer}.csv").write_bytes((data / example.folder / f"{peer}.csv").read_bytes())
            declare_columns(folder, peer, family=example.family)
        run = simulate(experiment(folder, example.family), folder=folder / "run", baselines=False)
        table = str(folder / "{peer}.csv")
        alone = Predictor.load(folder / "run" / "peers" / "bob.safetensors").predict(table.replace("{peer}", "bob"))
        together = predict_together(Run.load(str(run.folder)), table)
        with (folder / "bob.csv").open(encoding="utf-8") as file:
            targets = np.array([float(row["y"]) for row in csv.DictReader(file)])
    return (
        score(alone.values, targets, family=example.family),
        score(together.values, targets, family=example.family),
    )


def score(values: np.ndarray, targets: np.ndarray, *, family: str) -> float:
    """Return the AUC of probabilities, or the R² of numbers."""
    if family == "gaussian":
        return float(1 - ((targets - values) ** 2).sum() / ((targets - targets.mean()) ** 2).sum())
    ranks = np.argsort(np.argsort(values[:, 1], kind="stable"))  # a tie moves the area by half a pair
    positive = targets == 1
    pairs = positive.sum() * (~positive).sum()
    return float((ranks[positive].sum() - positive.sum() * (positive.sum() - 1) / 2) / pairs)


def write_tables(folder: Path, rows: int) -> None:
    """Write synthetic tables of both parties, each in its own order."""
    rng = np.random.default_rng(SEED)
    columns = rng.standard_normal((rows, 2 * COLUMNS))
    chances = 1 / (1 + np.exp(-columns @ rng.normal(0, 0.3, 2 * COLUMNS)))
    target = (rng.random(rows) < chances).astype(int)
    names = [f"x{number}" for number in range(COLUMNS)]
    for number, peer in enumerate(PEERS[:2]):
        own = columns[:, number * COLUMNS : (number + 1) * COLUMNS]
        labelled = peer == "bob"
        with (folder / f"{peer}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", *(["y"] if labelled else []), *names])
            for row in rng.permutation(rows).tolist():
                writer.writerow([row, *([target[row]] if labelled else []), *(f"{each:.6f}" for each in own[row])])
        declare_columns(folder, peer, family="binomial")


def fit_live(rows: int) -> None:
    """Fit a logistic regression by three processes over a broker, and print what it took."""
    import tomli_w  # noqa: PLC0415 (of this part alone)

    with TemporaryDirectory() as place, embedded(kind="mosquitto") as broker:
        folder = Path(place)
        write_tables(folder, rows)
        (folder / "experiment.toml").write_text(tomli_w.dumps(experiment(folder, "binomial")), "utf-8")
        command = [sys.executable, "-m", "p2pfl", "peer", "experiment.toml", "--json", "--broker", broker.url]
        outputs = {peer: (folder / f"{peer}.json").open("wb") for peer in PEERS}
        started = {
            peer: subprocess.Popen([*command, "--name", peer], cwd=folder, stdout=outputs[peer])  # noqa: S603
            for peer in PEERS
        }
        processor = {}
        try:
            for peer, process in started.items():
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
                if status:
                    raise SystemExit(f"{peer} ended with status {process.returncode}")
                processor[peer] = usage.ru_utime + usage.ru_stime
        finally:
            for process in started.values():
                process.kill()
                process.wait()
        runs = [Run.load(folder / json.loads((folder / f"{peer}.json").read_text("utf-8"))["folder"]) for peer in PEERS]
        records = [run.metrics[-1] for run in runs]
    seconds, sent = min(each.seconds_waiting for each in records), sum(each.bytes_out for each in records)
    spent = " ".join(f"{processor[peer]:8.1f}" for peer in PEERS)
    print(f"{rows:>9,} {seconds:9.1f} {spent} {sent / 1e6:9.1f}", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", type=int)
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="the folder of FATE's tables")
    options = parser.parse_args()
    if options.data is not None:
        tables = [Path(each.folder) / f"{peer}.csv" for each in EXAMPLES.values() for peer in PEERS[:2]]
        if missing := [str(each) for each in tables if not (options.data / each).is_file()]:
            parser.error(f"{options.data} has no {missing[0]}; name the folder that has FATE's tables of two parties")
        print(f"{'table':<8} {'score':<5} {'alone':>7} {'together':>9}")
        for name, example in EXAMPLES.items():
            alone, together = score_example(options.data, example)
            print(f"{name:<8} {'AUC' if example.family == 'binomial' else 'R2':<5} {alone:7.4f} {together:9.4f}")
    if options.rows:
        print(f"{'rows':>9} {'s':>9} {' '.join(f'{peer:>8}' for peer in PEERS)} {'MB sent':>9}")
    for rows in options.rows:
        fit_live(rows)


if __name__ == "__main__":
    main()
