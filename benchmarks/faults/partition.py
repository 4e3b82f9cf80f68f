"""A cable that is cut for a while, between peers in network namespaces."""

import argparse
import itertools
from contextlib import ExitStack
from pathlib import Path

import torch

from benchmarks.faults.mortal import Mortal
from benchmarks.faults.nursery import Nursery, reported
from benchmarks.faults.page import Shown
from benchmarks.faults.wires import Wires, possible
from benchmarks.faults.worker import inside
from p2pfl.experiment import Experiment, plan, read
from p2pfl.topology import ring

BRIDGE = "connection to-far\naddress {}\ntopic p2pfl/v1/# both 1\nkeepalive_interval 10\nrestart_timeout 1 5\n"
"""Of the near broker, which peers of both sides take for one with the far one's."""

LONGEST = 900.0
"""Seconds within which the rest of the run must end."""


def experiment(options: argparse.Namespace, url: str) -> Experiment:
    """Peers that add the same to their row in each training, so that the sum of all rows is known."""
    return read(
        {
            "name": "faults",
            "rounds": options.rounds,
            "topology": {"kind": "ring", "peers": options.peers},
            "data": {"name": "digits"},
            "model": {"name": "linear"},
            "learning": {
                "loss": "benchmarks.faults.worker:drift",
                "batch": "all",
                "rate": 0.01,
                "weighted": False,
                "dtype": "float64",
                "device": "cpu",
            },
            "gossip": {"steps": 2},
            "privacy": {"mode": "none"},
            "transport": {"broker": url, "gather": 300.0, "outage": 600.0},
        }
    )


def partition(options: argparse.Namespace, folder: Path) -> Shown:
    """Half of the peers are cut off from the others, with one broker on one side or two bridged ones."""
    if not possible():
        raise SystemExit("expected to be let make network namespaces, but this takes root and iproute2")
    names = ring(options.peers).peers
    half = len(names) // 2
    near, far = names[:half], names[half:]
    with ExitStack() as stack:
        wires = stack.enter_context(Wires(near=["hub", *near], far=[*(["edge"] if options.bridged else []), *far]))
        urls = _brokers(wires, near, far, stack=stack, bridged=options.bridged)
        nursery = Nursery(
            experiment(options, urls[near[0]]),
            folder / "run",
            urls=urls,
            takes=dict.fromkeys(names, options.takes),
            inside={name: wires.inside(name) for name in names},
        )
        stack.enter_context(nursery)
        while nursery.round() < options.after:
            nursery.listen(0.1)
        wires.cut()
        nursery.listen(options.cut)
        at = {name: nursery.last(name) for name in names}
        wires.heal()
        seconds = nursery.end(within=LONGEST)
    sides = [max(at[name] for name in side) + 1 for side in (near, far)]
    brokers = "two bridged mosquittos, the bridge's cable" if options.bridged else "one mosquitto, the cable to half"
    return Shown(
        options.command,
        f"{brokers} cut for {options.cut:g} s by namespaces, after round {options.after + 1}",
        f"{options.peers} peers, {options.rounds} rounds, {seconds:.0f} s",
        f"all {len(nursery.done)} ended; when the cable was restored, the sides were in rounds {sides[0]} and "
        f"{sides[1]}; {nursery.missed} models missed, {nursery.left_out} rounds left out; {conserved(nursery)}",
    )


def _brokers(
    wires: Wires, near: tuple[str, ...], far: tuple[str, ...], *, stack: ExitStack, bridged: bool
) -> dict[str, str]:
    """Start them; by peer, the address of its own."""
    urls = {}
    more = ""
    for host, side in (("edge", far), ("hub", near)) if bridged else (("hub", near + far),):
        broker = Mortal(host=wires.address[host], more=more)
        with inside(wires.inside(host)):
            url = broker.start()
        stack.callback(broker.stop, in_order=True)
        urls |= dict.fromkeys(side, url)
        more = BRIDGE.format(url.removeprefix("mqtt://"))
    return urls


def conserved(nursery: Nursery) -> str:
    """How far the mean of all rows is from what was put in: the start, and what each added as often as it trained."""
    learner, names = plan(nursery.experiment).learner, nursery.names
    start = learner.start(names)  # [N, P]
    adds = learner.fit(start.clone(), peers=names, round=0).rows - start  # [N, P]
    trained = [
        sum(record.training_loss is not None for (who, _), record in nursery.records.items() if who == name)
        for name in names
    ]
    wanted = learner.state_dict((start + adds * torch.tensor(trained).unsqueeze(-1)).mean(0))
    models = nursery.models()
    means = {key: torch.stack([models[name][key] for name in names]).mean(0) for key in wanted}
    off = max(float((means[key] - value).abs().max()) for key, value in wanted.items())
    wide = max(float((models[name][key] - means[key]).abs().max()) for name, key in itertools.product(names, wanted))
    mean = f"the mean of the models is that of what was learned to {off:.1g} (models differ by {wide:.1g})"
    return "; ".join([mean, *reported(nursery)])
