"""The ledger of runs: what a run would show with earlier ones is refused at the owner, or accepted in writing."""

import asyncio
import json
import zlib
from datetime import UTC, datetime

import numpy as np
import pytest

import p2pfl as package
from p2pfl.core.errors import DataError, InputError
from p2pfl.experiment import plan, read
from p2pfl.experiment.accounts import beside_file
from p2pfl.experiment.approval import approve, write_approval
from p2pfl.experiment.site_policy import read_policy
from p2pfl.network.peer.launch.in_loop import live
from p2pfl.privacy.keys import Identity, SeededSource, key_text
from p2pfl.results.spending.account_file import AccountFile
from p2pfl.results.spending.ledger import check_runs, record_runs
from p2pfl.simulation import simulate

pytestmark = pytest.mark.plugin("exact")

PEERS = ("peer0", "peer1", "peer2", "peer3")
COLUMNS = {"age": "integer", "weight": "number", "smoke": ["no", "yes"], "low": ["no", "yes"]}
NOW = datetime(2026, 11, 27, 8, tzinfo=UTC)


def rows(peer, *, count=40):
    """Return the lines of the table of a peer."""
    rng = np.random.default_rng(PEERS.index(peer))
    ages, weights = rng.integers(16, 45, count), rng.integers(40, 110, count)
    answers = np.where(rng.random((count, 2)) > 0.6, "yes", "no")
    numbers = zip(ages, weights, answers, strict=True)
    return [f"{age},{weight},{smoke},{low},free" for age, weight, (smoke, low) in numbers]


def write(folder, peer, lines, *, header="age,weight,smoke,low,note"):
    (folder / f"{peer}.csv").write_text("\n".join([header, *lines]) + "\n")


@pytest.fixture
def wards(tmp_path):
    """Tables of four hospitals."""
    for peer in PEERS:
        write(tmp_path, peer, rows(peer))
    return tmp_path


def experiment(folder, *changes, model="description", columns=COLUMNS, **sections):
    table = {
        "rounds": 1,
        "topology": {"kind": "complete", "peers": 4},
        "data": {"name": "table", "options": {"path": str(folder / "{peer}.csv"), "target": "low", "columns": columns}},
        "model": {"name": model},
        "learning": {"algorithm": "exact"},
        "privacy": {"mode": "pairwise"},
    }
    return read(table | sections, changes=changes)


def run(folder, *changes, only=None, unaccounted=False, **sections):
    """Record a run of all peers, or of one, as a simulation or a live peer does before its first total."""
    wanted = experiment(folder, *changes, **sections)
    made = plan(wanted, only=only and [only], unaccounted=unaccounted)
    record_runs(made, made.federation.peers, now=NOW)


def runs(folder, peer="peer0"):
    return AccountFile(beside_file(folder / f"{peer}.csv")).read()


def test_a_run_is_listed_with_what_an_officer_files(wards):
    run(wards)
    (listed,) = runs(wards)
    assert (listed.date, listed.peer, listed.peers) == ("2026-11-27T08:00:00+00:00", "peer0", PEERS)
    assert (listed.model, listed.columns, listed.samples) == ("description", ("age", "low", "smoke", "weight"), 40)
    assert (listed.table, listed.exact, listed.epsilon, listed.accepted) == ("peer0.csv", True, None, ())
    assert "free" not in beside_file(wards / "peer0.csv").read_text()


def test_the_same_run_may_be_repeated_and_another_model_run_on_the_same_people(wards):
    for model in ("description", "description", "pca"):
        run(wards, model=model)
    assert [each.model for each in runs(wards)] == ["description", "description", "pca"]


def test_a_withdrawn_hospital_is_refused_at_those_that_stay(wards):
    run(wards)
    with pytest.raises(
        InputError, match=r"peer0\.csv\.budget\.jsonl: peer3 takes part in only one of this run and run 1"
    ):
        run(wards, "topology.peers=3")
    assert len(runs(wards)) == 1
    run(wards)  # its neighbours' accounts have no line of the refused run either


@pytest.mark.parametrize("peer", PEERS[:2])
def test_an_erased_patient_is_refused_at_their_hospital(wards, peer):
    run(wards)
    write(wards, peer, rows(peer)[1:])
    with pytest.raises(
        InputError,
        match=rf"{peer}\.csv\.budget\.jsonl: this run and run 1 \(description, 2026-11-27\) "
        "differ in one person, so their difference shows that person",
    ):
        run(wards, only=peer)
    other = PEERS[1 - PEERS.index(peer)]
    run(wards, only=other)  # which does not know


