"""``p2pfl doctor`` says how fast this device trains and publishes, and whether that is enough."""

import re

import pytest

from p2pfl.experiment import plan, read
from p2pfl.plugins.operate.checks import speed

SMALL = {
    "topology": {"kind": "complete", "peers": 2},
    "data": {"name": "wine"},
    "model": {"name": "linear"},
    "learning": {"device": "cpu", "batch": 16},
    "gossip": {"steps": 3},
}


@pytest.fixture(scope="module")
def resolved():
    return plan(read(SMALL), only=["peer0"])


@pytest.fixture(scope="module")
def needs(resolved):
    return speed.Needs.of(resolved, peer="peer0")


def changed(needs, **changes):
    return speed.Needs(**vars(needs) | changes)


def test_what_a_round_needs_follows_from_the_experiment(resolved, needs):
    samples = len(resolved.federation.train["peer0"])
    assert needs.steps == resolved.experiment.learning.epochs * -(-samples // 16)
    assert (needs.models, needs.messages) == (resolved.gossip.steps, 1)
    number = 8 if resolved.protection.settings.hidden else resolved.learner.dtype.itemsize
    assert needs.model == resolved.learner.layout.size * number
    assert changed(needs, model=1000, chunk=300).messages == 4
    whole = plan(read(SMALL, changes=["learning.batch=all"]), only=["peer0"])
    assert speed.Needs.of(whole, peer="peer0").steps == whole.experiment.learning.epochs
    fixed = plan(read(SMALL, changes=["learning.steps=7", "privacy.mode=none"]), only=["peer0"])
    assert speed.Needs.of(fixed, peer="peer0").steps == 7


def test_a_training_step_is_timed_on_the_peers_own_data(resolved, needs):
    found = speed.training(resolved, peer="peer0", needs=needs)
    assert found.status == "ok"
    assert f"; a round has {needs.steps} and takes " in found.message


def test_training_that_takes_longer_than_neighbours_wait_is_worth_a_warning(resolved, needs):
    found = speed.training(resolved, peer="peer0", needs=changed(needs, patience=1e-9))
    assert found.status == "warning"
    assert "longer than neighbours wait (transport.patience = 1e-09)" in found.message


def test_models_that_do_not_train_in_steps_are_not_timed():
    without = {section: keys for section, keys in SMALL.items() if section != "gossip"}
    exact = plan(read(without, changes=["model.name=boosting", "privacy.mode=none"]), only=["peer0"])
    assert speed.training(exact, peer="peer0", needs=speed.Needs.of(exact, peer="peer0")) is None


@pytest.mark.slow
def test_the_publish_rate_is_measured_at_the_quality_of_service_of_the_experiment(site):
    with site.listening():
        findings = {each.check: each for each in site.examine()}
    rate = findings["publish rate"]
    assert rate.status == "ok"
    assert re.match(r"[\d,]+ messages of .* a second at QoS 1, .* a second; a round has \d+ and takes ", rate.message)
    assert findings["training"].status == "ok"


@pytest.mark.slow
def test_a_broker_that_takes_too_few_messages_is_worth_a_warning(site):
    with site.listening():
        slow = site.found("publish rate", "transport.patience=0.000001")
    assert (slow.status, "use a faster connection" in slow.message) == ("warning", True)
