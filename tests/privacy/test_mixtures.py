"""Peers that are no neighbours solve the mixtures that they receive for what others released.

The attack is that of E. El Mrini, E. Cyffers, A. Bellet, "Privacy attacks in decentralized learning", ICML 2024.
"""

import numpy as np
import torch

from p2pfl.core.neighbourhood import Public
from p2pfl.privacy import Masks, Settings, private, swarm_secrets
from p2pfl.privacy.keys import SeededSource
from p2pfl.privacy.normal_stream import grid_normals
from p2pfl.simulation.stacked import StackedNeighbourhood
from p2pfl.topology import metropolis, ring

SIZE, STEPS, ATTACKER = 50, 8, 0


async def solved(settings):
    """Return the updates of all peers, and what one of them computes from the mixtures of its two neighbours."""
    graph = ring(8)
    weights = metropolis(graph)
    matrix = np.asarray(weights.matrix.todense(), float)  # [N, N]
    heard = [ATTACKER, *(graph.peers.index(peer) for peer in graph.neighbours(graph.peers[ATTACKER]))]
    updates = torch.from_numpy(np.random.default_rng(1).normal(size=(8, SIZE)))
    updates /= updates.norm(dim=1, keepdim=True)
    masks = None
    if settings.mask:
        masks = Masks(swarm_secrets(graph, source=SeededSource(3), run="x"), deviation=settings.mask, topology=graph)
    net = StackedNeighbourhood([weights], round=0, seed=1)
    net = private(net, settings=settings, masks=masks, source=SeededSource(4), round=0)
    released = await net.release(updates, since=Public(torch.zeros_like(updates)))
    rows, received = released.values.double().numpy().copy(), []
    for (a, b), key in masks.keys([graph.peers[ATTACKER]], round=0).items() if masks else ():  # it knows its own masks
        noise = grid_normals(key, SIZE, deviation=settings.mask, bits=masks.bits) * 2.0**-masks.bits
        rows[graph.peers.index(a)] -= noise
        rows[graph.peers.index(b)] += noise
    for _ in range(STEPS):
        received.append(rows[heard])
        rows = matrix @ rows
    view = np.concatenate([np.linalg.matrix_power(matrix, step)[heard] for step in range(STEPS)])  # [3 STEPS, N]
    return updates.numpy(), np.linalg.lstsq(view, np.concatenate(received), rcond=None)[0]


async def test_without_masks_a_peer_computes_the_models_of_all_others_on_a_ring():
    updates, computed = await solved(Settings())
    np.testing.assert_allclose(computed, updates, atol=1e-9)


async def test_noise_and_masks_hide_models_from_peers_that_are_no_neighbours():
    for settings in (Settings(noise=1.0, clip=1.0), Settings(mask=4.0), Settings(mask=4.0, noise=1.0, clip=1.0)):
        updates, computed = await solved(settings)
        errors = np.linalg.norm(computed - updates, axis=1)  # [N]; an update is 1 long
        assert np.delete(errors, ATTACKER).min() > 0.5 * max(settings.noise, settings.mask) * np.sqrt(SIZE)