def test_a_corrected_value_shows_what_it_was(wards):
    run(wards)
    first, *rest = rows("peer0")
    write(wards, "peer0", [f"99{first}", *rest])
    with pytest.raises(InputError, match="differ in 2 people"):
        run(wards)


def test_a_corrected_value_that_no_total_has_shows_nothing(wards):
    run(wards)
    first, *rest = rows("peer0")
    write(wards, "peer0", [first.replace("free", "note"), *rest])
    run(wards)


def test_as_many_changes_as_people_must_share_a_total_pass(wards):
    run(wards)
    write(wards, "peer0", rows("peer0")[5:])
    run(wards)
    assert [each.samples for each in runs(wards)] == [40, 35]


def withdrawing(folder, *keys):
    """Return the experiment without some people of peer0, whose tables have a key."""
    for peer in PEERS:
        lines = [f"{line},{peer}-{number}" for number, line in enumerate(rows(peer))]
        write(folder, peer, lines, header="age,weight,smoke,low,note,id")
        (folder / f"{peer}.txt").write_text("\n".join(keys if peer == "peer0" else []))
    return ['data.options.key="id"', f'data.options.without="{folder}/{{peer}}.txt"']


def test_people_who_withdraw_leave_in_groups(wards):
    run(wards, *withdrawing(wards))
    with pytest.raises(InputError, match="differ in one person, so their difference shows that person"):
        run(wards, *withdrawing(wards, "peer0-3"))
    run(wards, *withdrawing(wards, *(f"peer0-{number}" for number in range(5))))
    assert [each.samples for each in runs(wards)] == [40, 35]


@pytest.mark.slow
def test_a_run_that_the_check_of_cells_refuses_stays_since_what_passes_without_one_person_shows_them(wards):
    def fit():
        simulate(experiment(wards, model="glm", columns=COLUMNS | {"smoke": ["no", "yes", "pipe"]}), baselines=False)

    alone, *others = rows("peer0")
    write(wards, "peer0", [alone.replace(",no,", ",pipe,", 1).replace(",yes,", ",pipe,", 1), *others])
    with pytest.raises(DataError, match="fewer than 5 people share a value of smoke"):
        fit()
    assert [each.model for each in runs(wards)] == ["glm"]
    write(wards, "peer0", others)
    with pytest.raises(InputError, match="differ in one person"):
        fit()
    for file in wards.glob("*.budget.jsonl*"):  # as if the refused run had no line
        file.unlink()
    fit()  # it passes, so that whoever has seen both verdicts knows who smokes a pipe


def test_the_model_can_ask_for_more_people(wards):
    run(wards)
    write(wards, "peer0", rows("peer0")[5:])
    with pytest.raises(InputError, match="or at least 6 others"):
        run(wards, "model.options.least=6")


def test_an_owner_accepts_in_writing(wards):
    run(wards)
    write(wards, "peer0", rows("peer0")[1:])
    run(wards, unaccounted=True)
    assert [len(each.accepted) for each in runs(wards)] == [0, 1]
    assert "differ in one person" in runs(wards)[1].accepted[0]
    run(wards)  # the same again shows nothing new
    with pytest.raises(InputError, match="differ in one person"):
        run(wards, model="pca")


def test_a_departure_that_was_accepted_once_is_accepted_for_later_refits_of_the_model(wards):
    absent = 'learning.without=["peer3"]'
    run(wards)
    with pytest.raises(InputError, match="peer3 takes part in only one of this run and run 1"):
        run(wards, absent)
    run(wards, absent, unaccounted=True)
    run(wards, absent, "model.options.least=6")  # another run of the same people
    write(wards, "peer0", [*rows("peer0"), *rows("peer1")])
    run(wards, absent)  # a refit with enough new people
    assert [bool(each.accepted) for each in runs(wards)] == [False, True, False, False]
    with pytest.raises(InputError, match="peer3 takes part in only one of this run and run 1"):
        run(wards, absent, model="pca")  # which shows something else of peer3


def test_people_whose_departure_was_accepted_are_no_others(wards):
    run(wards)
    write(wards, "peer0", rows("peer0")[1:])
    run(wards, unaccounted=True)
    run(wards, "model.options.least=6")
    write(wards, "peer0", [rows("peer0")[0], *rows("peer0")[2:]])
    with pytest.raises(InputError, match="differ in"):
        run(wards)


