"""What the peers of a world do: small swarms of pure averaging, drawn by key from the seed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from p2pfl.core.draws import draw
from p2pfl.data import Federation
from p2pfl.experiment import Plan, plan, read
from p2pfl.network.virtual.timed_learner import Goals
from worlds.totals import adding

SMALL = {
    "name": "world",
    "data": {"name": "synthetic"},
    "model": {"name": "linear"},
    "learning": {"dtype": "float64", "device": "cpu", "weighted": False},
    "gossip": {"steps": 2},
    "transport": {"gather": 120.0},
}
"""Rows of 5 KB, in one chunk or a few. Both ends' half-open connections, one after another, end before gather."""

MASKED = ("privacy.mode=pairwise", "privacy.partners=1")
"""Worlds draw graphs in which a peer has one mask partner, and in which partners die: as few are enough here."""

ALGORITHMS = (
    ("learning.algorithm=fedavg",),
    ("learning.algorithm=fedavg", "gossip.steps=1"),
    ("learning.algorithm=fedavg", "gossip.steps=3"),
    ("learning.algorithm=fedavg", "learning.weighted=true"),
    ("learning.algorithm=fedavg", "learning.weighted=true", "gossip.steps=3"),
    ("learning.algorithm=fedavg", "gossip.steps=6", "gossip.acceleration=chebyshev"),
    ("learning.algorithm=dpsgd",),
    ("learning.algorithm=dpsgd", "gossip.steps=3"),
    ("learning.algorithm=dpsgd", "gossip.steps=2"),
    ("learning.algorithm=fedavg", "privacy.mode=secagg", "gossip.steps=1"),
)
MORE = (
    ("learning.algorithm=choco", "compression.name=qsgd", "compression.options.levels=7"),
    (
        "learning.algorithm=fedavg",
        "compression.name=random_k",
        "compression.options.share=0.2",
        "compression.options.refresh=2",
    ),
    ("learning.algorithm=dpsgd", "compression.name=bfloat16"),
    ("learning.algorithm=fedavg", "robustness.rule=median"),
    ("learning.algorithm=dpsgd", "robustness.rule=clipped_gossip"),
    ("learning.algorithm=gossip_learning",),
)
"""Drawn in a fifth of the seeds: few bytes, rules in place of averages, peers that wait for nobody."""

CYCLES = 20
"""Times the rounds of others, for peers that wait for nobody."""

LINES = (("8", "2048"), ("12", "4096"), ("20", "8192"))
"""Patience and chunk."""

SHARE = 0.06
"""Share of the seeds whose peers take totals."""

DECIDING = 0.12
"""Share of the seeds whose peers settle rounds."""

HURRIES = (1.0, 1.0, 0.7, 0.4)
"""Drawn where slow neighbours may be left behind."""

GRAPHS = ("path", "ring", "star", "complete", "exponential", "one_peer_exponential")


TOTALLED = ((), ("privacy.mode=pairwise",), ("privacy.mode=pairwise", "privacy.mask_graph=complete"))
"""Privacy of worlds whose peers take totals, which need masks of a graph that no single peer parts."""


@dataclass(frozen=True)
class Setting:
    """An experiment of a world.

    Attributes
    ----------
    changes
        Of :data:`SMALL`.
    totals
        Whether the peers take totals and do nothing else.
    """

    changes: tuple[str, ...]
    totals: bool = False

    @property
    def table(self) -> dict[str, Any]:
        """What is changed: peers that wait for nobody make one exchange a cycle, and take no other number."""
        return {key: value for key, value in SMALL.items() if key != "gossip" or not self.asynchronous}

    @property
    def averages(self) -> bool:
        """Whether the mean of the rows is to be the mean of the goals, whatever happens to living peers.

        A difference of compressed rows that is missed is made up for later, but what was mixed meanwhile is not.
        Accelerated gossip conserves no flows.
        """
        lossy = ("compression.", "gossip.acceleration")
        others = self.convex or self.settles or any(each.startswith(lossy) for each in self.changes)
        return not others

    @property
    def weighted(self) -> bool:
        """True if the mean of the rows is that of the goals by numbers of samples."""
        return "learning.weighted=true" in self.changes

    @property
    def asynchronous(self) -> bool:
        """Whether nobody waits for anybody."""
        return "learning.algorithm=gossip_learning" in self.changes

    @property
    def convex(self) -> bool:
        """Whether every number of a row is to lie between those of the goals, whatever happens; no mean is kept."""
        return self.asynchronous or any(each.startswith("robustness.") for each in self.changes)

    @property
    def settles(self) -> bool:
        """True if peers settle rounds."""
        return not self.totals and "privacy.mode=pairwise" in self.changes


