"""``p2pfl align``: sizes and keys before anything is learned, from files in one place and of a live peer."""

import json

import numpy as np
import pytest

import untidy
from p2pfl.cli import main
from p2pfl.core.errors import RunError
from p2pfl.experiment import read
from p2pfl.network.transport import MemoryTransport
from p2pfl.plugins.vertical.align_command import plan_alignment
from p2pfl.plugins.vertical.alignment import align_openly
from p2pfl.privacy.keys import SeededSource
from swarms import live, timeless

DEALT = {
    "name": "dealt",
    "rounds": 1,
    "topology": {"kind": "complete", "peers": ["ada", "bob", "cleo", "eve"]},
    "data": {"name": "diabetes", "split": "columns", "split_options": {"label": "bob", "helper": "cleo"}},
    "model": {"name": "glm", "options": {"family": "gaussian"}},
    "privacy": {"mode": "pairwise"},
}


@pytest.fixture
def clinic(tmp_path):
    """An experiment on untidy tables of three owners, of whom bob has the target."""
    people = untidy.tables(("ada", "bob", "eve"), common=120, others=30).tables
    for name, cells in people.items():
        columns = [cells.column(each) for each in cells.names]
        rows = [f"{','.join(row)},{number % 7},{number % 5}" for number, row in enumerate(zip(*columns, strict=True))]
        (tmp_path / f"{name}.csv").write_text("\n".join([f"{','.join(cells.names)},x,z", *rows]), "utf-8")
        (tmp_path / f"{name}.csv.toml").write_text(f'dates = "{untidy.FORMS}"\n')
        declared = 'columns = { x = "number", z = "number" }\n'
        (tmp_path / f"{name}.columns.toml").write_text(('target = "x"\n' if name == "bob" else "") + declared)
    path = tmp_path / "clinic.toml"
    path.write_text(
        f"""
name = "clinic"
rounds = 1
topology = {{ kind = "complete", peers = ["ada", "bob", "cleo", "eve"] }}
model = {{ name = "glm", options = {{ family = "gaussian" }} }}
privacy = {{ mode = "pairwise" }}
[data]
name = "vertical"
options = {{ path = "{tmp_path}/{{peer}}.csv", label = "bob", helper = "cleo", keys = {json.dumps(untidy.KEYS)} }}
"""
    )
    return path


def test_sizes_and_keys_are_printed_from_files_in_one_place(clinic, capsys):
    assert main(["align", str(clinic), "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert results["sizes"] == {"ada": 150, "bob": 150, "eve": 150}
    assert 117 <= results["common"] == results["rows"] == sum(results["keys"].values()) <= 120
    assert [*results["keys"]] == [", ".join(key) for key in untidy.KEYS]
    assert main(["align", str(clinic)]) == 0
    text = capsys.readouterr().out
    assert "ada 150 rows, bob 150 rows, eve 150 rows" in text
    assert f"{results['common']} rows in common" in text
    assert "Nothing was learned." in text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["digits"], 'the peers of "digits" have the same columns, so there is nothing to align; set data.name'),
        (["CLINIC", "--set", 'data.options.keys=[["nhs_no:digits"]]'], 'has no column "nhs_no", which the agreed keys'),
        (["CLINIC", "--set", "data.options.least=130"], "rows in common, fewer than data.options.least = 130"),
        (["CLINIC", "--set", "data.options.sizes={ada=7}"], 'the table of "ada" has 150 rows, but 7 are agreed'),
        (["CLINIC", "--name", "ada", "--broker", "embedded"], '"embedded" does not work for a single peer'),
    ],
)
def test_what_cannot_be_aligned_is_one_sentence(clinic, capsys, arguments, sentence):
    assert main(["align", *[str(clinic) if each == "CLINIC" else each for each in arguments]]) == 2
    assert sentence in capsys.readouterr().err


def test_live_peers_align_as_files_in_one_place_do():
    resolved, learner = plan_alignment(read(DEALT))
    assert resolved.experiment.name == "dealt-alignment"
    assert resolved.protection.totals.startswith("no row leaves its owner; cleo compares pseudonyms, and each party")
    timeless(live(resolved.experiment, MemoryTransport(), resolved=resolved, source=SeededSource(11)))
    openly = align_openly(learner.parties, SeededSource(11))
    assert len(learner.results) == 4
    for result in learner.results:
        assert (result.rows, result.common, result.matched, result.sizes) == (442, 442, (442,), openly.sizes)
    for peer in learner.parties.names:
        known = [result for result in learner.results if not _hides(result, peer)]
        [own] = known  # each peer has the positions of its own rows, and of nobody else's
        np.testing.assert_array_equal(own.positions(peer), openly.positions(peer))


def _hides(result, peer):
    """Whether a process has not received the positions of a peer."""
    try:
        result.positions(peer)
    except RunError:
        return True
    return False
