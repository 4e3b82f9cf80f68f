"""A simulation on an accelerator ends as one on the CPU does, and waits for it between rounds only.

Each test runs on a device made of the CPU (``cpu_device.py``), where results are equal bit for bit, and on CUDA
where there is some. CUDA adds up in another order, so rows agree to 1e-10 in double precision; where rows are rounded
onto a grid or to levels, a last bit can tip a number to the next one.
"""

import contextlib
from unittest import mock

import pytest
import torch

import cpu_device
from network.peer import test_agreement
from network.peer.test_agreement import GRID, TOLERANCE
from p2pfl.core.errors import LearningError, PrivacyError
from p2pfl.experiment import plan, read
from p2pfl.learning import engine_trial
from p2pfl.learning.engine_proof import EngineProof
from p2pfl.learning.engine_trial import Trial
from p2pfl.learning.steps.optimisers import elementwise_optimisers
from p2pfl.privacy.keys import SeededSource
from p2pfl.simulation import engine, simulate
from p2pfl.simulation.playing import AttendanceAlgorithm
from swarms import SMALL

pytestmark = pytest.mark.slow

CUDA = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"))
CASES = {name: case for name, case in test_agreement.CASES.items() if "exact totals" not in name}
"""Those that train on a device; totals are taken on the CPU."""

EXAMPLES = ["learning.example_noise=1.0", "learning.max_norm=0.5", "learning.batch=4"]
CASES |= {
    "DP-SGD": EXAMPLES,
    "absent peers, masks": ["privacy.mode=pairwise", "simulation.absence=0.2"],
    "absent peers, lost models, sums": [*CASES["D-PSGD, sums"], "simulation.absence=0.1", "simulation.loss=0.1"],
    "DP-SGD, Adam, masks": [*EXAMPLES, "learning.optimizer=adam", "learning.rate=0.01", "privacy.mode=pairwise"],
}

LEVELS = ("QSGD", "bits", "top", "random 20 %", "bfloat16")
"""Words in the names of cases whose codec rounds."""

SINGLE = 1e-4
"""Tolerance of rows in single precision after three rounds."""

STATE = 1e-8
"""Tolerance of optimisers, some of which divide by small numbers or compute their rate on the device."""

WAITS = ("squeezed",)
"""Words in the names of cases that go to the CPU within a round: what is compressed to bytes."""

ALSO = ("stopping rule", "IFCA")
"""Cases that wait because a decision on the CPU depends on rows."""

ONE_BY_ONE = ("FedBN", "local layers")
"""Words in the names of cases whose models keep statistics of their own and so train one by one."""


@pytest.fixture(autouse=True)
def _kernels(monkeypatch):
    """Let the CPU train perceptrons by the kernels that devices use, as numpy adds up in another order."""
    monkeypatch.setattr(engine_trial, "perceptrons", lambda *_, **__: None)


def last_state(changes, *, device):
    """Return the state after the last round, on its device."""
    found = []
    resolved = plan(read(SMALL, changes=[*changes, f"learning.device={device}"]))
    known = engine.move_state

    def watched(state, where):
        found.append(state)
        return known(state, where)

    with mock.patch.object(engine, "move_state", watched):
        simulate(resolved, baselines=False, source=SeededSource(5))
    return found[-1]


@contextlib.contextmanager
def shadow():
    """Enter the shadow device, without the comparison of engines: the module itself cannot run there."""
    with (
        mock.patch.object(Trial, "agrees", return_value=True),
        mock.patch.object(EngineProof, "knows", return_value=True),
        mock.patch.object(EngineProof, "holds", return_value=True),
        cpu_device.device() as device,
    ):
        yield device


def on(accelerator):
    return shadow() if accelerator == "shadow" else contextlib.nullcontext()


@pytest.mark.sampled(fast=0, all=10)
@pytest.mark.parametrize("accelerator", ["shadow", CUDA])
@pytest.mark.parametrize("name", CASES)
def test_a_simulation_on_an_accelerator_ends_as_one_on_the_cpu(name, accelerator):
    if "epsilon" in name or "DP-SGD" in name:
        pytest.importorskip("dp_accounting")
    if accelerator == "shadow" and any(word in name for word in ONE_BY_ONE):
        pytest.skip("a shadow cannot become the data of a parameter, as models that train one by one need")
    wanted = last_state(CASES[name], device="cpu").rows
    with on(accelerator):
        state = last_state(CASES[name], device="cuda")
        rows = state.rows.cpu()
    assert state.rows.device.type == ("meta" if accelerator == "shadow" else "cuda")
    far = (rows - wanted).abs()
    if accelerator == "shadow":
        assert not far.any()
    elif any(word in name for word in LEVELS):
        assert far.median() <= GRID
    else:
        grid = any(word in name for word in ("masks", "noise", "sums"))
        assert far.max() <= (SINGLE if "single precision" in name else GRID if grid else TOLERANCE)


@pytest.mark.sampled(fast=1, all=10)
@pytest.mark.parametrize("name", [each for each in CASES if not any(word in each for word in (*WAITS, *ALSO))])
def test_the_cpu_does_not_wait_for_the_device_within_a_round(name):
    check_no_waits(CASES[name])


