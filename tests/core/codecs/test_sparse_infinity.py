"""Numbers that are not finite do not become finite on their way."""

import math

import pytest
import torch

from p2pfl.core.codecs import At, encode_rows
from p2pfl.core.sparse_codecs import TopK


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("bits", [None, 2, 8])
def test_what_is_not_finite_stays_so(bits, bad):
    rows = torch.arange(1.0, 3001.0)[None].clone()
    rows[0, 7] = bad
    decoded = encode_rows(TopK(1.0, bits), rows, at=At(("ada",), 0, 0))[0]
    assert not decoded[0, 7].isfinite()
    assert decoded[0, 1024:].isfinite().all()
