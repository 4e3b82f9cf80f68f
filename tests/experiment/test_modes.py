"""Privacy modes are classes, and one of a user's own works in every command."""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch

from p2pfl.core.errors import ExperimentError
from p2pfl.core.neighbourhood import Released
from p2pfl.core.traits import ModeTraits
from p2pfl.experiment import plan, read
from p2pfl.experiment.catalogue import MODES
from p2pfl.experiment.modes import Independent, Pairwise, SecAgg, mode_of, section
from p2pfl.experiment.schema import PrivacySettings
from p2pfl.network.transport import MemoryTransport
from p2pfl.simulation import simulate
from swarms import SMALL, live


class Coarse:
    """One round's neighbourhood that releases multiples of a step."""

    def __init__(self, net, step):
        self.net, self.step = net, step

    @property
    def peers(self):
        return self.net.peers

    async def release(self, rows, *, since, masses=None):
        del since
        return Released((rows / self.step).round() * self.step, masses)

    async def mix(self, released):
        return await self.net.mix(released)

    async def receive(self, released):
        return await self.net.receive(released)


@dataclass(frozen=True, kw_only=True)
class Rounding:
    """A user's own mode, which shows coarse models."""

    noise: float = 0.5

    traits: ClassVar[ModeTraits] = ModeTraits()
    name: ClassVar[str] = f"{__name__}:Rounding"
    unused: ClassVar = {"mask": "Rounding has no masks"}

    def wrap(self, net, *, settings, masks, source, round, charge=None):
        del settings, masks, source, round, charge
        return Coarse(net, self.noise)

    def effective(self, settings):
        del settings
        return self

    def statement(self, *, claimed, whose=""):
        del claimed, whose
        return "models are rounded"


OWN = [f"privacy.mode={__name__}:Rounding", "privacy.noise=0.25"]


@pytest.mark.parametrize("name", MODES)
def test_a_mode_makes_its_section_and_the_section_makes_the_mode(name):
    wanted = PrivacySettings(mode=name)
    assert mode_of(wanted).name == name
    assert section(mode_of(wanted)) == wanted


@pytest.mark.parametrize("mode", [Independent(noise=0.1, clip=2.0), Pairwise(mask=3.0, partners=1), SecAgg(bits=18)])
def test_a_mode_keeps_its_parameters(mode):
    assert mode_of(section(mode)) == mode


@pytest.mark.slow
async def test_a_mode_of_ones_own_hides_alike_in_a_simulation_and_live():
    experiment = read(SMALL, changes=OWN)
    run = simulate(experiment, baselines=False)
    assert run.summary["privacy"]["statement"] == "models are rounded"
    plain = simulate(read(SMALL), baselines=False)
    ended = await live(experiment, MemoryTransport())
    for name, end in ended.items():
        row = torch.cat([tensor.flatten() for tensor in run.models[name].values()])
        usual = torch.cat([tensor.flatten() for tensor in plain.models[name].values()])
        torch.testing.assert_close(end.state.rows[0], row, rtol=0, atol=1e-9)
        assert not torch.allclose(row, usual)


def test_a_mode_of_ones_own_says_which_keys_it_does_not_use():
    with pytest.raises(ExperimentError, match=r"privacy\.mask = .* Rounding has no masks"):
        read(SMALL, changes=[*OWN, "privacy.mask=1"])


def test_a_key_that_a_mode_of_ones_own_has_no_parameter_for_is_refused():
    with pytest.raises(
        ExperimentError, match=r"privacy\.clip = 1\.0 has no effect, .*Rounding\", which has no parameter clip"
    ):
        read(SMALL, changes=[*OWN, "privacy.clip=1"])


@dataclass(frozen=True, kw_only=True)
class Gridded(Rounding):
    """A mode with a parameter that no key of the file has."""

    grid: float = 0.5


def test_a_parameter_that_no_key_has_keeps_its_default():
    assert section(Gridded(noise=0.1)).noise == 0.1
    with pytest.raises(
        ExperimentError, match=r"Gridded has a parameter grid, which is not a key of \[privacy\]; name it"
    ):
        section(Gridded(grid=0.25))


@dataclass(frozen=True, kw_only=True)
class Tenths(Rounding):
    """A mode whose parameter has another default than the key of its name."""

    noise: float = 0.25


def test_a_key_that_a_file_does_not_set_leaves_the_default_of_the_class():
    coarse = f"{Tenths.__module__}:Tenths"
    assert mode_of(read(SMALL, changes=[f"privacy.mode={coarse}"]).privacy) == Tenths(noise=0.25)
    assert mode_of(read(SMALL, changes=[f"privacy.mode={coarse}", "privacy.noise=1"]).privacy) == Tenths(noise=1.0)


def test_names_of_modes_are_checked_before_anything_starts():
    with pytest.raises(ExperimentError, match=r'privacy\.mode is "pairwize"; set it to .*"pairwise".*; did you mean'):
        read(SMALL, changes=["privacy.mode=pairwize"])


def test_what_a_mode_declares_is_what_rules_read():
    masked = replace(Rounding.traits, masks=True)
    assert masked.masks
    assert plan(read(SMALL, changes=OWN)).protection.mode == Rounding(noise=0.25)
