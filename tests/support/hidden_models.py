"""Models that hide what they are made of."""

from torch import nn


class HiddenModel(nn.Module):
    """Hides a model from the kernels, so that vmap takes it."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


class BranchingModel(HiddenModel):
    """Looks at its data, which vmap cannot trace."""

    def forward(self, x):
        return self.inner(x) if x.sum().item() < 1e9 else self.inner(-x)
