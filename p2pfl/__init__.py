"""Fully decentralised learning: peers gossip masked models over MQTT, no server.

Names are imported when they are first used, so that ``import p2pfl`` costs nothing and
``p2pfl --help`` need not wait for torch.

Examples
--------
>>> import p2pfl
>>> run = p2pfl.simulate({"rounds": 1, "topology": {"kind": "complete", "peers": 2}})
>>> sorted(run.models)
['peer0', 'peer1']

The parts of a run are classes: algorithms, codecs, privacy modes, robust rules, learners and topologies.

>>> import torch
>>> data = {peer: (torch.eye(4), torch.tensor([0, 1, 0, 1])) for peer in p2pfl.topology.ring(4).peers}
>>> learner = p2pfl.TorchLearner(torch.nn.Linear(4, 2), data, rate=0.5)
>>> run = p2pfl.simulate(p2pfl.FedAvg(epochs=2), learner, p2pfl.topology.ring(4), rounds=2, codec=p2pfl.Quantise())
>>> len(run.models)
4
"""

import lazy_loader

__version__ = "0.3.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
