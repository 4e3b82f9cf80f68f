"""Forecasts by ``explain`` of the bytes that a peer writes to its disk, compared with those of a run."""

import json

import pytest

from wine_files import wine_file

RUN = wine_file("small", rounds=12, more="[transport]\ncheckpoint = 6\n").replace("complete", "ring")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["none", "pairwise"])
def test_explain_forecasts_what_a_peer_writes(p2pfl, place, mode):
    (place / "small.toml").write_text(RUN.replace("peers = 3", "peers = 4"))
    words = ["small.toml", "--set", f"privacy.mode={mode}", "--json"]
    foreseen = json.loads(p2pfl("explain", *words).out)["cost"]
    assert foreseen["rounds_per_checkpoint"] == {"none": 6, "pairwise": 1}[mode]  # masks are settled round by round
    measured = json.loads(p2pfl("run", *words, "--no-baselines").out)["bytes_written"]
    assert foreseen["bytes_written_per_peer_and_round"] == pytest.approx(measured, rel=0.3)
