"""Modules that the fork server loads as well where peers train with an optimiser of torch.

The first one makes torch import its compiler, which takes 1.5 seconds; plain SGD needs none.
"""

import gc

from p2pfl.core.tensors import torch

torch.optim.SGD([torch.zeros(1)])
gc.freeze()

__all__ = ["torch"]
