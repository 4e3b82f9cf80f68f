"""The file of an account: what was changed, removed or put back is noticed, and a crash loses no line that counts."""

import json
import threading

import msgspec
import pytest

from p2pfl.core.errors import InputError, StorageError
from p2pfl.experiment.account_entries import RunEntry
from p2pfl.experiment.schema import PrivacySettings
from p2pfl.privacy.accounting.spending import Cost
from p2pfl.privacy.keys import Identity, SeededSource
from p2pfl.results.spending.account_file import AccountFile
from p2pfl.results.spending.budget import Budget

RUN = RunEntry(
    run="ward",
    date="2026-11-27T08:00:00+00:00",
    experiment="0" * 64,
    table="ada.csv",
    header=("age",),
    peer="ada",
    peers=("ada", "bob"),
    model="glm",
    columns=("age",),
    samples=30,
    exact=True,
)


def append(path, *entries, signer=None):
    file = AccountFile(path)

    def made():
        file.read()
        return entries

    file.append(made, signer=signer)


def named(*names):
    return [msgspec.structs.replace(RUN, run=name) for name in names]


@pytest.fixture
def path(tmp_path):
    """An account of three runs."""
    path = tmp_path / "ada.csv.budget.jsonl"
    for run in named("one", "two", "three"):
        append(path, run)
    return path


def lines(path):
    return path.read_bytes().splitlines(keepends=True)


def test_entries_come_back_as_they_were_and_only_their_owner_can_read_them(path):
    assert AccountFile(path).read() == named("one", "two", "three")
    for each in (path, path.with_name(f"{path.name}.key")):
        assert each.stat().st_mode & 0o777 == 0o600


def test_a_reader_gets_each_line_once(path):
    file = AccountFile(path)
    assert len(file.read()) == 3
    append(path, *named("four"))
    assert file.read() == named("four")
    assert (file.read(), file.sealed) == ([], 4)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_changed_line_is_named(path, number):
    changed = lines(path)
    changed[number] = changed[number].replace(b'"samples":30', b'"samples":31')
    path.write_bytes(b"".join(changed))
    with pytest.raises(InputError, match=rf"line {number + 1}: the line does not fit its seal"):
        AccountFile(path).read()


def test_lines_that_were_swapped_or_left_out_in_the_middle_are_noticed(path):
    one, two, three = lines(path)
    for changed in ((two, one, three), (one, three)):
        path.write_bytes(b"".join(changed))
        with pytest.raises(InputError, match="does not fit its seal"):
            AccountFile(path).read()


def test_a_file_that_was_cut_off_or_removed_is_noticed(path):
    kept = lines(path)
    for count in (0, 1, 2):
        path.write_bytes(b"".join(kept[:count]))
        with pytest.raises(InputError, match=rf"has {count} sealed lines, and .*\.key counts 3"):
            AccountFile(path).read()
    path.unlink()
    with pytest.raises(InputError, match="has 0 sealed lines"):
        append(path, *named("four"))
    assert not path.exists()


def test_an_older_copy_that_goes_on_is_noticed(path):
    key = path.with_name(f"{path.name}.key")
    older, newer = lines(path)[:2], key.read_bytes()
    counted = json.loads(newer) | {"lines": 2, "seal": json.loads(older[1])["seal"]}
    key.write_text(json.dumps(counted))
    path.write_bytes(b"".join(older))
    append(path, *named("other"))  # a fork of the copy
    key.write_bytes(newer)
    with pytest.raises(InputError, match=r"line 3: .*\.key has another seal"):
        AccountFile(path).read()


def test_a_line_whose_seal_was_taken_away_does_not_count_as_a_run(path):
    *rest, last = lines(path)
    body, _, _ = last.partition(b',"seal"')
    path.write_bytes(b"".join([*rest, body + b"}\n"]))
    with pytest.raises(InputError, match="line 3: the line does not fit its seal"):
        AccountFile(path).read()


def test_a_lost_key_is_named(path):
    path.with_name(f"{path.name}.key").unlink()
    with pytest.raises(InputError, match=r"budget\.jsonl\.key, is missing; restore it"):
        AccountFile(path).read()


def test_a_line_that_a_crash_cut_off_is_dropped_since_nothing_left(path):
    whole = path.read_bytes()
    path.write_bytes(whole + lines(path)[0][:-20])
    assert len(AccountFile(path).read()) == 3
    append(path, *named("four"))
    assert AccountFile(path).read() == named("one", "two", "three", "four")
    assert path.read_bytes().startswith(whole)


def test_a_crash_before_the_key_counts_the_line_loses_nothing(path):
    key = path.with_name(f"{path.name}.key")
    before = key.read_bytes()
    append(path, *named("four"))
    key.write_bytes(before)
    assert AccountFile(path).read() == named("one", "two", "three", "four")
    append(path, *named("five"))
    assert len(AccountFile(path).read()) == 5


def test_costs_of_release_0_1_have_no_seal_and_count(tmp_path):
    path = tmp_path / "b.jsonl"
    budget = Budget(path, PrivacySettings(), ["ada"])
    budget.spend(["ada"], run="x", round=0, cost=Cost(0.5))
    (line,) = path.read_text().splitlines()
    body, _, _ = line.partition(',"seal"')
    path.write_text(body + "}")  # without an end of the line
    path.with_name(f"{path.name}.key").unlink()
    assert budget.before(["ada"]) == Budget(path, PrivacySettings(), ["ada"]).before(["ada"]) == {Cost(0.5): 1}
    Budget(path, PrivacySettings(), ["ada"]).spend(["ada"], run="x", round=1, cost=Cost(0.5))
    assert Budget(path, PrivacySettings(), ["ada"]).before(["ada"]) == {Cost(0.5): 2}


def test_a_cost_that_was_made_smaller_is_noticed(tmp_path):
    path = tmp_path / "b.jsonl"
    Budget(path, PrivacySettings(), ["ada"]).spend(["ada"], run="x", round=0, cost=Cost(0.5))
    path.write_text(path.read_text().replace('"mu":0.5', '"mu":0.1'))
    with pytest.raises(InputError, match="line 1: the line does not fit its seal"):
        Budget(path, PrivacySettings(), ["ada"]).before(["ada"])


def test_the_owner_signs_and_nobody_else_can(tmp_path):
    path, owner, other = (
        tmp_path / "ada.jsonl",
        *(Identity.generate(SeededSource(seed), peer="ada") for seed in (1, 2)),
    )
    signed = msgspec.structs.replace(RUN, signer=owner.public.hex())
    append(path, signed, signer=owner)
    assert AccountFile(path).read() == [signed]
    forged = tmp_path / "forged.jsonl"
    append(forged, signed, signer=other)
    with pytest.raises(InputError, match="line 1: the owner's signature is wrong"):
        AccountFile(forged).read()


def test_runs_that_write_at_once_all_have_a_line(path):
    threads = [threading.Thread(target=append, args=(path, *named(f"run {number}"))) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [run.run for run in AccountFile(path).read()]
    assert sorted(found[3:]) == [f"run {number}" for number in range(8)]


def test_a_folder_that_takes_no_file_stops_the_run(tmp_path):
    with pytest.raises(StorageError, match="nothing is sent without it"):
        append(tmp_path / "missing" / "ada.jsonl", RUN)
