"""The page in a real browser: what it shows, what it loads, and whether everybody can use it."""

import json
import os
from pathlib import Path

import pytest

from growing import PEERS, at, began, ended, waits
from p2pfl.experiment import read
from p2pfl.results.notices.kinds import LossRose, WaitEnded
from p2pfl.results.run import Run

pytestmark = pytest.mark.slow

AXE = Path(os.environ.get("P2PFL_AXE", "axe.min.js"))
"""axe-core of npm: ``npm pack axe-core``."""

PICTURES = os.environ.get("P2PFL_PICTURES")
"""Folder of the screenshots, ``docs`` to renew those of the documentation."""

READY = "document.querySelectorAll('#rows tr').length > 0 && document.querySelector('#chart canvas') !== null"
HEADLINE = "document.getElementById('headline').textContent"
WIDE = "document.documentElement.scrollWidth"
WINDOWS = {"wide": (1280, False), "dark": (1280, True), "phone": (400, False), "phone-dark": (400, True)}


DOCUMENTED = {"watch.png", "watch-phone.png"}
"""Screenshots that docs/watch.md shows."""


@pytest.fixture
def picture(tmp_path):
    """Return where a screenshot goes."""
    return lambda name: Path(PICTURES) / name if PICTURES and name in DOCUMENTED else tmp_path / name


@pytest.fixture
def scene(growing):
    """A run in which peer2 blocks two others, after the loss of one rose."""
    growing.log(*(began(peer) for peer in PEERS))
    growing.learn(6)
    alarm = LossRose(
        peer="peer0",
        round=3,
        before={"loss": 0.12, "accuracy": 0.96},
        now={"loss": 9.5, "accuracy": 0.41},
        best_round=2,
        best_file="peers/peer0.best.safetensors",
        time=at(8.5),
    )
    growing.log(alarm, waits("peer1", "peer2", seconds=13.2, round=6), waits("peer0", "peer1", seconds=13.5, round=6))
    growing.seconds = 36.0
    return growing


def shown(browser, address, **given):
    browser.open(address, **given)
    browser.until(READY)


def accessible(browser):
    """Return what axe-core finds."""
    if not AXE.is_file():
        pytest.skip("axe-core is not here: npm pack axe-core, and name axe.min.js with P2PFL_AXE")
    browser.run(AXE.read_text("utf-8") + "; 0")
    found = browser.run("axe.run().then((found) => JSON.stringify(found.violations))")
    return [(each["id"], [node["html"] for node in each["nodes"]]) for each in json.loads(found)]


@pytest.mark.usefixtures("scene")
def test_the_page_names_who_blocks_and_draws_who_waits(address, browser, picture):
    shown(browser, address())
    assert browser.run(HEADLINE) == (
        "peer2 blocks 2 peers: it has worked on round 7 for 24 s (usually 2.0 s); peer0 and peer1 wait for it, some "
        "through others, for 24 s."
    )
    assert browser.run("document.querySelectorAll('line.wait').length") == 2
    assert browser.run("document.querySelector('.node.blocker title').textContent") == "peer2"
    alerts = browser.run("document.getElementById('alerts').innerText")
    assert "accuracy 0.960 before, 0.410 now" in alerts
    assert "peer0 and peer1 wait for it" in alerts
    browser.picture(picture("watch.png"))


@pytest.mark.usefixtures("scene")
def test_the_ticks_of_an_axis_differ(address, browser):
    shown(browser, address())
    ticks = "import('/static/format.js').then((made) => made.ticks(%s).join())"
    assert browser.run(ticks % "[0.997, 0.9975, 0.998], 0.0005") == "0.9970,0.9975,0.9980"
    assert browser.run(ticks % "[0, 0.25, 0.5], 0.25") == "0.00,0.25,0.50"
    assert browser.run(ticks % "[0, 10, 20], 10") == "0,10,20"
    assert browser.run(ticks % "[0, 2e5, 4e5], 2e5") == "0,2.00e+5,4.00e+5"


def test_the_page_estimates_when_the_run_ends_unless_it_is_blocked(growing, address, browser):
    growing.log(*(began(peer) for peer in PEERS))
    growing.learn(6)
    growing.seconds = 12.5
    shown(browser, address())
    clock = r"/^00:0\d:\d\d, round 6 of 10%s$/.test(document.getElementById('clock').textContent)"
    browser.until(clock % ", about 8 s left")
    growing.log(waits("peer1", "peer2", seconds=13.5, round=6))
    growing.seconds = 36.0
    browser.until(clock % "")


def test_the_page_follows_the_run(scene, address, browser):
    shown(browser, address())
    scene.log(WaitEnded(peer="peer1", time=at(36.5)), WaitEnded(peer="peer0", time=at(36.5)))
    scene.record(*(ended(peer, 6, seconds=37.0, accuracy=0.875) for peer in PEERS))
    scene.seconds = 38.0
    browser.until(f"{HEADLINE}.startsWith('4 peers learn in round 8 of 10')")
    browser.until("document.getElementById('rows').innerText.includes('7/10')")
    browser.until("document.getElementById('chart').getAttribute('aria-label').includes('0.875 in round 7')")
    assert browser.run("document.querySelectorAll('line.wait').length") == 0


@pytest.mark.usefixtures("scene")
def test_the_page_loads_nothing_from_elsewhere_and_breaks_no_policy(address, browser):
    home = address()
    shown(browser, home)
    origin = home.partition("/?")[0]
    assert browser.messages == []
    assert all(request.startswith(f"{origin}/") for request in browser.requests)
    assert browser.run("location.href") == f"{origin}/"
    assert browser.run("document.cookie") == ""
    assert browser.run("performance.getEntriesByType('resource').length") > 5


