"""The page to sign before a run states purpose, columns, observers and digests, and what stands against the run."""

import re

import pytest

from p2pfl.experiment import read
from p2pfl.experiment.approval import experiment_digest
from p2pfl.privacy.keys import Identity, SeededSource, key_text

pytestmark = pytest.mark.plugin("exact")

OFFICER = Identity.generate(SeededSource(7), peer="officer")
WARD = """
name = "ward"
[topology]
kind = "complete"
peers = ["north", "south", "east"]
[data]
name = "table"
[data.options]
path = "{peer}.csv"
target = "low"
columns = { age = "number", smoke = ["no", "yes"], low = [0, 1] }
[model]
name = "glm"
options = { family = "binomial" }
[privacy]
mode = "pairwise"
"""
POLICY = f"""
officer = "{key_text(OFFICER.public)}"
[purposes.care]
legal_basis = "Art. 9(2)(h) GDPR"
retention = "10 years"
"""


@pytest.fixture
def page(p2pfl, place):
    """A function that writes the page and returns its text."""
    (place / "ward.toml").write_text(WARD)
    rows = (f"N{row},{18 + row % 23},{('no', 'yes')[row % 3 == 0]},{int(row % 7 < 3)}" for row in range(60))
    (place / "north.csv").write_text("\n".join(["patient,age,smoke,low", *rows]))

    def write():
        said = p2pfl("explain", "ward.toml", "--name", "north", "--html", "page.html")
        assert said.status == 0, said.err
        assert (place / "page.html").stat().st_mode & 0o777 == 0o600
        return re.sub(
            r"\s+", " ", re.sub("<style.*?</style>|<[^>]*>", " ", (place / "page.html").read_text(), flags=re.DOTALL)
        )

    return write


def test_a_page_lists_columns_observers_and_digest_and_ends_in_signatures(page, place):
    text = page()
    for stated in ("Sign-off before the run: ward, data of north", "age number feature", "smoke no, yes feature"):
        assert stated in text
    assert "low 0, 1 target" in text
    assert "every peer, by subtraction" in text
    assert experiment_digest(read(place / "ward.toml")) in text
    assert text.count("read and accepted: name") == 2
    assert "legal basis not stated" in text
    assert "There is no policy.toml beside the data" in text


def test_a_page_has_the_column_of_persons_and_the_least_number_of_people_of_the_policy(page, place):
    (place / "ward.toml").write_text(WARD.replace('target = "low"', 'target = "low"\nkey = "patient"'))
    assert "patient text names a person" in page()
    assert "stops or merges those of 1 to 4 people" in page()
    (place / "policy.toml").write_text(f"least = 12\n{POLICY}")
    assert "stops or merges those of 1 to 11 people" in page()


def test_a_page_has_the_purpose_of_the_approval_or_those_of_the_policy(page, place, p2pfl):
    (place / "policy.toml").write_text(POLICY)
    text = page()
    assert "The officer has not approved it yet" in text
    assert "care Art. 9(2)(h) GDPR 10 years" in text
    OFFICER.save(place / "officer.pem")
    said = p2pfl("approve", "ward.toml", "--name", "north", "--key", "officer.pem", "--purpose", "care")
    assert said.status == 0, said.err
    text = page()
    assert "The officer has not approved it yet" not in text
    assert f"with the key {OFFICER.fingerprint}" in text
    (place / "policy.toml").write_text(POLICY.replace("[purposes", 'models = ["cox"]\n[purposes'))
    assert "The policy allows the models cox" in page()