def test_a_column_more_or_in_another_place_hides_nobody(wards):
    run(wards)
    lines = [f"x{number},{line}" for number, line in enumerate(rows("peer0")[1:])]
    write(wards, "peer0", lines, header="new,age,weight,smoke,low,note")
    with pytest.raises(InputError, match="differ in one person"):
        run(wards)


def cells(line, **changes):
    """Return a line of a table with other cells."""
    table = dict(zip(("age", "weight", "smoke", "low", "note"), line.split(","), strict=True))
    return ",".join((table | {name: change(table[name]) for name, change in changes.items()}).values())


def exactly(cell):
    """Return a number that is written with more digits."""
    return f"{float(cell) + 1e-9:.9f}"


AGE, WEIGHT = {"age": "integer", "low": ["no", "yes"]}, {"weight": "number", "low": ["no", "yes"]}


@pytest.mark.parametrize(
    "rewritten",
    [
        pytest.param(lambda lines: [line.replace("free", "Free") for line in lines], id="an unused column"),
        pytest.param(lambda lines: [cells(line, weight=exactly) for line in lines], id="a used column by little"),
        pytest.param(
            lambda lines: [cells(line, weight=exactly) if number < 7 else line for number, line in enumerate(lines)],
            id="seven cells of a used column",
        ),
        pytest.param(
            lambda lines: [
                cells(line, weight=exactly, age=lambda age: str(int(age) + 1)) if number % 4 else line
                for number, line in enumerate(lines)
            ],
            id="two columns of most rows",
        ),
        pytest.param(
            lambda lines: [cells(line, weight=exactly, age=lambda age: str(int(age) + 1)) for line in lines],
            id="two columns of all rows",
        ),
    ],
)
def test_rewritten_cells_do_not_hide_an_erased_patient(wards, rewritten):
    run(wards)
    write(wards, "peer0", rewritten(rows("peer0")[1:]))
    with pytest.raises(InputError, match="differ in one person"):
        run(wards)


def test_where_all_cells_are_written_otherwise_people_are_counted(wards):
    declared = dict.fromkeys(("age", "weight"), "number")
    run(wards, 'data.options.target="age"', columns=declared)
    lines = [cells(line, weight=exactly, age=exactly) for line in rows("peer0")[1:]]
    write(wards, "peer0", lines)
    with pytest.raises(InputError, match="differ in one person, apart from rewritten cells"):
        run(wards, 'data.options.target="age"', columns=declared)
    write(wards, "peer0", lines[4:])
    run(wards, 'data.options.target="age"', columns=declared)


def test_runs_of_other_columns_are_compared_in_those_that_both_used(wards):
    run(wards, columns=AGE)
    write(wards, "peer0", [cells(line, age=lambda age: str(12 * int(age))) for line in rows("peer0")[1:]])
    with pytest.raises(InputError, match="differ in one person"):
        run(wards, columns=WEIGHT)


def test_a_column_that_an_earlier_run_used_may_be_missing(wards):
    run(wards)
    lines = [",".join(line.split(",")[:3:2] + line.split(",")[3:]) for line in rows("peer0")[1:]]
    write(wards, "peer0", lines, header="age,smoke,low,note")
    with pytest.raises(InputError, match="differ in one person"):
        run(wards, columns={name: COLUMNS[name] for name in ("age", "smoke", "low")})


def test_five_people_who_replace_five_others_are_no_rewritten_rows(wards):
    run(wards)
    write(wards, "peer0", [*rows("peer0")[5:], *rows("peer1")[:5]])
    run(wards)
    assert [each.samples for each in runs(wards)] == [40, 40]


def test_the_key_names_people_whatever_else_is_rewritten(wards):
    def keyed(lines):
        return [f"{number},{line}" for number, line in enumerate(lines)]

    key, header = 'data.options.key="mrn"', "mrn,age,weight,smoke,low,note"
    columns = dict.fromkeys(("age", "weight"), "number")
    lines = keyed(rows("peer0"))
    others = [line.replace(line.split(",")[1], str(int(line.split(",")[1]) + 50), 1) for line in lines]
    for peer in PEERS:
        write(wards, peer, [f"{peer}{line}" for line in keyed(rows(peer))], header=header)
    write(wards, "peer0", lines, header=header)
    run(wards, key, 'data.options.target="age"', columns=columns)
    write(wards, "peer0", [line.replace(",", ",1", 1) for line in others[1:]], header=header)
    with pytest.raises(InputError, match="differ in one person, apart from rewritten cells"):
        run(wards, key, 'data.options.target="age"', columns=columns)