def setting(seed: int) -> Setting:
    """Draw the setting of a seed."""
    some = draw(seed, "world integers")  # of its own, so that the other seeds stay what they were
    if some.random() < SHARE:
        return _totals(some)
    other = draw(seed, "world departures")  # of its own, for the same reason
    if other.random() < DECIDING:
        return _settled(other)
    random = draw(seed, "world setting")
    algorithm: tuple[str, ...] = ALGORITHMS[int(random.integers(len(ALGORITHMS)))]
    more = draw(seed, "world other")  # of its own, so that the other seeds stay what they were
    if more.random() < 0.2:
        algorithm = MORE[int(more.integers(len(MORE)))]
    peers = (3, 3, 4, 4, 5)[int(random.integers(5))]
    graphs = [graph for graph in GRAPHS if _fits(graph, algorithm)]
    graph = graphs[int(random.integers(len(graphs)))]
    if graph == "one_peer_exponential" or _hides(algorithm) == "secagg":
        peers = max(4, peers if graph == "complete" else 4)
    rounds = int(random.integers(1, 4)) * (CYCLES if "learning.algorithm=gossip_learning" in algorithm else 1)
    given = (f"topology.kind={graph}", f"topology.peers={peers}", f"rounds={rounds}")
    patience, chunk = LINES[int(random.integers(len(LINES)))]
    hurry = HURRIES[int(random.integers(len(HURRIES)))] if _hurries(algorithm) else 1.0
    line = (f"transport.patience={patience}", f"transport.chunk={chunk}", f"transport.hurry={hurry}")
    return Setting((*given, *line, *algorithm))


def _totals(random: np.random.Generator) -> Setting:
    """Draw the setting of peers that take totals."""
    peers, privacy = int(random.integers(3, 7)), TOTALLED[int(random.integers(len(TOTALLED)))]
    graphs = (
        ("ring", "complete", "exponential") if privacy != () else ("path", "star", "ring", "complete", "exponential")
    )
    graph = graphs[int(random.integers(len(graphs)))]
    patience, chunk = LINES[int(random.integers(len(LINES)))]
    given = (f"topology.kind={graph}", f"topology.peers={peers}", f"rounds={int(random.integers(1, 4))}")
    return Setting((*given, f"transport.patience={patience}", f"transport.chunk={chunk}", *privacy), totals=True)


def _settled(random: np.random.Generator) -> Setting:
    """Draw the setting of peers that settle rounds: on complete graphs model by model, on others as a whole."""
    whole = random.random() < 0.5
    graph = ("ring", "ring", "path", "star")[int(random.integers(4))] if whole else "complete"
    peers, rounds, steps = (int(random.integers(low, high)) for low, high in ((3, 7), (1, 5), (1, 4)))
    patience, chunk = LINES[int(random.integers(len(LINES)))]
    departures = "wait" if random.random() < 0.2 else "go_on"
    if whole and departures == "wait" and peers > 3 and random.random() < 0.5:
        graph = "exponential"  # whose weights keep the mean only with all peers
    after = whole and peers > 3 and random.random() < 0.5  # training after mixing leaves no common mean
    algorithm = "dpsgd" if after else "fedavg"
    given = (f"topology.kind={graph}", f"topology.peers={peers}", f"rounds={rounds}", f"gossip.steps={steps}")
    line = (f"transport.patience={patience}", f"transport.chunk={chunk}")
    return Setting((*given, *line, f"learning.algorithm={algorithm}", *MASKED, f"privacy.departures={departures}"))


def _hides(algorithm: tuple[str, ...]) -> str:
    """Its privacy mode."""
    return next((each.partition("=")[2] for each in algorithm if each.startswith("privacy.mode")), "none")


def _hurries(algorithm: tuple[str, ...]) -> bool:
    """Whether slow neighbours may be left behind."""
    return _hides(algorithm) == "none" and "learning.algorithm=gossip_learning" not in algorithm


def _fits(graph: str, algorithm: tuple[str, ...]) -> bool:
    """Whether an algorithm can be played on a graph."""
    if any("robustness" in each for each in algorithm):
        return graph in {"ring", "complete", "exponential"}  # where everybody hears two
    if _hides(algorithm) == "secagg":
        return graph == "complete"  # of the small ones, that in which everybody hears three
    if graph == "one_peer_exponential":
        never = ("chebyshev", "choco", "random_k")
        return not any(each in option for each in never for option in algorithm)
    return graph != "exponential" or not any("chebyshev" in each for each in algorithm)


@dataclass
class Plans:
    """Settings resolved, each once: peers of all worlds share what does not change."""

    known: dict[Setting, Plan] = field(default_factory=dict)
    data: dict[object, Federation] = field(default_factory=dict)  # by peers, on which alone they depend

    def of(self, setting: Setting, *, seed: int) -> Plan:
        """The plan of a setting, with the goals of a seed."""
        found = self.known.get(setting)
        if found is None:
            experiment = read(setting.table, changes=setting.changes)
            data = self.data.get(experiment.topology.peers)
            found = plan(experiment, data=data)
            self.data[experiment.topology.peers] = found.federation
            found = self.known[setting] = _without_model(found, seed=seed)
        if setting.totals:
            found = adding(found, seed=seed)
        return _without_model(found, seed=seed)


def _without_model(plan: Plan, *, seed: int) -> Plan:
    """Return a plan whose peers move to goals, under the masks of the model that they replace."""
    return replace(plan, learner=Goals(plan.learner.layout, dtype=plan.learner.dtype, seed=seed), sized=None)
