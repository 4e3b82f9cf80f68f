"""An officer's approval holds for one experiment as it is, and nobody else can give it."""

import datetime as dt
import shutil
import tomllib

import msgspec
import pytest
import tomli_w

from p2pfl.core.errors import InputError
from p2pfl.experiment import read, write
from p2pfl.experiment.approval import (
    DOMAIN,
    approve,
    approver,
    consent_problems,
    experiment_digest,
    write_approval,
)
from p2pfl.experiment.site_policy import read_policy
from p2pfl.privacy.keys import Identity, Roster, SeededSource, key_text, sign_text, signed_fields

OFFICER, OPERATOR = (Identity.generate(SeededSource(7), peer=name) for name in ("officer", "operator"))
TODAY = dt.date(2026, 11, 27)
POLICY = f"""
officer = "{key_text(OFFICER.public)}"
models = ["glm"]

[purposes.care]
legal_basis = "Art. 6(1)(e), 9(2)(j) GDPR"
retention = "10 years"
"""
EXPERIMENT = """
name = "ward"
[data]
name = "table"
[data.options]
path = "{peer}.csv"
target = "low"
columns = { age = "number", low = [0, 1] }
[model]
name = "glm"
options = { family = "binomial" }
[privacy]
mode = "pairwise"
[trust]
roster = "roster.toml"
"""


@pytest.fixture
def ward(tmp_path):
    """The folder of a site with its table, its policy, a roster and an experiment."""
    folder = tmp_path / "ward"
    folder.mkdir()
    (folder / "north.csv").write_text("age,low\n31,0\n")
    (folder / "policy.toml").write_text(POLICY)
    (folder / "ward.toml").write_text(EXPERIMENT)
    Roster({"north": OPERATOR.public}).write(folder / "roster.toml")
    return folder


def signed(folder, *, key=OFFICER):
    approval = approve(
        read(folder / "ward.toml"),
        read_policy(folder / "policy.toml"),
        key,
        peers=["north"],
        purpose="care",
        today=TODAY,
    )
    return write_approval(approval, folder / "policy.toml")


def problems(folder, changes=(), today=TODAY):
    return consent_problems(read(folder / "ward.toml", changes=changes), ["north"], today=today)


def test_a_run_needs_the_approval_of_the_officer_that_the_policy_names(ward):
    lacking = problems(ward)
    assert len(lacking) == 1
    assert "asks for an approval of this experiment as it is, and there is none" in lacking[0]
    assert approver(read(ward / "ward.toml"), "north") is None
    path = signed(ward)
    assert problems(ward) == []
    assert approver(read(ward / "ward.toml"), "north") == key_text(OFFICER.public)
    path.unlink()
    assert problems(ward) == lacking


@pytest.mark.parametrize(
    "change",
    ["rounds=11", "data.options.columns.age=integer", "privacy.mode=none", "data.options.path=WARD/{peer}-b.csv"],
)
def test_an_approval_is_of_the_experiment_as_it_is(ward, change):
    signed(ward)
    (ward / "north-b.csv").write_text("age,low\n31,0\n")
    assert "there is none" in problems(ward, [change.replace("WARD", str(ward))])[0]


ALONE = ("topology.kind=ring", "topology.peers=1", "privacy.mode=none")


@pytest.mark.parametrize(
    ("more", "needed"), [((), False), (("telemetry.share=scores",), True), (("topology.kind=complete",), True)]
)
def test_one_peer_on_its_own_machine_needs_no_approval(ward, more, needed):
    assert bool(problems(ward, [*ALONE, *more])) == needed
    assert problems(ward, [*ALONE, "model.name=cox"])[0].endswith(
        'allows the models glm, not "cox"; choose one of these'
    )


def test_an_approval_is_of_the_roster_as_it_is(ward):
    signed(ward)
    Roster({"north": OPERATOR.public, "eve": OFFICER.public}).write(ward / "roster.toml")
    assert "there is none" in problems(ward)[0]


def test_an_approval_waits_for_the_files_that_it_covers(ward):
    (ward / "roster.toml").unlink()
    with pytest.raises(InputError, match=r"trust\.roster: there is no file .*roster\.toml yet, and an approval covers"):
        signed(ward)


def test_what_a_site_sets_for_itself_needs_no_other_approval(ward):
    signed(ward)
    assert problems(ward, ["transport.broker=mqtts://broker:8883", "trust.keys=keys"]) == []


