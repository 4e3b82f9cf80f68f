"""Features and targets as a model takes them."""

from __future__ import annotations

import torch
from torch import nn

from p2pfl.core.errors import ModelError
from p2pfl.data import Dataset
from p2pfl.learning import checks


def inputs(
    dataset: Dataset, *, device: torch.device, dtype: torch.dtype, whole: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return features and targets on a device, fractions in the number type of the parameters.

    Parameters
    ----------
    dataset
        Data.
    device, dtype
        Device and number type of the parameters.
    whole
        True if features that are whole numbers stay so.

    Raises
    ------
    ModelError
        Features are missing.
    """
    if dataset.description.lacking and bool(dataset.features.isnan().any()):
        raise ModelError(
            "the features have missing values, which a torch model does not take; let the rule `missing` of each "
            'column replace them, or set model.name to "boosting"'
        )
    features, targets = dataset.features, dataset.targets
    stays = whole and not features.is_floating_point()
    return (
        features.to(device, features.dtype if stays else dtype),
        targets.to(device, dtype if targets.is_floating_point() else targets.dtype),
    )


def check_inputs(
    model: nn.Module, dataset: Dataset, features: torch.Tensor, *, few: int
) -> tuple[checks.Size, torch.Tensor, torch.Tensor]:
    """Return the result of :func:`~p2pfl.learning.checks.check_fit` and the features that the model takes.

    Whole numbers become fractions if the model refuses them.

    Parameters
    ----------
    model
        Model on its device.
    dataset
        Data.
    features
        Features as :func:`inputs` returns them.
    few
        Number of samples to try.

    Raises
    ------
    ModelError
        The model refuses the features; the error is that of the features as they are.
    """
    if features.is_floating_point():
        return *checks.check_fit(model, features[:few]), features
    try:
        return *checks.check_fit(model, features[:few]), features
    except ModelError as error:
        parameter = next(model.parameters())
        fractions, _ = inputs(dataset, device=features.device, dtype=parameter.dtype, whole=False)
        try:
            return *checks.check_fit(model, fractions[:few]), fractions
        except ModelError:
            raise error from None
