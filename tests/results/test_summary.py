"""What a summary says in words."""

import pytest

from p2pfl.experiment import plan, read
from p2pfl.results.summary import describe

TABLE = {"topology": {"peers": 4}, "data": {"name": "wine"}, "model": {"name": "linear"}}
MASKS, NOISE, READABLE = "masks hide each update", "private noise stays", "every neighbour can read them"


@pytest.mark.parametrize(
    ("privacy", "said"),
    [
        ({"mode": "pairwise"}, MASKS),
        ({"mode": "pairwise", "mask": 0.0, "noise": 0.5}, NOISE),
        ({"mode": "pairwise", "mask": 0.0, "noise": 0.5, "clip": 1.0}, NOISE),
        ({"mode": "pairwise", "mask": 0.0, "clip": 1.0}, READABLE),
        ({"mode": "independent", "noise": 0.5}, NOISE),
        ({"mode": "independent", "clip": 1.0}, READABLE),
        ({"mode": "independent", "participation": 0.5}, READABLE),
        ({}, READABLE),
    ],
)
def test_only_noise_that_is_there_is_said_to_hide_anything(privacy, said):
    found = describe(plan(read(TABLE | {"privacy": privacy})), spent=None)
    assert [words for words in (MASKS, NOISE, READABLE) if words in found["statement"]] == [said]
    assert found["mode"] == {MASKS: "pairwise", NOISE: "independent", READABLE: "none"}[said]
