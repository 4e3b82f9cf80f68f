"""Five honest peers that know each other's keys."""

import itertools

from p2pfl.network.protocol.membership.membership import Membership
from p2pfl.network.protocol.wire.envelope import Envelope
from p2pfl.network.protocol.wire.messages import (
    Announcement,
)
from p2pfl.network.protocol.wire.trailer import Signature
from p2pfl.network.secagg.seal import Seal
from p2pfl.privacy.keys import ExchangeKey, Identity, Roster, SeededSource, SenderKey
from p2pfl.privacy.masks import swarm_secrets
from p2pfl.topology import complete

SWARM = "run"
SOURCE = SeededSource(7)
NAMES = ("ada", "bob", "cleo", "dan", "eve")
LARGEST = 2**16
IDENTITIES = {name: Identity.generate(SOURCE, peer=name) for name in NAMES}
KEYS = {name: ExchangeKey.from_source(SOURCE, peer=name) for name in NAMES}
ROSTER = Roster({name: each.public for name, each in IDENTITIES.items()})
SECRETS = swarm_secrets(complete(5).named(NAMES), source=SOURCE, run=SWARM)
NOW = (0, 0)
SIGNED = Signature.of(SWARM, "ada", 1, public=IDENTITIES["ada"].public, identity=IDENTITIES["ada"])


def announcement(name, **changes):
    said = Announcement(name, 1, "up", {"seed": "1"}, KEYS[name].public, **changes)
    return said.sign(IDENTITIES[name], swarm=SWARM)


def membership(name):
    """Of a peer that has met all others."""
    up = {each: announcement(each) for each in NAMES if each != name}
    return Membership(announcement(name), frozenset(up), SWARM, trust=ROSTER, up=up, proven={*up})


def seal(name):
    return Seal(IDENTITIES[name], membership(name))


def envelopes(names=("ada", "bob", "eve")):
    """Return the envelopes of some peers, who have each other's keys."""
    ends = [Envelope(name, 1, KEYS[name], SenderKey.draw(SOURCE, peer=name, round=1), SWARM) for name in names]
    for one, other in itertools.permutations(ends, 2):
        one.meet(announcement(other.me))
    for one, other in [*itertools.permutations(ends, 2)] * 2:
        other.receive(one.me, one.handover(other.me))
    return ends
