"""A site's policy lies beside its data, is checked key by key, and names what it does not allow."""

import datetime as dt
import hashlib
from pathlib import Path

import msgspec
import pytest

from p2pfl.core.errors import InputError
from p2pfl.experiment import read
from p2pfl.experiment.file.own_code import code_digests
from p2pfl.experiment.site_policy import policy_paths, read_policy, refusals, stated_least
from p2pfl.privacy.keys import Identity, Roster, SeededSource, key_text

JANE = Identity.generate(SeededSource(7), peer="jane").public
TODAY = dt.date(2026, 11, 27)


@pytest.fixture
def ward(tmp_path):
    """A function that returns an experiment on the table of a ward, with changes."""
    (tmp_path / "ward").mkdir()
    (tmp_path / "ward" / "north.csv").write_text("age,low\n31,0\n")

    def make(**changes):
        options = {
            "path": str(tmp_path / "ward" / "{peer}.csv"),
            "target": "low",
            "columns": {"age": "number", "low": [0, 1]},
        }
        base = {
            "data": {"name": "table", "options": options},
            "model": {"name": "glm", "options": {"family": "binomial"}},
            "privacy": {"mode": "pairwise"},
        }
        return read(base | changes)

    return make


def policy_of(tmp_path, text):
    path = tmp_path / "ward" / "policy.toml"
    path.write_text(text)
    return read_policy(path)


def said(policy, experiment, today=TODAY):
    return [*refusals(policy, experiment, ["north"], today=today)]


def test_a_policy_is_found_beside_the_data_however_a_link_leads_to_them(tmp_path, ward):
    experiment = ward()
    assert policy_paths(experiment, ["north"]) == {}
    assert stated_least(experiment, "north") == 1
    policy_of(tmp_path, "least = 10")
    assert stated_least(experiment, "north") == 10
    (tmp_path / "south.csv").symlink_to(tmp_path / "ward" / "north.csv")
    options = {**experiment.data.options, "path": str(tmp_path / "{peer}.csv")}
    linked = ward(data={"name": "table", "options": options})
    assert policy_paths(linked, ["south"]) == {"south": tmp_path / "ward" / "policy.toml"}
    assert policy_paths(linked, ["north"]) == {}


def test_a_variable_names_the_policy_of_data_without_one_beside_them_and_replaces_none(tmp_path, ward, monkeypatch):
    policy_of(tmp_path, "least = 10")
    other = tmp_path / "site.toml"
    other.write_text("least = 12")
    monkeypatch.setenv("P2PFL_POLICY", str(other))
    assert stated_least(ward(), "north") == 10
    assert stated_least(read({}), "peer0") == 12
    (tmp_path / "copy.csv").write_bytes((tmp_path / "ward" / "north.csv").read_bytes())
    copied = {"name": "table", "options": {**ward().data.options, "path": str(tmp_path / "{peer}.csv")}}
    assert stated_least(ward(data=copied), "copy") == 12
    monkeypatch.setenv("P2PFL_POLICY", str(tmp_path / "missing.toml"))
    with pytest.raises(InputError, match=r"missing\.toml cannot be read"):
        stated_least(read({}), "peer0")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("lest = 3", 'unknown key "lest"; did you mean "least"?'),
        ("least = 0", "least is 0; set it to a whole number >= 1 and <= 1000"),
        ('until = "soon"', 'until is "soon"; set it to a date such as 2030-12-31'),
        (
            '[purposes.care]\nbasis = "x"',
            'unknown key "purposes.care.basis"; did you mean "purposes.care.legal_basis"?',
        ),
        ('[purposes.care]\nretention = "a"', "purposes.care needs legal_basis and retention; write both"),
        ('officer = "ed25519:aa"', "is not a key of the form"),
        ("least = ", "is not valid TOML"),
    ],
)
def test_a_wrong_policy_is_one_sentence_with_its_file(tmp_path, ward, text, sentence):
    del ward
    with pytest.raises(InputError) as caught:
        policy_of(tmp_path, text)
    assert str(tmp_path / "ward" / "policy.toml") in str(caught.value)
    assert sentence in str(caught.value)


def test_an_empty_policy_allows_everything_but_code(tmp_path, ward):
    empty = policy_of(tmp_path, "")
    assert said(empty, ward()) == []
    assert said(empty, ward(model={"name": "mlp"}, privacy={"mode": "none"})) == []
    shown = said(empty, read({"data": {"name": "antigravity:load"}}))
    assert shown == ['does not list the code "antigravity:load"; leave it out, or ask the officer to add its SHA-256']


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("until = 2026-11-26", "allows runs until 2026-11-26; ask the officer for a later date"),
        ('models = ["cox"]', 'allows the models cox, not "glm"; choose one of these'),
        ('columns = ["low"]', "does not allow the column age; leave it out"),
        ("columns = []", "does not allow the columns age, low; leave them out"),
    ],
)
def test_each_key_refuses_what_it_does_not_allow(tmp_path, ward, text, sentence):
    assert said(policy_of(tmp_path, text), ward()) == [sentence]