@pytest.mark.usefixtures("scene")
@pytest.mark.parametrize("name", WINDOWS)
def test_everybody_can_use_the_page(address, browser, picture, name):
    width, dark = WINDOWS[name]
    shown(browser, address(), width=width, dark=dark)
    assert browser.run(WIDE) <= width
    browser.picture(picture(f"watch-{name}.png"), whole=width > 400)
    assert accessible(browser) == []


@pytest.mark.usefixtures("scene")
def test_the_page_works_with_the_keyboard(address, browser):
    shown(browser, address())
    browser.run("document.querySelector('[data-column=score]').focus()")

    def press(key, code):
        for kind in ("keyDown", "keyUp"):
            browser.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text="\r")

    press("Enter", 13)
    assert browser.run("document.querySelector('#heads [aria-sort]').innerText.trim()") == "accuracy ▲"
    assert browser.run("document.querySelector('#rows th').innerText") == "peer0"
    assert browser.run("document.activeElement.dataset.column") == "score"
    press("Enter", 13)
    assert browser.run("document.querySelector('#rows th').innerText") == "peer3"
    browser.run("document.querySelector('#rows button').focus()")
    press("Enter", 13)
    browser.until("document.querySelector('#key') && document.querySelector('tr.chosen') !== null")
    browser.until("document.getElementById('chart').getAttribute('aria-label').includes('accuracy by round')")
    assert browser.run("document.querySelector('tr.chosen button').getAttribute('aria-pressed')") == "true"


def test_screen_readers_are_told_when_the_matter_changes_and_not_each_second(scene, address, browser):
    shown(browser, address())
    first = browser.run("document.getElementById('spoken').textContent")
    assert first.startswith("peer2 blocks 2 peers")
    scene.seconds = 40.0
    browser.until(f"{HEADLINE}.includes('for 28 s')")
    assert browser.run("document.getElementById('spoken').textContent") == first


def test_names_are_text_and_never_markup(address, browser, growing):
    growing.log(*(began(peer) for peer in PEERS))
    growing.learn(2)
    growing.raw("events.jsonl", growing.line(began("<img src=x onerror=alert(1)>", 1.0)))
    growing.seconds = 6.0
    shown(browser, address())
    assert "<img src=x onerror=alert(1)>" in browser.run("document.getElementById('rows').innerText")
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert browser.messages == []


def test_the_slider_shows_the_states_of_the_run(scene, address, browser):
    scene.log(WaitEnded(peer="peer1", time=at(40.0)), WaitEnded(peer="peer0", time=at(40.0)))
    scene.record(*(ended(peer, 6, seconds=41.0) for peer in PEERS))
    (scene.folder / "summary.json").write_text('{"schema": 1}')
    scene.seconds = 100.0
    shown(browser, address())
    assert not browser.run("document.getElementById('player').hidden")

    def at_time(seconds):
        browser.run(
            f"time.value = {seconds}; time.dispatchEvent(new Event('input')); "
            "new Promise((done) => setTimeout(done, 50))"
        )

    at_time(4.5)
    browser.until(f"{HEADLINE}.startsWith('4 peers learn in round 3 of 10')")
    browser.until("document.getElementById('chart').getAttribute('aria-label').includes('in round 2')")
    at_time(36.0)
    browser.until(f"{HEADLINE}.startsWith('peer2 blocks 2 peers: it has worked on round 7 for 24 s')")
    assert browser.run("document.getElementById('timetext').textContent") == "00:00:36 of 00:00:41"
    browser.run("document.getElementById('present').click()")
    browser.until(f"{HEADLINE}.startsWith('4 peers learn in round 8 of 10')")
    assert accessible(browser) == []


@pytest.mark.usefixtures("scene")
def test_a_replay_begins_at_the_beginning_and_plays(address, browser):
    shown(browser, address(replay=100.0))
    browser.until("document.getElementById('stage').textContent === 'replay'")
    browser.until(
        f"{HEADLINE}.startsWith('peer2 holds up') || {HEADLINE}.startsWith('peer2 blocks') || time.value > 13"
    )
    browser.until("document.getElementById('play').textContent === 'Play'")
    assert browser.run("Number(time.value)") == pytest.approx(13.5)


def test_a_thousand_peers_are_cells_and_a_hundred_rows(growing, address, browser, picture):
    experiment = read({"name": "town", "rounds": 40, "topology": {"kind": "small_world", "peers": 1000, "degree": 6}})
    town = growing.folder.parent / "town"
    run = Run(experiment, folder=town, began=at(0.0))
    names = [f"peer{number:03}" for number in range(1000)]
    run.log([began(peer) for peer in names])
    run.record(
        [
            ended(peer, round, seconds=3.0 * (round + 1), accuracy=0.9 - 0.5 / (round + 1) + (number % 97) / 1000)
            for round in range(8)
            for number, peer in enumerate(names)
        ]
    )
    run.log([waits(names[number], "peer500", seconds=26.0, round=8) for number in (498, 499, 501, 502)])
    growing.folder, growing.seconds = town, 29.0
    shown(browser, address())
    assert browser.run(HEADLINE).startswith("peer500 holds up 4 peers")
    assert browser.run("document.querySelectorAll('#rows tr').length") == 100
    assert "1000 peers: " in browser.run("document.querySelector('canvas[role=img]').getAttribute('aria-label')")
    browser.run(
        "filter = document.getElementById('filter'); filter.value = 'waits'; filter.dispatchEvent(new Event('input'))"
    )
    assert browser.run("[...document.querySelectorAll('#rows th')].map((each) => each.innerText).join()") == (
        "peer498,peer499,peer501,peer502"
    )
    assert "10 to 90 %" in browser.run("document.getElementById('chart-note').textContent")
    browser.picture(picture("watch-town.png"))
    assert accessible(browser) == []
