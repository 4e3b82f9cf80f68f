"""What tests of the audit share: pipelines under seeded keys, and builds that are broken on purpose."""

import hashlib

import torch

from p2pfl.core.neighbourhood import Released
from p2pfl.plugins.audit.pipeline import Observer, Target
from p2pfl.privacy import PrivateNeighbourhood, masks
from p2pfl.privacy.accounting.accountant import table
from p2pfl.privacy.keys import SecretSource, SeededSource, edge_key
from p2pfl.privacy.normal_stream import grid_normals
from p2pfl.topology import metropolis


def fresh(number):
    """As many different runs as one likes, the same in every test."""
    return SeededSource(int.from_bytes(hashlib.sha256(f"run {number}".encode()).digest(), "big"))


def target(settings, graph, weights=None, *, seed=0):
    """A release to attack."""
    return Target(settings, graph, weights or [metropolis(graph)], fresh, seed)


def observers(settings, graph, *, colluders=1, adjacency="zero-out"):
    """Those of the guarantee."""
    rows = table(
        graph,
        clip=settings.clip,
        noise=settings.noise,
        mask=settings.mask,
        colluders=colluders,
        adjacency=adjacency,
    )
    return [Observer.of(given, graph=graph, settings=settings) for given in rows]


def wrong_sign(patch):
    """Both ends of an edge add its mask."""
    real = masks.Masks.sums

    def sums(self, peers, *, round, size, attempt=0):
        found = real(self, peers, round=round, size=size, attempt=attempt)
        for a, b in self.topology.at(round).edges:
            if b in peers:  # where it was subtracted once it is added twice
                key = self._key((a, b), round=round, attempt=attempt)
                noise = grid_normals(key, size, deviation=self.deviation, bits=self.bits)
                found[list(peers).index(b)] += 2 * noise
        return found

    patch.setattr(masks.Masks, "sums", sums)


def reused_key(patch):
    """The round is forgotten in the key of a mask."""

    def key(self, edge, *, round, attempt):
        del round, attempt
        return edge_key(self.secrets[edge], purpose="mask", a=edge[0], b=edge[1], round=0)

    patch.setattr(masks.Masks, "_key", key)


def missing_noise(patch):
    """Private noise is asked for and not added."""
    patch.setattr(PrivateNeighbourhood, "_noise_keys", lambda *_: [])


def clean_own_row(patch):
    """A peer mixes its own row as it was before the release."""
    real, mixed = PrivateNeighbourhood.release, PrivateNeighbourhood.mix

    async def release(self, rows, *, since, masses=None):
        self.clean = rows
        return await real(self, rows, since=since, masses=masses)

    async def mix(self, released):
        after = await mixed(self, released)
        own = torch.from_numpy(self._net.weights[0].matrix.diagonal())[:, None]
        return Released(after.values + own.to(after.values) * (self.clean - released.values), after.masses)

    patch.setattr(PrivateNeighbourhood, "release", release)
    patch.setattr(PrivateNeighbourhood, "mix", mix)


def narrow_seed(patch):
    """Each source of secrets is a good generator behind a seed of 32 bits."""
    first = SecretSource.bytes

    def drawn(self, size, *, purpose, peer, round=0):
        seed = first(self, 4, purpose=purpose, peer=peer, round=round)
        return hashlib.shake_256(seed).digest(size)

    patch.setattr(SecretSource, "bytes", drawn)


def half_of_the_noise(patch):
    """Masks have half of their deviation."""
    real = masks.Masks.sums
    patch.setattr(masks.Masks, "sums", lambda *args, **kwargs: real(*args, **kwargs) // 2)


def shared_noise(patch):
    """All peers have the same private noise."""

    def keys(self, attempt):
        shared = self._source.bytes(32, purpose=f"noise {attempt}", peer="", round=self._round)
        return [shared] * len(self.peers) if self._settings.noise else []

    patch.setattr(PrivateNeighbourhood, "_noise_keys", keys)


def noise_again(patch):
    """Private noise returns in every round."""

    def keys(self, attempt):
        del attempt
        drawn = [self._source.bytes(32, purpose="noise", peer=peer, round=0) for peer in self.peers]
        return drawn if self._settings.noise else []

    patch.setattr(PrivateNeighbourhood, "_noise_keys", keys)


def coin_before_noise(patch):
    """Who sits out releases no noise."""
    real = PrivateNeighbourhood._hide

    def hide(self, update, attempt):
        points = real(self, update, attempt)
        return points if update.joins is None else points * (update.joins > 0).to(torch.int64)

    patch.setattr(PrivateNeighbourhood, "_hide", hide)