def test_a_digest_is_the_same_in_another_folder_and_of_the_resolved_file(ward, tmp_path):
    before = experiment_digest(read(ward / "ward.toml"))
    moved = shutil.copytree(ward, tmp_path / "moved")
    assert experiment_digest(read(moved / "ward.toml")) == before
    (moved / "resolved.toml").write_text(write(read(moved / "ward.toml")))
    assert experiment_digest(read(moved / "resolved.toml")) == before


@pytest.mark.parametrize("folder", ["peers", "models"])
def test_no_digest_is_of_a_run_that_begins_with_its_own_models(tmp_path, folder):
    file = tmp_path / "experiment.toml"
    file.write_text(f'[model]\npretrained = "{tmp_path}/{folder}/{{peer}}.safetensors"\n')
    with pytest.raises(InputError, match="begins with its own models"):
        experiment_digest(read(file))


def test_nobody_but_the_officer_can_approve(ward):
    with pytest.raises(InputError, match="names another officer"):
        signed(ward, key=OPERATOR)
    policy = POLICY.replace(key_text(OFFICER.public), key_text(OPERATOR.public))
    own = ward.parent / "own"
    shutil.copytree(ward, own)
    (own / "policy.toml").write_text(policy)
    forged = signed(own, key=OPERATOR)
    (ward / "approvals").mkdir()
    shutil.copy(forged, ward / "approvals")
    with pytest.raises(InputError, match="is not signed by the officer that"):
        problems(ward)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("purpose", "research"),
        ("retention", "for ever"),
        ("digest", "0" * 64),
        ("date", dt.date(2027, 1, 1)),
        ("signature", "AAAA"),
        ("signature", "no base64"),
    ],
)
def test_a_changed_approval_is_refused(ward, field, value):
    path = signed(ward)
    approval = msgspec.toml.decode(path.read_bytes())
    path.write_text(tomli_w.dumps(approval | {field: value}))
    with pytest.raises(InputError, match="is not signed by the officer"):
        problems(ward)


def test_an_approval_keeps_its_signature_where_versions_have_other_fields(ward):
    path = signed(ward)
    written = tomllib.loads(path.read_text())
    earlier = {key: value for key, value in written.items() if key != "columns"}
    for table in (earlier, written | {"later": {"day": dt.date(2030, 1, 2)}}):
        message = signed_fields(msgspec.to_builtins(table))
        path.write_text(tomli_w.dumps(table | {"signature": sign_text(OFFICER, message, domain=DOMAIN)}))
        assert problems(ward) == []
    path.write_text(path.read_text().replace("2030-01-02", "2031-01-02"))
    with pytest.raises(InputError, match="is not signed by the officer"):
        problems(ward)
    path.write_text(tomli_w.dumps({key: value for key, value in written.items() if key != "purpose"}))
    with pytest.raises(InputError, match="purpose"):
        problems(ward)


def test_a_purpose_is_one_of_the_policy_and_ends_with_it(ward):
    with pytest.raises(InputError, match='does not list the purpose "profit" but care'):
        approve(
            read(ward / "ward.toml"),
            read_policy(ward / "policy.toml"),
            OFFICER,
            peers=["north"],
            purpose="profit",
            today=TODAY,
        )
    signed(ward)
    (ward / "policy.toml").write_text(POLICY.replace("purposes.care", "purposes.audit"))
    assert 'lists the purpose "care" of the approval no more' in problems(ward)[0]


def test_a_policy_refuses_what_its_officer_has_approved_before(ward):
    signed(ward)
    (ward / "policy.toml").write_text(POLICY.replace('"glm"', '"cox"'))
    assert problems(ward) == [f'{ward / "policy.toml"} allows the models cox, not "glm"; choose one of these']


def test_an_approval_holds_for_code_as_it_is(ward, monkeypatch):
    monkeypatch.syspath_prepend(ward)
    (ward / "ward_loss.py").write_text("A = 1\n")
    experiment = read({"data": {"options": {}}})
    named = msgspec.structs.replace(experiment, model=msgspec.structs.replace(experiment.model, name="ward_loss:Net"))
    before = experiment_digest(named)
    (ward / "ward_loss.py").write_text("A = 2\n")
    assert experiment_digest(named) != before
