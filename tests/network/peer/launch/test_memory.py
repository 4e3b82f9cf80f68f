"""How much memory large rows take, in real processes over a real broker."""

import sys

import pytest

from benchmarks.live import Load, measure, ours

LENGTH = 50_000_000
"""Numbers in a row of 200 MB: what does not grow with it, windows of 16 MB and what libraries load, is half of that."""


@pytest.mark.nightly  # three processes send 3.6 GB
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak of a process")
def test_a_peer_holds_at_most_three_rows_and_one_transfer():
    """Beside four rows: two windows (what is on its way in and out) and what libraries load; a fifth row would show."""
    peak = measure(ours, Load(3, LENGTH, 3)).memory
    assert peak < 5.0 * 4 * LENGTH
