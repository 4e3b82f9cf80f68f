"""Where a peer that comes back finds its run."""

import pytest

from p2pfl.cli import folders
from p2pfl.errors import InputError
from p2pfl.experiment import read
from p2pfl.experiment.reading import write

CLINIC = read({"name": "clinic", "rounds": 3})


def begun(place, name, experiment=CLINIC):
    folder = place / name
    folder.mkdir()
    (folder / "experiment.toml").write_text(write(experiment))
    return folder


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
    with pytest.raises(InputError, match="got another rounds"):
        folders.last(str(tmp_path), CLINIC, peer="ada")


def test_a_run_that_has_ended_is_not_gone_on_with(tmp_path):
    (begun(tmp_path, "clinic-20260101-000000-ada") / "summary.json").write_text("{}")
    with pytest.raises(InputError, match="which has ended"):
        folders.last(str(tmp_path), CLINIC, peer="ada")


@pytest.mark.parametrize("size", [0, 1])
def test_a_run_whose_experiment_was_emptied_is_not_gone_on_with_as_another(tmp_path, size):
    path = begun(tmp_path, "clinic-20260101-000000-ada") / "experiment.toml"
    path.write_text("\n" * size)
    with pytest.raises(InputError, match=r"every key, as the run has written it, got none from name on: the file was"):
        folders.interrupted(path.parent)


def test_a_run_whose_experiment_was_cut_anywhere_is_not_gone_on_with_as_another(tmp_path):
    path = begun(tmp_path, "clinic-20260101-000000-ada") / "experiment.toml"
    text = path.read_text()
    assert folders.interrupted(path.parent) == CLINIC
    for place in range(0, len(text.rstrip()), 37):
        path.write_text(text[:place])
        with pytest.raises(InputError) as caught:
            folders.interrupted(path.parent)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_folder_in_which_nothing_was_begun_is_passed_over(tmp_path):
    own = begun(tmp_path, "clinic-20250101-000000-ada")
    (tmp_path / "clinic-20260101-000000-ada").mkdir()
    assert folders.last(str(tmp_path), CLINIC, peer="ada") == own
