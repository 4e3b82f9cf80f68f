"""The same peers over every transport: memory, mosquitto with and without TLS, MQTT 5, iotcore, websockets."""

import pytest

from p2pfl.experiment import read
from p2pfl.privacy.keys import SeededSource
from p2pfl.simulation import simulate
from swarms import SMALL, live


@pytest.mark.sampled(fast=0)
async def test_peers_learn_the_same_over_every_transport(transport, request):
    name = request.node.name.split("[")[1].strip("]").replace(" ", "-").replace(".", "-")
    experiment = read(SMALL, changes=[f"name=over-{name}", "privacy.mode=pairwise", "rounds=2"])
    source = SeededSource(11)
    ended = await live(experiment, transport, source=source)
    run = simulate(experiment, source=source, baselines=False)
    for peer, end in ended.items():
        model = end.peer.plan.learner.state_dict(end.state.rows[0])
        assert not end.records[-1].missed
        assert all((model[key] - value).abs().max() < 2.0**-20 for key, value in run.models[peer].items())