@pytest.mark.parametrize(
    "text", ["until = 2026-11-27", 'models = ["cox", "glm"]', 'columns = ["age", "low", "icd"]', "epsilon = 1.0"]
)
@pytest.mark.plugin("exact")
def test_each_key_admits_what_it_allows(tmp_path, ward, text):
    assert said(policy_of(tmp_path, text), ward()) == []


def test_the_column_of_persons_is_a_column_although_no_file_declares_it(tmp_path, ward):
    policy = policy_of(tmp_path, 'columns = ["age", "low"]')
    experiment = ward()
    data = msgspec.structs.replace(experiment.data, options={**experiment.data.options, "key": "patid"})
    assert said(policy, msgspec.structs.replace(experiment, data=data)) == [
        "does not allow the column patid; leave it out"
    ]


def test_an_epsilon_is_needed_of_all_models_but_exact_ones(tmp_path, ward):
    policy = policy_of(tmp_path, "epsilon = 2.0")
    private = {"mode": "pairwise", "epsilon": 3.0}
    assert said(policy, ward(model={"name": "linear"})) == ["asks for an epsilon of at most 2; set privacy.epsilon"]
    assert said(policy, ward(model={"name": "linear"}, privacy=private)) == [
        "allows privacy.epsilon = 2, not 3; lower it"
    ]
    assert said(policy, ward(model={"name": "linear"}, privacy=private | {"epsilon": 2.0})) == []


def test_observers_are_allowed_by_their_keys(tmp_path, ward):
    eve = Identity.generate(SeededSource(8), peer="eve").public
    Roster({"jane": JANE, "eve": eve}).write(tmp_path / "observers.toml")
    telemetry = {"share": "health", "observers": str(tmp_path / "observers.toml")}
    policy = policy_of(tmp_path, f'observers = ["{key_text(JANE)}"]')
    assert said(policy, ward(telemetry=telemetry)) == [
        f"does not allow the observer eve; remove them from {tmp_path / 'observers.toml'}"
    ]
    both = policy_of(tmp_path, f'observers = ["{key_text(JANE)}", "{key_text(eve)}"]')
    assert said(both, ward(telemetry=telemetry)) == []


def test_code_is_allowed_by_the_digest_of_what_it_imports(tmp_path, ward, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "ward_model.py").write_text("import ward_part\nraise SystemExit('nobody may import me')\n")
    (tmp_path / "ward_part.py").write_text("A = 1\n")
    table = {"model": {"name": "ward_model:Net"}}
    digests = code_digests(table)
    whole = hashlib.sha256()
    for name in ("ward_model.py", "ward_part.py"):
        content = (tmp_path / name).read_bytes()
        whole.update(f"{name}\0{len(content)}\0".encode() + content)
    assert digests == {"ward_model:Net": whole.hexdigest()}
    policy = policy_of(tmp_path, f'[code]\n"ward_model:Net" = "{digests["ward_model:Net"]}"')
    experiment = ward(model={"name": "mlp"}, privacy={"mode": "none"})
    named = type(experiment)(model=type(experiment.model)(name="ward_model:Net"), data=experiment.data)
    assert said(policy, named) == []
    (tmp_path / "ward_part.py").write_text("A = 2\n")
    assert said(policy, named) == [
        (
            f'lists other code for "ward_model:Net", which has the SHA-256 {code_digests(table)["ward_model:Net"]}; '
            "restore the file that the officer has read"
        )
    ]


def test_models_of_libraries_are_no_code_unless_a_file_has_the_name_of_the_library(tmp_path, monkeypatch):
    table = {"model": {"name": "timm:vit_tiny"}, "data": {"name": "subprocess:run"}}
    assert code_digests(table) == {"subprocess:run": None}
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "timm.py").write_text("")
    assert [*code_digests(table)] == ["subprocess:run", "timm:vit_tiny"]


def test_the_policy_of_the_page_for_officers_is_valid(tmp_path, ward):
    del ward
    page = (Path(__file__).parents[2] / "docs" / "consent.md").read_text()
    text = page.partition("```toml\n")[2].partition("```")[0].replace("ed25519:...", key_text(JANE))
    policy = policy_of(tmp_path, text)
    assert policy.least == 10
    assert all(getattr(policy, field) for field in policy.__struct_fields__ if field != "observers")
