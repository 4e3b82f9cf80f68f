"""Where a peer that comes back finds its run."""

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from p2pfl.cli import folders
from p2pfl.core.errors import InputError
from p2pfl.experiment import read
from p2pfl.experiment.file.reading import write
from p2pfl.results import Run

CLINIC = read({"name": "clinic", "rounds": 3})


def begun(place, name, experiment=CLINIC):
    folder = place / name
    folder.mkdir()
    (folder / "experiment.toml").write_text(write(experiment))
    return folder


@pytest.fixture
def stopped(monkeypatch):
    """Stop the clock that directories are named by."""
    monkeypatch.setattr(time, "strftime", lambda _: "20260101-000000")


@pytest.mark.usefixtures("stopped")
def test_runs_that_start_in_the_same_second_get_directories_of_their_own(tmp_path):
    together = Barrier(8)

    def start(_):
        together.wait()
        return [folders.new(str(tmp_path / "runs"), "clinic", suffix="ada") for _ in range(4)]

    with ThreadPoolExecutor(8) as pool:
        made = [folder.name for each in pool.map(start, range(8)) for folder in each]
    stem = "clinic-20260101-000000-ada"
    assert sorted(made) == sorted([stem, *(f"{stem}.{number}" for number in range(2, 33))])
    assert sorted(made) == sorted(each.name for each in (tmp_path / "runs").iterdir())


@pytest.mark.usefixtures("stopped")
def test_a_run_that_starts_in_the_second_of_another_is_kept_beside_it(p2pfl, place):
    for _ in range(2):
        assert p2pfl("simulate", "small.toml", "--no-baselines").status == 0
    names = sorted(each.name for each in (place / "runs").iterdir())
    assert names == ["small-20260101-000000", "small-20260101-000000.2"]
    assert all((place / "runs" / name / "summary.json").exists() for name in names)


def test_a_command_that_fails_before_it_starts_leaves_no_directory(p2pfl, place):
    said = p2pfl("run", "small.toml", "--broker", "mqtt://127.0.0.1:1", "--set", "transport.outage=0")
    assert said.status == 2
    assert [*(place / "runs").iterdir()] == []


@pytest.mark.parametrize(
    "other",
    [
        "clinic-north-20260101-000000-ada",
        "clinic-20260101-000000-not-ada",
        "clinic-20260101-000000-ada-lovelace",
        "clinic-20260101-000000",
        "clinic-20260101-000000-ada-audit",
        "clinic-20260101-000000-ada-17",
    ],
)
def test_the_run_of_another_experiment_or_peer_is_not_taken_for_its_own(other, tmp_path):
    begun(tmp_path, other)
    assert folders.last(str(tmp_path), CLINIC, peer="ada") is None
    own = begun(tmp_path, "clinic-20250101-000000-ada")
    assert folders.last(str(tmp_path), CLINIC, peer="ada") == own


def test_the_second_run_of_one_second_is_found(tmp_path):
    begun(tmp_path, "clinic-20260101-000000-ada")
    second = begun(tmp_path, "clinic-20260101-000000-ada.4711")
    assert folders.last(str(tmp_path), CLINIC, peer="ada") == second


def test_a_run_of_the_same_name_and_other_settings_is_refused(tmp_path):
    begun(tmp_path, "clinic-20260101-000000-ada", read({"name": "clinic", "rounds": 4}))
    with pytest.raises(InputError, match="rounds differs from"):
        folders.last(str(tmp_path), CLINIC, peer="ada")


def test_a_run_that_began_with_a_model_is_not_that_of_a_file_without_one_nor_the_other_way_round(tmp_path):
    (tmp_path / "ada.safetensors").write_bytes(b"")
    later = read(CLINIC, changes=[f"model.pretrained={tmp_path}/ada.safetensors"])
    for number, (first, second) in enumerate([(CLINIC, later), (later, CLINIC)]):
        (tmp_path / str(number)).mkdir()
        begun(tmp_path / str(number), "clinic-20260101-000000-ada", first)
        with pytest.raises(InputError, match=r"^model\.pretrained differs from"):
            folders.last(str(tmp_path / str(number)), second, peer="ada")


def test_a_run_that_has_ended_is_found_and_known_to_have_ended(tmp_path):
    own = begun(tmp_path, "clinic-20260101-000000-ada")
    assert not folders.has_ended(own)
    (own / "summary.json").write_text("{}")
    assert folders.has_ended(own)
    assert folders.last(str(tmp_path), CLINIC, peer="ada") == own


@pytest.mark.parametrize("size", [0, 1])
def test_a_run_whose_experiment_was_emptied_is_not_gone_on_with_as_another(tmp_path, size):
    path = begun(tmp_path, "clinic-20260101-000000-ada") / "experiment.toml"
    path.write_text("\n" * size)
    with pytest.raises(InputError, match=r"was cut off; restore it from a copy"):
        folders.read_experiment(path.parent)


def test_a_run_whose_experiment_was_cut_anywhere_is_not_gone_on_with_as_another(tmp_path):
    path = begun(tmp_path, "clinic-20260101-000000-ada") / "experiment.toml"
    text = path.read_text()
    assert folders.read_experiment(path.parent) == CLINIC
    for place in range(0, len(text.rstrip()), 37):
        path.write_text(text[:place])
        with pytest.raises(InputError) as caught:
            folders.read_experiment(path.parent)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_folder_in_which_nothing_was_begun_is_passed_over(tmp_path):
    own = begun(tmp_path, "clinic-20250101-000000-ada")
    (tmp_path / "clinic-20260101-000000-ada").mkdir()
    assert folders.last(str(tmp_path), CLINIC, peer="ada") == own


