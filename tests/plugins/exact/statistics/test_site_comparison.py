"""A site whose median is far from the values of the others learns of it, and nobody else does."""

import csv
import json

import numpy as np
import pytest
import tomli_w

from p2pfl.cli import main
from p2pfl.core.draws import draw
from p2pfl.experiment import read
from p2pfl.network.transport import MemoryTransport
from p2pfl.plugins.exact.sketch import coarse, fine, live, sketches
from p2pfl.plugins.exact.statistics.site_comparison import far_columns
from p2pfl.privacy.keys import SeededSource
from swarms import live as live_peers

MONTH = 365.25 / 12


def pooled(sites):
    """Return the cells of all values, as their totals give them."""
    used = live(sum(coarse([site]) for site in sites))
    return sketches(used, sum(fine([site], used) for site in sites), columns=1)


def days(peer, rows=60):
    return np.ceil(draw(11, "days", peer).exponential(300, rows)).astype(np.float32)


def far(sites):
    """Return for each site whether its median is far off."""
    cells = pooled(sites)
    return [bool(far_columns(site[:, None], cells)) for site in sites]


@pytest.mark.parametrize("sites", [2, 3, 4, 8])
def test_sites_that_measure_alike_are_not_far_off(sites):
    assert far([days(str(peer)) for peer in range(sites)]) == [False] * sites


@pytest.mark.parametrize("wrong", [0, 2, 3])
@pytest.mark.parametrize("factor", [1 / MONTH, 38.67])
def test_the_site_with_another_unit_is_far_off_and_no_other(wrong, factor):
    sites = [days(str(peer)) * (np.float32(factor) if peer == wrong else 1) for peer in range(4)]
    assert far(sites) == [peer == wrong for peer in range(4)]


def test_a_large_site_with_another_unit_is_far_off_although_most_values_are_its_own():
    sites = [days("0", rows=600) / np.float32(MONTH), *(days(str(peer)) for peer in range(1, 4))]
    assert far(sites)[0]


def test_a_site_of_few_values_is_not_compared():
    assert not far([days("0", rows=19) / np.float32(1000), *(days(str(peer)) for peer in range(1, 4))])[0]


def test_missing_values_do_not_count():
    site = days("0") / np.float32(MONTH)
    site[::2] = np.nan
    [column] = far_columns(site[:, None], pooled([site, *(days(str(peer)) for peer in range(1, 4))]))
    assert (column.low, column.median) == (True, pytest.approx(np.nanmedian(site)))


@pytest.fixture
def experiment(tmp_path):
    """Return an experiment in which the times of peer2 are months, those of others days."""
    for peer in range(4):
        with (tmp_path / f"peer{peer}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["time", "sex", "ill"])
            times = days(str(peer)) / (MONTH if peer == 2 else 1)
            writer.writerows([f"{time:.2f}", "fm"[row % 2], row % 3 % 2] for row, time in enumerate(times.tolist()))
    columns = {"time": "number", "sex": ["f", "m"], "ill": [0, 1]}
    options = {"path": str(tmp_path / "{peer}.csv"), "target": "ill", "columns": columns}
    return {
        "rounds": 1,
        "topology": {"kind": "complete", "peers": 4},
        "data": {"name": "table", "options": options},
        "model": {"name": "description"},
        "privacy": {"mode": "pairwise"},
    }


def test_describe_tells_the_site_alone(experiment, tmp_path, capsys):
    (tmp_path / "e.toml").write_text(tomli_w.dumps(experiment))
    assert main(["describe", str(tmp_path / "e.toml"), "--json"]) == 0
    said = capsys.readouterr()
    notes = [line for line in said.err.splitlines() if line.startswith("note: ")]
    [note] = notes
    assert note.startswith('note: table of peer2: the median of "time" is ')
    assert "here, below 95% of the values of all others; check its unit, which `factors` in the file" in note
    assert "peer2" not in json.dumps(json.loads(said.out))


@pytest.mark.slow
async def test_a_live_peer_learns_of_itself_alone(experiment):
    ended = await live_peers(read(experiment), MemoryTransport(), source=SeededSource(3))
    notes = {peer: end.peer.plan.learner.compared(peer) for peer, end in ended.items()}
    assert [peer for peer, sentences in notes.items() if sentences] == ["peer2"]
    assert not [record for end in ended.values() for record in end.records if "median" in str(record)]
