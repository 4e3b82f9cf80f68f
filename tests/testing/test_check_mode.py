"""The contract of privacy modes: shipped ones keep it, and each broken one is told which promise it breaks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

import p2pfl
from p2pfl.core.neighbourhood import Wrapped
from p2pfl.testing import ContractError, check_mode


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(p2pfl.NoPrivacy(), marks=pytest.mark.slow),
        p2pfl.Pairwise(mask=2.0),
        pytest.param(p2pfl.Independent(clip=1.0, noise=0.1), marks=pytest.mark.slow),
        pytest.param(p2pfl.Pairwise(mask=2.0, clip=1.0, noise=0.1), marks=pytest.mark.slow),
    ],
    ids=repr,
)
def test_shipped_modes_keep_the_contract(mode):
    check_mode(mode)


class Shifting(Wrapped):
    def __init__(self, net, shift):
        super().__init__(net)
        self.shift = shift

    async def release(self, rows, *, since, masses=None):
        return await super().release(self.shift(rows), since=since, masses=masses)


@dataclass(frozen=True, kw_only=True)
class Whole(p2pfl.NoPrivacy):
    """The mode from which the broken ones differ."""

    noise: float = 0.1

    traits: ClassVar[p2pfl.ModeTraits] = p2pfl.ModeTraits()
    name: ClassVar[str] = "whole"
    unused: ClassVar[Mapping[str, str]] = {}

    def wrap(self, net, **_):
        return Shifting(net, lambda rows: rows + self.noise)


class NoTraits(Whole):
    traits = None


class Strange(Whole):
    unused: ClassVar[Mapping[str, str]] = {"sigma": "it draws no noise"}


class Speechless(Whole):
    def statement(self, **_):
        return ""


class InPlace(Whole):
    def wrap(self, net, **_):
        return Shifting(net, lambda rows: rows.add_(self.noise))


class Narrow(Whole):
    def wrap(self, net, **_):
        return Shifting(net, lambda rows: torch.full_like(rows, torch.nan))


class Careless(Whole):
    def wrap(self, net, **_):
        return Shifting(net, lambda rows: rows + self.noise * torch.rand(()))


class Crowded(Whole):
    """Releases of a peer depend on how many peers one process has."""

    def wrap(self, net, **_):
        return Shifting(net, lambda rows: rows + self.noise * len(rows))


BROKEN = {
    NoTraits: "the class declares its traits",
    Strange: "unused names sigma",
    Speechless: "the statement is one clause",
    InPlace: "changed the rows that it was given",
    Narrow: "not finite",
    Careless: "draw from source alone",
    Crowded: "peer0 ends elsewhere",
}


@pytest.mark.slow
def test_the_mode_from_which_the_broken_ones_differ_keeps_the_contract():
    check_mode(Whole())


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize(("broken", "message"), BROKEN.items(), ids=lambda each: getattr(each, "__name__", ""))
def test_a_broken_mode_is_told_which_promise_it_breaks(broken, message):
    with pytest.raises(ContractError, match=message):
        check_mode(broken())
