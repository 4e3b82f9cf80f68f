"""A newer checkpoint replaces the model as a whole, and a bad file replaces nothing."""

import asyncio
import os
import shutil

import pytest
import safetensors

from p2pfl.core.errors import InputError
from p2pfl.plugins.serve.newest_model import find_model
from p2pfl.plugins.serve.served_model import RequestError
from p2pfl.results.saved_models import model_file as model_file_of


def write(path, data):
    """Replace a file as a peer does."""
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(data)
    part.replace(path)


def of_round(data, round):
    """Return the file of a model with the number of another round."""
    assert data.count(b'"round":"3"') == 1
    return data.replace(b'"round":"3"', f'"round":"{round}"'.encode())


@pytest.fixture
def place(tmp_path, model_file):
    """A copy of the model."""
    return shutil.copy(model_file, tmp_path / "peer0.safetensors")


async def test_a_newer_checkpoint_replaces_the_model(place, following):
    newest = following(place)
    await newest.look()
    first = newest.take()
    await newest.look()
    assert newest.take() is first
    write(place, of_round(place.read_bytes(), 9))
    await newest.look()
    assert (first.round, newest.take().round) == (3, 9)


@pytest.mark.parametrize("cut", [0, 100, -8])
async def test_a_torn_file_never_replaces_a_good_one_and_is_reported_once(place, following, notes, cut):
    newest = following(place)
    await newest.look()
    good, data = newest.take(), place.read_bytes()
    place.write_bytes(data[:cut])
    await newest.look()
    await newest.look()
    assert newest.take() is good
    assert len(notes) == 1
    assert notes[0].endswith("; the model before it answers on")
    write(place, of_round(data, 7))
    await newest.look()
    assert newest.take().round == 7


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ((b'"round":"3"', b'"round":"%s"' % (b"1" * 5000)), "names a round that is no number"),
        ((b'"round":"3"', '"round":"\u0663"'.encode()), "names a round that is no number"),
        (
            (rb'"unknown\": null, \"integer\": true', rb'"unknown\": \"x\", \"integer\": true'),
            'contradicts itself on column "age"',
        ),
    ],
    ids=["long round", "other digits", "unknown level"],
)
async def test_a_damaged_description_never_replaces_a_good_one(place, following, notes, change, sentence):
    old, new = change
    newest = following(place)
    await newest.look()
    good, data = newest.take(), place.read_bytes()
    assert data.count(old) == 1
    header = data[8 : 8 + int.from_bytes(data[:8], "little")]
    changed = header.replace(old, new)
    write(place, len(changed).to_bytes(8, "little") + changed + data[8 + len(header) :])
    await newest.look()
    assert newest.take() is good
    assert len(notes) == 1
    assert sentence in notes[0]


async def test_a_file_that_a_library_fails_on_is_a_notice_that_names_the_error(place, following, notes, monkeypatch):
    newest = following(place)
    await newest.look()
    good = newest.take()

    def fail(*_, **__):
        raise ZeroDivisionError("of a library")

    with monkeypatch.context() as patched:
        patched.setattr("p2pfl.plugins.serve.served_model.load_bytes", fail)
        write(place, of_round(place.read_bytes(), 4))
        await newest.look()
    assert newest.take() is good
    assert len(notes) == 1
    assert "cannot be used (ZeroDivisionError: of a library)" in notes[0]
    write(place, of_round(place.read_bytes().replace(b'"round":"4"', b'"round":"3"'), 5))
    await newest.look()
    assert newest.take().round == 5


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
async def test_a_diverged_model_never_replaces_a_good_one(place, following, notes, value):
    newest = following(place)
    await newest.look()
    good = newest.take()
    with safetensors.safe_open(place, "pt") as file:
        about, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    next(iter(tensors.values())).view(-1)[0] = value
    write(place, model_file_of(tensors, about))
    await newest.look()
    assert newest.take() is good
    assert [note.partition(";")[0] for note in notes] == [
        "peer0.safetensors has parameters that are not finite numbers"
    ]


