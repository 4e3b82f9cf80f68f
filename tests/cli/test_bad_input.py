"""What is wrong is said in one sentence, before anything is started or written."""

import json
import multiprocessing
import multiprocessing.forkserver
import resource
import socket
from contextlib import contextmanager

import psutil
import pytest

from p2pfl.results import Run
from ports import reserved_port
from processes import command_line

RUN = ("run", "small.toml")
SIMULATE = ("simulate", "small.toml")
SET = (*SIMULATE, "--set")
PEER = ("peer", "small.toml", "--name", "peer0", "--broker")
AT_ONCE = ("--set", "transport.outage=0")  # or else it waits for the broker

WRONG = {
    "a missing file": (
        ("run", "none.toml"),
        '"none.toml" is neither an experiment file nor a shipped experiment; name a file',
    ),
    "a misspelt experiment": (("run", "digist"), 'did you mean "digits"?'),
    "a folder": (("run", "."), '"." is neither an experiment file'),
    "no TOML": (("run", "broken.toml"), "broken.toml is not valid TOML"),
    "no text": (("run", "binary.toml"), "binary.toml is not valid TOML"),
    "a misspelt section": ((*SET, "toplogy.peers=3"), 'did you mean "topology"?'),
    "a misspelt key": ((*SET, "learning.rat=3"), 'did you mean "learning.rate"?'),
    "a key of another section": ((*SET, "learning.scale=3"), 'did you mean "data.scale"?'),
    "a misspelt value": ((*SET, "privacy.mode=pairwize"), 'did you mean "pairwise"?'),
    "a wrong type": ((*SET, "learning.rate=fast"), 'learning.rate is "fast"; set it to a finite number >= 0'),
    "a negative outage": ((*SET, "transport.outage=-1"), "transport.outage is -1; set it to a number >= 0"),
    "a wrong range": ((*SET, "learning.fraction=1.5"), "learning.fraction is 1.5; set it to a number > 0 and <= 1"),
    "a value for a section": ((*SET, "learning=3"), "learning is 3; set it to a section"),
    "a section in a value": ((*SET, "name.x=3"), '"name" is not a section'),
    "--set without a value": ((*SET, "rounds"), '--set "rounds" has no key or no value; write it as section.key=value'),
    "an unknown data set": ((*SET, "data.name=wines"), 'did you mean "wine"?'),
    "data of no module": ((*SET, "data.name=nowhere:data"), "nowhere:data (missing); read it"),
    "an option of other data": ((*SET, 'data.options={path="x"}'), 'has no option "path"'),
    "an unknown model": ((*SET, "model.name=mpl"), "model.name 'mpl' is unknown"),
    "a model of no module": ((*SET, "model.name=nowhere:Net"), "nowhere:Net (missing); read it"),
    "a model that does not fit the data": ((*SET, "model.name=cnn"), "they are (13,)"),
    "no pretrained file": ((*SET, "model.pretrained=none.safetensors"), "none.safetensors"),
    "nothing of that name to freeze": ((*SET, 'model.frozen=["body"]'), "'body'"),
    "an unknown optimiser": ((*SET, "learning.optimizer=sdg"), "learning.optimizer 'sdg'"),
    "an unknown schedule": ((*SET, "learning.schedule=StepRL"), "'StepRL'"),
    "an unknown device": ((*SET, "learning.device=gpu"), "learning.device 'gpu' is not available"),
    "a loss of no module": ((*SET, "learning.loss=nowhere:loss"), "nowhere:loss (missing); read it"),
    "a metric that is no reference": (
        (*SET, 'learning.metrics={f1="f1"}'),
        'learning.metrics.f1 is "f1", neither a known name',
    ),
    "an unknown topology": ((*SET, "topology.kind=rng"), 'use "ring"'),
    "a disconnected graph": (
        (*SET, "topology.kind=islands.json"),
        "2 parts that do not reach each other (a, b | c, d)",
    ),
    "no graph": ((*SET, "topology.kind=none.json"), '"none.json"'),
    "peers that no hypercube has": ((*SET, "topology.kind=hypercube"), "power of two"),
    "no matrix of weights": ((*SET, "gossip.weights=none.npy"), 'gossip.weights is "none.npy", which is no file'),
    "more peers than samples": ((*SET, "topology.kind=ring", "--peers", 5000), "are too few for 5000 peers"),
    "more peers than samples in a large graph": (
        (*SET, "topology.kind=complete", "--peers", 5000),
        "are too few for 5000 peers",
    ),
    "a schedule that ends too soon": (
        (
            *SET,
            "learning.schedule=OneCycleLR",
            "--set",
            "learning.schedule.options={max_lr=1.0, total_steps=1}",
            "--set",
            "rounds=9",
        ),
        "fails in round 3",
    ),
    "options of a model of ours": ((*SET, "model.options.hidden=[3]"), "set model.hidden"),
    "a loss for other targets": ((*SET, "learning.loss=p2pfl.learning.losses:squared_error"), "losses:squared_error"),
    "more shards than samples": ((*SET, "data.split=shards", "--peers", 100), "100 x 2 shards"),
    "masks beyond the grid": ((*SET, "privacy.mode=pairwise", "--set", "privacy.mask=1e30"), "below 1.29366e+08"),
    "few accelerated steps for few participants": (
        (
            *(*SET, "gossip.acceleration=chebyshev", "--set", "gossip.steps=1", "--set", "learning.fraction=0.5"),
            *("--set", "topology.kind=ring", "--peers", 9),
        ),
        "where a share of 0.5 of the peers takes part; raise it",
    ),
    "colluders who take all masks off": (
        (*SET, "privacy.mode=pairwise", "--set", "privacy.epsilon=8", "--set", "privacy.colluders=9"),
        'set privacy.mask_graph to "complete"',
    ),
    "a roster that is not there": ((*PEER, "mqtt://h", "--set", "trust.roster=none.toml"), "the roster cannot be read"),
    "no peers": ((*RUN, "--peers", 0), "0 is not a whole number of at least 1"),
    "half a peer": ((*RUN, "--peers", "0.5"), "0.5 is not a whole number of at least 1"),
    "a command that there is not": (("rum",), 'there is no command "rum"; did you mean "run"?'),
    "no experiment": (("run",), "EXPERIMENT"),
    "an option of another command": ((*RUN, "--trials", 9), "unrecognized arguments: --trials 9; see p2pfl run --help"),
    "an option before the command": (("--trials", "run"), "unrecognized arguments: --trials; see p2pfl --help"),
    "a broker that is not there": ((*RUN, "--broker", "mqtt://127.0.0.1:{free}", *AT_ONCE), "nothing listens there"),
    "no broker's URL": ((*RUN, "--broker", "localhost"), "'localhost' is not the URL of a broker"),
    "a peer without its broker": ((*PEER, "mqtt://127.0.0.1:{free}", *AT_ONCE), "nothing listens there"),
    "a peer without a broker": (PEER[:-1], 'start one with "p2pfl broker"'),
    "an unknown peer": (
        ("peer", "small.toml", "--name", "ada", *PEER[4:], "mqtt://h"),
        'has no peer "ada"; choose one of peer0, peer1, peer2',
    ),
    "a port in use": (("broker", "--port", "{taken}"), "choose another port"),
    "a port that there is not": (("broker", "--port", "70000"), "70000"),
    "no run directory": (("report", "nowhere"), "nowhere is not a run directory"),
    "a file for a run directory": (("report", "small.toml"), "small.toml is not a run directory"),
    "a file where runs go": ((*SIMULATE, "--runs", "small.toml"), "choose another with --runs"),
    "an unknown topology to look at": (("topology", "rng"), 'use "ring"'),
    "a missing graph to look at": (("topology", "none.json"), '"none.json"'),
    "a disconnected graph to look at": (("topology", "islands.json"), "2 parts"),
    "a picture of no format": (("topology", "ring", "--plot", "ring.txt"), "change it"),
    "a picture in no folder": (("topology", "ring", "--plot", "none/ring.png"), "choose another place"),
}