def test_three_runs_show_together_whom_rewritten_cells_would_hide(wards):
    def shared(lines):
        (wards / "all.csv").write_text("\n".join(["age,weight,smoke,low,note", *lines]))
        options = {"path": str(wards / "all.csv"), "target": "low", "drop": ["note"]}
        run(wards, data={"name": "csv", "options": options})

    two = [*rows("peer0"), *rows("peer1")]
    lines = [cells(line, weight=lambda _, number=number: f"{40 + number / 2}") for number, line in enumerate(two)]
    shared(lines)
    shared(lines[:50])
    with pytest.raises(InputError, match="together show one person, apart from rewritten cells"):
        shared([cells(line, age=exactly) for line in lines[51:]])


def test_a_stolen_account_shows_not_even_which_cells_are_equal(wards):
    write(wards, "peer0", ["30,70,no,no,free"] * 40)
    run(wards)
    (listed,) = runs(wards)
    file = AccountFile(beside_file(wards / "peer0.csv"))
    (row,) = {*np.frombuffer(zlib.decompress(file.reveal(listed.rows)), "S16")}
    assert len(row) == 16
    (wards / "peer0.csv.budget.jsonl.key").unlink()
    with pytest.raises(InputError, match=r"is not the key of"):
        file.reveal(listed.rows)


ACCOUNT = (".budget.jsonl", ".budget.jsonl.key")


def account(path):
    """Return the files of the account of a table."""
    return [path.with_name(f"{path.name}{ending}") for ending in ACCOUNT]


def deleted(path, backup):
    del backup
    for file in account(path):
        file.unlink()
    return path


def restored(path, backup):
    for file in account(path):
        file.write_bytes((backup / file.name).read_bytes())
    return path


def copied(path, backup):
    del backup
    copy = path.parent / "copy" / path.name
    copy.parent.mkdir()
    return copy


def copied_with_its_account(path, backup):
    return restored(copied(path, backup), backup)


def linked(path, backup):
    link = copied(path, backup)
    link.hardlink_to(path)
    return link


INSIDERS = (deleted, restored, copied, copied_with_its_account, linked)


def go_around(folder, insider):
    """Run on people 0 to 39, then on 1 to 39 where an insider has gone around the account beside the table."""
    lines, path, backup = rows("peer0"), folder / "peer0.csv", folder / "backup"
    write(folder, "peer0", lines[20:])
    run(folder, only="peer0")
    backup.mkdir()
    for file in account(path):
        (backup / file.name).write_bytes(file.read_bytes())
    write(folder, "peer0", lines)
    run(folder, only="peer0")
    used = insider(path, backup)
    write(used.parent, "peer0", lines[1:])
    run(used.parent, only="peer0")


@pytest.mark.parametrize("insider", INSIDERS)
def test_the_account_beside_a_table_does_not_notice_an_insider_who_goes_around_it(wards, insider):
    go_around(wards, insider)


@pytest.mark.parametrize("insider", INSIDERS)
def test_the_ledger_of_the_site_knows_people_wherever_their_table_is(wards, insider, monkeypatch):
    (wards / "officer").mkdir()
    (wards / "officer" / "site.toml").write_text('ledger = "site.budget.jsonl"\n')
    monkeypatch.setenv("P2PFL_POLICY", str(wards / "officer" / "site.toml"))
    with pytest.raises(InputError, match=r"officer/site\.budget\.jsonl: this run and run 2 .* differ in one person"):
        go_around(wards, insider)
    assert len(AccountFile(wards / "officer" / "site.budget.jsonl").read()) == 2


def test_the_ledger_of_a_site_takes_tables_of_other_people_and_knows_one_under_another_name(wards):
    (wards / "policy.toml").write_text('ledger = "site.budget.jsonl"\n')
    write(wards, "peer1", rows("peer1")[1:])
    run(wards)
    assert len(AccountFile(wards / "site.budget.jsonl").read()) == len(PEERS)
    write(wards, "icu", rows("peer0")[1:])
    with pytest.raises(InputError, match=r"site\.budget\.jsonl: this run and run 1 .* differ in one person"):
        run(wards, 'topology.peers=["icu", "peer1", "peer2", "peer3"]', only="icu")


