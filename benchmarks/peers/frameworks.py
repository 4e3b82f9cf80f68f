"""Frameworks that take part: what to install, which script runs the task, and what it does."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Framework:
    """One row of the comparison.

    Attributes
    ----------
    script
        File in ``systems/``.
    requirements
        What pip installs after torch; empty for the environment of p2pfl itself.
    peers
        Numbers of peers with which it can run.
    does
        How models meet, in a few words.
    """

    script: str
    requirements: tuple[str, ...] = ()
    peers: tuple[int, ...] = (8, 100, 1000)
    does: str = "D-PSGD on a ring"


FRAMEWORKS = {
    "p2pfl, simulated": Framework("simulated"),
    "p2pfl, live": Framework("live", peers=(8,), does="D-PSGD on a ring, a process for each peer, mosquitto, sealed"),
    "loop over torch models": Framework("loop"),
    "gossipy": Framework("gossipy_dfl", ("gossipy-dfl",), does="push-pull gossip on a ring, simulated"),
    "hivemind": Framework(
        "hivemind_averager",
        ("hivemind",),
        peers=(8,),
        does="average of all peers, sockets, a process for each averager",
    ),
    "nvflare": Framework(
        "nvflare_dgd", ("nvflare", "networkx"), peers=(8,), does="gradient descent with a gossip step a batch, threads"
    ),
    "flwr": Framework("flower", ("flwr[simulation]",), does="average at a server, workers of Ray"),
    "p2pfl of the package index": Framework(
        "namesake",
        ("p2pfl[torch]", "opendp>=0.13", "pyarrow<18", "huggingface_hub<0.26"),
        peers=(8, 100),
        does="average of all peers, threads, in memory",
    ),
}
"""All frameworks, ours first."""