@pytest.fixture(scope="module")
def ports():
    """A port that is taken and one that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as taken, reserved_port() as free:
        yield {"taken": str(taken.getsockname()[1]), "free": str(free)}


def children():
    """Processes of ours, but for the one that Python keeps to tidy up after multiprocessing."""
    family = psutil.Process().children(recursive=True)
    return {process for process in family if "resource_tracker" not in command_line(process)}


@pytest.mark.parametrize(("arguments", "said"), WRONG.values(), ids=WRONG)
def test_wrong_input_is_one_sentence_before_anything_starts(p2pfl, place, ports, arguments, said):
    (place / "broken.toml").write_text("rounds =\n")
    (place / "binary.toml").write_bytes(b"\xff\xfe\x00")
    nodes, edges = [{"id": name} for name in "abcd"], [{"source": a, "target": b} for a, b in ("ab", "cd")]
    (place / "islands.json").write_text(json.dumps({"nodes": nodes, "edges": edges}))
    before = children()
    result = p2pfl(
        *(str(argument).replace("{free}", ports["free"]).replace("{taken}", ports["taken"]) for argument in arguments)
    )
    lines = result.err.splitlines()
    assert result.status == 2
    assert result.out == ""
    assert [line.startswith("p2pfl: ") for line in lines] == [True], result.err
    assert said in result.err
    assert [*place.glob("runs/*")] == []
    assert children() <= before


@contextmanager
def full_disk(*, size):
    """No file can grow beyond ``size`` bytes, of this process or of peers that are started from now on."""
    multiprocessing.forkserver._forkserver._stop()  # an earlier test may have started it, without the limit
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_is_full_from_the_start_leaves_no_directory(p2pfl, place):
    with full_disk(size=100):
        result = p2pfl(*SIMULATE)
    assert result.status == 2
    assert " cannot be written (" in result.err.splitlines()[-1]
    assert [*place.glob("runs/*")] == []


@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.parametrize("command", ["simulate", "run"])
def test_a_disk_that_fills_up_with_records_keeps_those_of_whole_rounds(p2pfl, place, command):
    with full_disk(size=8000):
        result = p2pfl(command, "small.toml", "--set", "rounds=100")
    [folder] = (place / "runs").iterdir()
    assert result.status == 1
    assert result.err.splitlines()[-1] == (
        f"p2pfl: runs/{folder.name}/metrics.jsonl cannot be written (File too large), and its old contents are "
        f"unchanged; free some space; what was written is in runs/{folder.name}"
    )
    assert 3 <= len(Run.load(folder).metrics) < 30
    assert p2pfl("report", folder).status == 0
    assert not multiprocessing.active_children()


@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.parametrize("command", ["simulate", "run"])
def test_a_disk_that_fills_up_with_checkpoints_keeps_the_records(p2pfl, place, command):
    with full_disk(size=8000):
        result = p2pfl(command, "small.toml", "--set", "model.name=mlp", "--set", "model.hidden=[100]")
    [folder] = (place / "runs").iterdir()
    assert result.status == 1
    last = result.err.splitlines()[-1]
    assert "/peers/peer" in last
    assert " cannot be written (File too large), and its old contents are unchanged; free some space" in last
    assert "Traceback" not in result.err
    rounds = {record.round for record in Run.load(folder).metrics}
    assert rounds == ({0, 1} if command == "simulate" else {0})  # a live peer needs a checkpoint to go on
    assert [*folder.glob("peers/[!.]*.state"), *folder.glob("peers/[!.]*.safetensors")] == []
    assert not multiprocessing.active_children()


@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.parametrize("command", ["simulate", "run"])
def test_a_loss_that_diverges_ends_the_run_with_the_peer_and_a_remedy(p2pfl, place, command):
    result = p2pfl(command, "small.toml", "--set", "learning.rate=1e20", "--set", "model.name=mlp")
    [folder] = (place / "runs").iterdir()
    assert result.status == 1
    last = result.err.splitlines()[-1]
    assert last.startswith("p2pfl: ")
    assert "peer" in last
    assert "set a smaller learning.rate" in last
    assert "Traceback" not in result.err
    assert p2pfl("report", folder).status == 0
    assert not multiprocessing.active_children()