@pytest.mark.parametrize("optimizer", elementwise_optimisers())
@pytest.mark.sampled(fast=0, all=4)
def test_no_optimiser_lets_the_cpu_wait_within_a_round(optimizer):
    check_no_waits(["learning.algorithm=dpsgd", f"learning.optimizer={optimizer}", "learning.rate=0.01"])


def check_no_waits(changes):
    """Check that nothing within the rounds of a simulation waits for the device."""
    counted, known = [], AttendanceAlgorithm.round
    with shadow() as device:

        async def watched(self, *arguments):
            before = device.waits.copy()
            after = await known(self, *arguments)
            counted.append(device.waits - before)
            return after

        with mock.patch.object(AttendanceAlgorithm, "round", watched):
            last_state(changes, device="cuda")
    assert len(counted) >= 3
    assert not sum(counted, start=type(device.waits)())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("name", [each for each in CASES if not any(word in each for word in (*WAITS, *ALSO))])
@pytest.mark.sampled(fast=0, all=16)
def test_cuda_does_not_wait_within_a_round(name):
    counted, known, compare = [], AttendanceAlgorithm.round, EngineProof.holds

    async def watched(self, *arguments):
        with cpu_device.waiting_forbidden() if counted else contextlib.nullcontext():  # the first round tries engines
            after = await known(self, *arguments)
        counted.append(after)
        return after

    def compared(self, *arguments, **options):
        """Compare engines for peers that train for the first time, in whichever round."""
        with cpu_device.waiting_allowed():
            return compare(self, *arguments, **options)

    with mock.patch.object(AttendanceAlgorithm, "round", watched), mock.patch.object(EngineProof, "holds", compared):
        last_state(CASES[name], device="cuda")
    assert len(counted) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("accelerator", ["shadow", CUDA])
@pytest.mark.parametrize("name", ["FedAvg, masks", "FedAvg, masks, noise, clip", "FedAvg, sums, noise, clip"])
def test_records_count_the_bytes_of_hidden_models_as_on_the_cpu(name, accelerator):
    wanted = simulate(read(SMALL, changes=CASES[name]), baselines=False).metrics
    with on(accelerator):
        found = simulate(read(SMALL, changes=[*CASES[name], "learning.device=cuda"]), baselines=False).metrics
    assert [each.bytes_out for each in found] == [each.bytes_out for each in wanted]
    assert [each.received for each in found] == [each.received for each in wanted]


@pytest.mark.fast
@pytest.mark.parametrize("accelerator", ["shadow", CUDA])
@pytest.mark.parametrize("changes", [["privacy.mode=pairwise"], CASES["FedAvg, sums"]], ids=["masks", "sums"])
def test_models_that_leave_the_grid_end_the_round_with_an_error(changes, accelerator):
    changes = [*changes, "learning.rate=1e15", "model.name=linear"]
    with pytest.raises(PrivacyError):
        last_state(changes, device="cpu")
    with on(accelerator), pytest.raises(PrivacyError):
        last_state(changes, device="cuda")


@pytest.mark.parametrize("accelerator", ["shadow", CUDA])
@pytest.mark.parametrize("optimizer", elementwise_optimisers())
@pytest.mark.sampled(fast=0, all=4)
def test_every_optimiser_keeps_its_state_on_the_device(optimizer, accelerator):
    changes = ["learning.algorithm=dpsgd", f"learning.optimizer={optimizer}", "learning.rate=0.01"]
    wanted = last_state(changes, device="cpu")
    with on(accelerator):
        state = last_state(changes, device="cuda")
        rows = state.rows.cpu()
        kept = {name: value.cpu() for name, value in state.memory.items()}
    tolerance = 0 if accelerator == "shadow" else STATE
    assert (rows - wanted.rows).abs().max() <= tolerance
    assert kept.keys() == wanted.memory.keys()
    assert all((kept[name] - value).abs().max() <= tolerance for name, value in wanted.memory.items())


@pytest.mark.fast
@pytest.mark.parametrize("accelerator", ["shadow", CUDA])
def test_training_that_diverges_on_an_accelerator_ends_the_round_with_an_error(accelerator):
    changes = ["learning.rate=1e150", "model.name=mlp"]
    with on(accelerator), pytest.raises(LearningError, match=r"training of \w+ diverged in round \d"):
        last_state(changes, device="cuda")


@pytest.mark.parametrize("accelerator", ["shadow", CUDA])
def test_a_cnn_and_uneven_peers_train_alike_on_an_accelerator(accelerator):
    changes = ["data.name=digits", "model={name='cnn', hidden=[2, 3]}", "data.split_options.alpha=0.3", "rounds=2"]
    wanted = last_state(changes, device="cpu").rows
    with on(accelerator):
        rows = last_state(changes, device="cuda").rows.cpu()
    assert (rows - wanted).abs().max() <= (0 if accelerator == "shadow" else TOLERANCE)


@pytest.mark.parametrize("accelerator", ["shadow", CUDA])
def test_regression_scores_alike_on_an_accelerator(accelerator):
    changes = ["data.name=diabetes", "data.split=iid", "rounds=2"]
    wanted = simulate(read(SMALL, changes=changes), baselines=False).summary["together"]
    with on(accelerator):
        found = simulate(read(SMALL, changes=[*changes, "learning.device=cuda"]), baselines=False).summary["together"]
    assert found == pytest.approx(wanted, abs=1e-9)
