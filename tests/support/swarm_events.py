"""Events of four peers, for the state of their swarm."""

from p2pfl.results.notices.kinds import PhaseBegan, WaitBegan

PEERS = ("ada", "bob", "cy", "dan")


def began(peer, phase="learning", round=0):
    return PhaseBegan(peer=peer, phase=phase, round=round)


def waits(peer, *others, round=0, connected=True):
    return WaitBegan(peer=peer, round=round, neighbours=others, connected=connected)