async def test_a_model_of_other_classes_takes_over_with_a_notice(place, following, notes):
    newest = following(place)
    await newest.look()
    data = place.read_bytes()
    write(place, of_round(data, 4))
    await newest.look()
    assert notes == []
    assert data.count(rb"\"ill\"") == 1
    write(place, data.replace(rb"\"ill\"", rb"\"bad\""))
    await newest.look()
    assert newest.take().describe()["classes"] == ["well", "bad"]
    assert notes == ["the newest model has other columns, classes or another task than the one before it"]


async def test_a_change_of_the_file_in_place_does_not_reach_the_model(place, following):
    newest = following(place)
    await newest.look()
    model = newest.take()
    request = b'[{"age": 63, "sex": "f", "weight": 70000, "ward": "east"}]'
    before = model.answer(request)
    os.truncate(place, 10)
    assert model.answer(request) == before


async def test_before_the_first_round_a_request_is_told_to_wait(tmp_path, place, following, notes):
    (tmp_path / "later").mkdir()
    newest = following(tmp_path / "later" / "peer0.safetensors")
    await newest.look()
    with pytest.raises(RequestError, match="no peer has written a model yet") as refused:
        newest.take()
    assert refused.value.code == 503
    shutil.move(place, newest.place)
    await newest.look()
    assert newest.take().round == 3
    assert notes == []


async def test_requests_while_models_change_see_one_model_each(place, following):
    newest = following(place)
    data = place.read_bytes()
    await newest.look()

    async def ask():
        model = newest.take()
        answer = await asyncio.to_thread(model.answer, b'[{"age": 63, "sex": "f", "weight": 7e4, "ward": "east"}]')
        assert answer["round"] == model.round
        return answer["round"]

    seen = set()
    for round in range(4, 10):
        write(place, of_round(data, round))
        rounds = await asyncio.gather(ask(), newest.look(), ask())
        seen |= {rounds[0], rounds[2], (await ask())}
    assert seen == {3, *range(4, 10)}


def run_directory(place, name, *, peers, model, changed):
    (place / name / "peers").mkdir(parents=True)
    (place / name / "experiment.toml").write_text("")
    os.utime(place / name / "experiment.toml", (changed, changed))
    for peer in peers:
        shutil.copy(model, place / name / "peers" / f"{peer}.safetensors")


def test_of_a_folder_of_runs_the_newest_with_a_model_counts(tmp_path, model_file):
    run_directory(tmp_path, "a", peers=["ada"], model=model_file, changed=1)
    run_directory(tmp_path, "b", peers=["ada"], model=model_file, changed=2)
    run_directory(tmp_path, "c", peers=[], model=model_file, changed=3)
    assert find_model(tmp_path) == tmp_path / "b" / "peers" / "ada.safetensors"
    assert find_model(tmp_path / "a") == tmp_path / "a" / "peers" / "ada.safetensors"
    assert find_model(tmp_path / "c") is None
    assert find_model(tmp_path, name="bob") is None


def test_a_run_of_several_peers_asks_which(tmp_path, model_file):
    run_directory(tmp_path, "a", peers=["ada", "bob", "bob.best"], model=model_file, changed=1)
    assert find_model(tmp_path / "a", name="bob").name == "bob.safetensors"
    with pytest.raises(InputError, match="has the models of 2 peers; choose one with --name, such as ada"):
        find_model(tmp_path / "a")
    with pytest.raises(InputError, match="is the model of one peer; leave out --name"):
        find_model(tmp_path / "a" / "peers" / "ada.safetensors", name="bob")
    with pytest.raises(InputError, match="does not exist"):
        find_model(tmp_path / "missing")
    with pytest.raises(InputError, match="does not exist"):
        find_model(tmp_path / "missing" / "ada.safetensors")
