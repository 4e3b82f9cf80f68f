import base64
import io
import os
import re
from dataclasses import replace

import builds
import matplotlib.image
import numpy as np
import pytest

from p2pfl.experiment import plan, read
from p2pfl.plugins.audit import audit_command
from p2pfl.plugins.audit.audit import Effort, audit
from p2pfl.plugins.audit.audit_page import audit_page
from p2pfl.plugins.audit.embedded_pictures import uri
from p2pfl.plugins.audit.words import lessons, verdict

LITTLE = Effort(trials=2000, canaries=100, rounds=1, shadows=2, samples=2, iterations=5, keys=100, live=0)


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
    assert not re.search(r"https?://|<script|<link|src=\"(?!data:image/png)", text)
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
def test_no_sample_and_no_reconstruction_is_in_the_page_unless_it_is_asked_for(found, tmp_path):
    pictures = [uri(each) for each in _scaled(found.inversions.truth, found.inversions.truth)]
    pictures += [uri(each) for one in found.inversions.found for each in _scaled(one.pictures, found.inversions.truth)]
    assert all(picture in audit_page(found, samples=True) for picture in pictures)
    umask = os.umask(0)
    try:
        audit_command.keep(found, tmp_path, samples=False)
    finally:
        os.umask(umask)
    text = (tmp_path / "audit.html").read_text()
    assert "data:image" not in text
    assert "--samples shows them" in text
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def _scaled(pictures, truth):
    """Return pictures on the scale of the samples, as the page shows them."""
    low, high = float(truth.min()), float(truth.max())
    return np.clip((pictures - low) / max(high - low, 1e-12), 0.0, 1.0)


@pytest.mark.slow
def test_what_is_broken_is_the_first_that_the_page_says(found):
    wrong = replace(found, games=(replace(found.games[0], accounted=0.0),))
    assert verdict(found) == "No attack saw more than the accountant allows."
    assert verdict(wrong) == "1 claim of this build is broken."
    assert "MORE THAN THE ACCOUNTANT ALLOWS" in audit_page(wrong)
    assert audit_page(wrong).index('class="bad"') < audit_page(wrong).index("What each observer")


@pytest.mark.parametrize("shape", [(8, 6), (1, 8, 6), (3, 8, 6), (13,)])
def test_a_picture_reads_back_as_it_was(shape):
    sample = np.random.default_rng(0).random(shape)
    data = base64.b64decode(uri(sample).partition(",")[2])
    shown = matplotlib.image.imread(io.BytesIO(data), format="png")  # [H, W] or [H, W, 3]
    expected = np.moveaxis(sample, 0, -1) if shape[0] == 3 else sample.reshape(-1, shape[-1])
    np.testing.assert_allclose(shown, expected, atol=0.5 / 255 + 1e-6)