MOVED = """
name = "clinic"
[topology]
kind = "plant.edges"
[data]
name = "table"
options = { path = "{peer}.csv", target = "y" }
[privacy]
mode = "pairwise"
[telemetry]
share = "scores"
observers = "observers.toml"
[trust]
keys = "keys"
roster = "roster.toml"
"""


def disk(place, name, text=MOVED):
    """A folder with an experiment and the files that it names."""
    folder = place / name
    folder.mkdir()
    for file, content in {
        "clinic.toml": text,
        "plant.edges": "ada bob\nbob cy\ncy ada",
        "ada.csv": "y\n1\n",
        "roster.toml": "[peers]\n",
        "observers.toml": "[peers]\n",
    }.items():
        (folder / file).write_text(content)
    return folder


def test_a_run_goes_on_after_its_folder_has_moved_to_another_disk(tmp_path):
    card = disk(tmp_path, "card")
    (card / "runs").mkdir()
    begun(card / "runs", "clinic-20260101-000000-ada", read(card / "clinic.toml"))
    card.rename(tmp_path / "ssd")
    moved = read(tmp_path / "ssd" / "clinic.toml")
    own = folders.last(str(tmp_path / "ssd" / "runs"), moved, peer="ada")
    assert own == tmp_path / "ssd" / "runs" / "clinic-20260101-000000-ada"


RUN = "clinic-20260101-000000-ada"
FILES = ("plant.edges", "{peer}.csv", "observers.toml", "keys", "roster.toml")


def named(experiment):
    """Return the paths that an experiment of MOVED names."""
    trust = experiment.trust
    return (
        experiment.topology.kind,
        experiment.data.options["path"],
        experiment.telemetry.observers,
        trust.keys,
        trust.roster,
    )


def test_what_a_run_names_moves_with_the_folder_of_its_experiment(tmp_path):
    card = disk(tmp_path, "card")
    (card / "keys").mkdir()
    Run(read(card / "clinic.toml"), folder=card / "runs" / RUN)
    card.rename(tmp_path / "ssd")
    kept = folders.read_experiment(tmp_path / "ssd" / "runs" / RUN)
    assert named(kept) == tuple(f"{tmp_path}/ssd/{file}" for file in FILES)
    Run(kept, folder=tmp_path / "ssd" / "runs" / f"{RUN}.2")
    (tmp_path / "ssd").rename(tmp_path / "nvme")
    for run in (RUN, f"{RUN}.2"):
        kept = folders.read_experiment(tmp_path / "nvme" / "runs" / run)
        assert named(kept) == tuple(f"{tmp_path}/nvme/{file}" for file in FILES)


def test_a_copied_run_names_the_files_of_its_copy_and_what_was_left_behind_where_it_is(tmp_path):
    card, place = disk(tmp_path, "card"), tmp_path / "ssd" / "runs" / RUN
    (card / "keys").mkdir()
    Run(read(card / "clinic.toml"), folder=card / "runs" / RUN)
    shutil.copytree(card, tmp_path / "ssd")
    (tmp_path / "ssd" / "plant.edges").unlink()
    assert named(folders.read_experiment(place)) == (
        f"{card}/plant.edges",
        *(f"{tmp_path}/ssd/{file}" for file in FILES[1:]),
    )


def test_a_run_that_moves_alone_names_the_files_where_they_are(tmp_path):
    card = disk(tmp_path, "card")
    Run(read(card / "clinic.toml"), folder=card / "runs" / RUN)
    (tmp_path / "archive" / "2026").mkdir(parents=True)
    (card / "runs" / RUN).rename(tmp_path / "archive" / "2026" / RUN)
    kept = folders.read_experiment(tmp_path / "archive" / "2026" / RUN)
    assert named(kept) == tuple(f"{card}/{file}" for file in FILES)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("{peer}.csv", "ada.csv", "data.options"),
        ("roster.toml", "observers.toml", "trust.roster"),
        ('kind = "plant.edges"', 'kind = "ring"\npeers = 3', "topology.kind"),
    ],
)
def test_a_run_of_other_files_is_another_run_wherever_it_is(tmp_path, old, new, named):
    card, ssd = disk(tmp_path, "card"), disk(tmp_path, "ssd", MOVED.replace(old, new))
    begun(ssd, "clinic-20260101-000000-ada", read(card / "clinic.toml"))
    with pytest.raises(InputError, match=rf"{named}.* differs from"):
        folders.last(str(ssd), read(ssd / "clinic.toml"), peer="ada")


def test_a_run_without_the_account_of_its_budget_does_not_go_on(tmp_path):
    private = 'mode = "independent"\nepsilon = 2.0\nbudget = "spent.jsonl"\nadjacency = "replace"'
    card, ssd = (disk(tmp_path, each, MOVED.replace('mode = "pairwise"', private)) for each in ("card", "ssd"))
    begun(ssd, "clinic-20260101-000000-ada", read(card / "clinic.toml"))
    with pytest.raises(InputError, match=r"ssd/spent\.jsonl does not exist, .* in .*card/spent\.jsonl; move that file"):
        folders.last(str(ssd), read(ssd / "clinic.toml"), peer="ada")
    (ssd / "spent.jsonl").touch()
    assert folders.last(str(ssd), read(ssd / "clinic.toml"), peer="ada")
