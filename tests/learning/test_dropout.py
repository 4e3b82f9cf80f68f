"""Masks that depend on their key and place alone."""

import torch
from torch import nn
from torch.func import vmap

from p2pfl.learning.dropout import KeyedDropout, key_dropout, mask


def test_masks_keep_the_share_they_should_and_do_not_correlate():
    counter = torch.arange(200_000)
    masks = [mask(torch.tensor(key), counter, layer=layer, p=0.3).double() for key in (0, 1, -5) for layer in (0, 1)]
    for each in masks:
        assert abs(each.mean().item() - 0.7) < 0.005
        assert abs(torch.corrcoef(torch.stack([each[:-1], each[1:]]))[0, 1].item()) < 0.01
    off_diagonal = torch.corrcoef(torch.stack(masks)) - torch.eye(len(masks), dtype=torch.float64)
    assert off_diagonal.abs().max().item() < 0.01


def split_mix(x):
    """SplitMix64's finaliser on Python's integers."""
    word = 2**64 - 1
    x &= word
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & word
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & word
    return x ^ (x >> 31)


def test_masks_are_split_mix_on_any_device():
    key, layer = -(2**62) - 12345, 3
    stream = split_mix(key + layer * 0xBF58476D1CE4E5B9)
    expected = [split_mix(i * 0x9E3779B97F4A7C15 + stream) >> 40 >= 2**22 for i in range(100)]
    assert mask(torch.tensor(key), torch.arange(100), layer=layer, p=0.25).tolist() == expected


def test_a_stack_drops_what_each_row_drops():
    module = KeyedDropout(0.5, layer=1)
    x = torch.ones(3, 4, 5)
    keys = torch.arange(3)

    def drop(key, row):
        module.calls = 0
        return torch.func.functional_call(module, {"key": key}, (row,))

    stacked = vmap(drop)(keys, x)
    for k in range(3):
        assert torch.equal(stacked[k], drop(keys[k], x[k]))
        assert torch.equal(drop(keys[k], x[k, :2]), stacked[k, :2])  # a shorter batch is the beginning of a longer


def test_every_dropout_is_replaced_also_one_that_is_used_twice():
    shared = nn.Dropout(0.5)
    model = nn.Sequential(shared, nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.1)), shared)
    names = key_dropout(model)
    assert sorted(names) == ["0.key", "1.1.key"]
    assert model[0] is model[2]
    assert not any(type(module) is nn.Dropout for module in model.modules())
    x = torch.ones(1, 100)
    assert not torch.equal(model[0](x), model[2](x))
    assert not model.state_dict().keys() - {"1.0.weight", "1.0.bias"}


def test_nothing_is_dropped_outside_training():
    x = torch.ones(10)
    assert torch.equal(KeyedDropout(0.9, layer=0).eval()(x), x)
    assert KeyedDropout(1.0, layer=0)(x).sum() == 0
