import os
import re
from dataclasses import replace

import builds
import pytest

from p2pfl.experiment import plan, read
from p2pfl.plugins.audit import audit_command
from p2pfl.plugins.audit.audit import Effort, audit
from p2pfl.plugins.audit.audit_page import audit_page, lessons, verdict

LITTLE = Effort(trials=2000, canaries=100, rounds=1, shadows=2, samples=2, keys=100, live=0)


@pytest.fixture(scope="module")
def found():
    privacy = {"mode": "pairwise", "clip": 1.0, "noise": 1.0, "mask": 4.0}
    table = {"topology": {"kind": "ring", "peers": 5}, "learning": {"device": "cpu"}, "privacy": privacy}
    found = audit(plan(read(table)), fresh=builds.fresh, effort=LITTLE)
    return replace(found, name="<five & friends>")


@pytest.mark.slow
def test_the_page_needs_nothing_but_itself(found):
    text = audit_page(found)
    assert text.startswith("<!doctype html>")
    assert not re.search(r"https?://|<script|<link|src=", text)
    assert "&lt;five &amp; friends&gt;" in text
    assert "<five" not in text
    for tag in ("table", "ul", "div", "body", "html"):
        assert text.count(f"<{tag}") == text.count(f"</{tag}>")


@pytest.mark.slow
def test_the_page_says_of_each_observer_what_he_could_learn_without_noise_and_with_it(found):
    assert [lesson.observer for lesson in lessons(found)] == [
        "any observer of unprotected updates",
        "any receiver of the mixed model",
        "broker",
        f"broker and one neighbour ({found.promises[1].colluders[0]})",
        "broker and everyone else",
    ]
    text = audit_page(found)
    for lesson in lessons(found):
        assert lesson.observer in text
    without, *_, everyone = lessons(found)
    assert any("comes back" in sentence for sentence in without.sentences)
    assert not any("comes back" in sentence for sentence in everyone.sentences)
    assert everyone.promised.startswith("at most mu 1 per release")


@pytest.mark.slow
def test_only_their_owner_reads_the_page_and_the_numbers(found, tmp_path):
    umask = os.umask(0)
    try:
        audit_command.keep(found, tmp_path)
    finally:
        os.umask(umask)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


@pytest.mark.slow
def test_what_is_broken_is_the_first_that_the_page_says(found):
    wrong = replace(found, games=(replace(found.games[0], accounted=0.0),))
    assert verdict(found) == "No attack saw more than the accountant allows."
    assert verdict(wrong) == "1 claim of this build is broken."
    assert "MORE THAN THE ACCOUNTANT ALLOWS" in audit_page(wrong)
    assert audit_page(wrong).index('class="bad"') < audit_page(wrong).index("What each observer")


@pytest.mark.slow
def test_an_audit_of_a_convolutional_network_searches_for_samples_by_their_gradients():
    table = {"topology": {"kind": "ring", "peers": 4}, "learning": {"device": "cpu"}, "model": {"name": "cnn"}}
    found = audit(plan(read(table)), fresh=builds.fresh, effort=replace(LITTLE, samples=1))
    assert {row["attack"] for row in found.results()["inversions"]} == {"search"}
    sentences = [sentence for lesson in lessons(found) for sentence in lesson.sentences]
    assert any("By a search with the gradient the one sample of a step comes back" in each for each in sentences)
    assert "<td>search</td>" in audit_page(found)