def test_frames_in_memory_are_listed_in_the_ledger_of_the_site(wards, monkeypatch):
    pandas = pytest.importorskip("pandas")
    (wards / "policy.toml").write_text('ledger = "site.budget.jsonl"\n')
    monkeypatch.setenv("P2PFL_POLICY", str(wards / "policy.toml"))
    frames = {peer: pandas.read_csv(wards / f"{peer}.csv")[["age", "low"]] for peer in PEERS}
    package.glm("low ~ age", frames)
    frames["peer0"] = frames["peer0"][1:]
    with pytest.raises(InputError, match="differ in one person"):
        package.glm("low ~ age", frames)


def test_runs_without_a_common_column_are_not_compared(wards):
    one = {"age": "integer", "smoke": ["no", "yes"]}
    run(wards, 'data.options.target="smoke"', columns=one)
    write(wards, "peer0", rows("peer0")[1:])
    run(wards, columns={"weight": "number", "low": ["no", "yes"]})
    with pytest.raises(InputError, match="differ in one person"):
        run(wards)


def test_another_share_of_test_data_moves_few_people(wards):
    fit = {"model": "forest"}
    run(wards, "data.test=0.2", **fit)
    with pytest.raises(InputError, match="differ in one person"):
        run(wards, "data.test=0.22", **fit)
    run(wards, "data.test=0.4", **fit)


def test_few_test_data_are_the_difference_of_a_description_and_a_model(wards):
    run(wards)
    with pytest.raises(InputError, match=r"run 1 .* differ in 4 people"):
        run(wards, "data.test=0.1", model="forest")


def test_rows_that_are_the_same_are_people_of_their_own(wards):
    write(wards, "peer0", [rows("peer0")[0]] * 2 + rows("peer0"))
    run(wards)
    write(wards, "peer0", [rows("peer0")[0], *rows("peer0")])
    with pytest.raises(InputError, match="differ in one person"):
        run(wards)


def test_the_account_of_another_table_is_refused(wards):
    run(wards)
    for ending in (".budget.jsonl", ".budget.jsonl.key"):
        (wards / f"peer0.csv{ending}").replace(wards / f"peer1.csv{ending}")
    with pytest.raises(InputError, match=r"this is the account of peer0\.csv, not of peer1\.csv"):
        run(wards, only="peer1")


def test_another_account_is_no_way_around(wards):
    run(wards)
    with pytest.raises(InputError, match=r"privacy\.budget names another"):
        run(wards, f'privacy.budget="{wards / "fresh.jsonl"}"')


def test_a_named_account_has_the_runs_of_each_peer_where_the_data_folder_takes_no_file(wards):
    named = f'privacy.budget="{wards / "named.jsonl"}"'
    run(wards, named)
    assert [each.peer for each in AccountFile(wards / "named.jsonl").read()] == [*PEERS]
    write(wards, "peer2", rows("peer2")[1:])
    with pytest.raises(InputError, match=r"named\.jsonl: this run and run 3 .* differ in one person"):
        run(wards, named)


def test_the_owner_signs_with_a_key_that_outlives_the_run(wards):
    owner = Identity.generate(SeededSource(1), peer="peer0")
    made = plan(experiment(wards), only=["peer0"])
    record_runs(made, ["peer0"], now=NOW, signer=owner)
    (listed,) = runs(wards)
    assert listed.signer == owner.public.hex()
    assert '"signature":"' in beside_file(wards / "peer0.csv").read_text()


def test_the_policy_of_the_site_limits_runs_and_asks_for_more_people(wards):
    (wards / "policy.toml").write_text("runs = 2\nleast = 7\n")
    run(wards)
    write(wards, "peer0", rows("peer0")[6:])
    with pytest.raises(InputError, match="or at least 7 others"):
        run(wards)
    write(wards, "peer0", rows("peer0"))
    run(wards)
    with pytest.raises(InputError, match=r"policy\.toml allows 2 runs, which .*peer0\.csv\.budget\.jsonl lists"):
        run(wards, unaccounted=True)


def test_the_line_names_the_officer_and_the_purpose_of_the_approval(wards):
    officer = Identity.generate(SeededSource(2), peer="officer")
    purpose = '[purposes.quality]\nlegal_basis = "Art. 6(1)(e) GDPR"\nretention = "10 years"\n'
    policy = wards / "policy.toml"
    policy.write_text(f'officer = "{key_text(officer.public)}"\n{purpose}')
    wanted = experiment(wards)
    given = approve(wanted, read_policy(policy), officer, peers=[], purpose="quality", today=NOW.date())
    write_approval(given, policy)
    run(wards)
    assert (runs(wards)[0].purpose, runs(wards)[0].approver) == ("quality", key_text(officer.public))
    assert runs(wards)[0].experiment == given.digest


def test_a_tampered_account_stops_the_next_run(wards):
    run(wards)
    path = beside_file(wards / "peer0.csv")
    path.write_text(path.read_text().replace('"samples":40', '"samples":41'))
    with pytest.raises(InputError, match="line 1: the line does not fit its seal"):
        run(wards)


def test_a_shared_table_has_one_line_for_all_and_no_peers_to_tell_apart(wards):
    (wards / "all.csv").write_text("\n".join(["age,weight,smoke,low,note", *rows("peer0"), *rows("peer1")]))
    data = {"name": "csv", "options": {"path": str(wards / "all.csv"), "target": "low", "drop": ["note"]}}
    run(wards, data=data)
    run(wards, "topology.peers=3", data=data)
    assert [(each.peer, each.samples) for each in runs(wards, "all")] == [("", 80), ("", 80)]


def test_bundled_and_made_up_data_have_no_ledger(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("wine", "synthetic"):
        run(tmp_path, data={"name": name}, model="forest")
    assert [*tmp_path.iterdir()] == []


def test_a_simulation_checks_before_it_makes_a_folder_and_lists_before_totals_leave(wards):
    simulate(experiment(wards), baselines=False, began=NOW)
    assert len(runs(wards)) == 1
    with pytest.raises(InputError, match="peer3 takes part"):
        simulate(experiment(wards, "topology.peers=3"), folder=wards / "run", baselines=False)
    assert not (wards / "run").exists()


@pytest.mark.slow
def test_live_peers_list_the_run_as_the_simulation_does(wards):
    simulate(experiment(wards), baselines=False)
    asyncio.run(live(experiment(wards), baselines=False))
    one, other = runs(wards)
    assert (one.experiment, one.parts, one.samples) == (other.experiment, other.parts, other.samples)
    write(wards, "peer0", rows("peer0")[1:])
    with pytest.raises(InputError, match="differ in one person"):
        asyncio.run(live(experiment(wards), baselines=False))
    asyncio.run(live(experiment(wards), baselines=False, unaccounted=True))
    assert [bool(each.accepted) for each in runs(wards)] == [False, False, True]
    assert [bool(each.accepted) for each in runs(wards, "peer1")] == [False, False, False]


@pytest.mark.slow
def test_values_of_peers_pass_the_same_door(wards):
    valuation = pytest.importorskip("p2pfl.plugins.study.valuation").valuation
    fit = {"model": "forest"}
    valuation(plan(experiment(wards, "model.options.n_estimators=1", **fit)), now=NOW)
    write(wards, "peer0", rows("peer0")[1:])
    again = plan(experiment(wards, "model.options.n_estimators=1", **fit))
    with pytest.raises(InputError, match=r"(differ in|together show) one person"):
        valuation(again, now=NOW)
    valuation(again, unaccounted=True, now=NOW)
    assert runs(wards)[1].accepted


def test_scaling_shows_totals_too(wards):
    trained = {"model": "linear", "learning": {"algorithm": "fedavg"}, "privacy": {"mode": "none"}}
    run(wards, "data.scale=true", **trained)
    with pytest.raises(InputError, match="peer3 takes part in only one"):
        run(wards, "data.scale=true", "topology.peers=3", **trained)
    run(wards, "data.scale=false", "topology.peers=3", **trained)  # shows no total


def test_private_runs_are_listed_with_their_epsilon_and_not_compared(wards):
    bounds = {"age": [10, 60], "weight": [30, 150]}
    private = {
        "model": "private_description",
        "privacy": {"mode": "pairwise", "mask_graph": "complete", "noise": 2.0},
    }
    set_ = f"model.options.bounds={json.dumps(bounds)}".replace('":', '" =')
    run(wards, set_, **private)
    write(wards, "peer0", rows("peer0")[1:])
    run(wards, set_, **private)
    (one, other) = runs(wards)
    assert one.epsilon == pytest.approx(1.0848640131717289)
    assert (one.parts, one.rows, other.exact) == ({}, "", False)


def test_a_check_writes_nothing(wards):
    made = plan(experiment(wards))
    check_runs(made, made.federation.peers, now=NOW)
    assert not beside_file(wards / "peer0.csv").exists()
