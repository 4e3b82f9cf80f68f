"""Runs that follow one another on a device, by changes that the operator of its swarm has signed."""

from __future__ import annotations

from pathlib import Path

from p2pfl.cli import folders, terminal
from p2pfl.core.errors import InputError, StorageError
from p2pfl.core.files import replace as replace_file
from p2pfl.experiment import Experiment
from p2pfl.experiment.changed_run import begun_after, changed_experiment, followers, needs_one_start
from p2pfl.experiment.file.reading import write_kept
from p2pfl.experiment.former_models import FormerModels
from p2pfl.experiment.swarm_change import NEXT, ORDER, RunOrder
from p2pfl.privacy.keys import fingerprint
from p2pfl.results.lock import PEER_LOCK


def last_run(runs: str, experiment: Experiment, *, peer: str) -> Path | None:
    """Return the newest run directory of a peer: of an experiment, or of a run that follows one of it.

    Raises
    ------
    InputError
        It holds another experiment.
    """
    newest = folders.newest_of(runs, experiment.name, peer=peer)
    if newest is None:
        return None
    first, seen = newest, {newest}
    while (former := _followed(first)) is not None and former not in seen:
        first = former
        seen.add(first)
    folders.check_same(experiment, first, folders.read_experiment(first))
    return newest


def experiment_in(folder: Path) -> Path | None:
    """Return the file with the experiment of a run that follows another one; ``None`` if it follows none."""
    former = _followed(folder)
    return None if former is None else former / NEXT / "experiment.toml"


def following(folder: Path, *, peer: str, left: bool = False) -> tuple[Path, Path | None] | None:
    """Return the file with the experiment of the next run of a peer, and its directory if it has begun.

    ``None`` if no change ends the run in a directory, or takes the peer out of the swarm.

    Parameters
    ----------
    folder
        Directory of the run.
    peer
        Name of the peer.
    left
        True if the peer left the run, because the others had gone on.

    Raises
    ------
    InputError
        The peer cannot go on.
    StorageError
        A file cannot be read or written.
    """
    from p2pfl.network.peer.change_exchange import read_change  # noqa: PLC0415 (it imports torch)

    change = read_change(folder / "peers", peer)
    if change is None or change.last is None or not (folder / PEER_LOCK).exists():
        return None
    if not (left or folders.has_ended(folder)):
        return None
    before = folders.read_experiment(folder)
    after, roster = changed_experiment(before, change.settings), change.next_roster
    by = f"change {change.number} of the operator {fingerprint(roster.operator)}"
    if not left:
        _check_end(before, folder, peer=peer, last=change.last, by=by)
    if peer not in followers(after):
        terminal.note(f'{by} takes {peer} out of "{before.name}"; its last model is in {folder / "peers"}')
        return None
    place = folder.resolve() / NEXT
    common = left and needs_one_start(before, after)
    own = not left or (not common and (place.parent / "peers" / f"{peer}.safetensors").is_file())
    start = begun_after(before, after, place.parent, peer=peer, roster=place / "roster.toml", has_model=own)
    try:
        place.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{place} cannot be made ({error.strerror}); check its permissions") from None
    roster.write(place / "roster.toml")
    replace_file(place / ORDER, RunOrder(change=change, late=left).encode(), mode=0o600)
    replace_file(place / "experiment.toml", write_kept(start, place, run=place.parent))
    if common:
        raise InputError(
            f"{by} begins a run whose peers all know one model, and {peer} was away when the others agreed on it; copy "
            f"NAME.safetensors of another device here, and call p2pfl peer {place / 'experiment.toml'} --name {peer} "
            "--set model.pretrained=NAME.safetensors"
        )
    others = [each for each in place.parent.parent.glob("*/") if folders.begun(each)]
    begun = [each for each in others if _followed(each) == place.parent]
    terminal.note(f"{by}: the next run {'goes on' if begun else 'begins'}")
    return place / "experiment.toml", max(begun, default=None)


def _check_end(before: Experiment, folder: Path, *, peer: str, last: int, by: str) -> None:
    """Refuse to go on after a run that a peer has ended before the others."""
    played = FormerModels(str(folder / "peers" / "{peer}.safetensors")).rounds([peer])
    if played != min(last, before.horizon) and before.learning.stop is None and before.learning.patience is None:
        raise InputError(
            f"{peer} ended after {played} rounds, and {by} ends the run after {last}, so it has no model with which "
            "the others go on; take one of theirs, and begin with p2pfl next"
        )


def _followed(folder: Path) -> Path | None:
    """Return the directory of the run that another run follows by a change; ``None`` if it follows none."""
    roster = folders.read_experiment(folder).trust.roster
    place = None if roster is None else Path(roster).parent
    if place is None or place.name != NEXT or not (place / "experiment.toml").is_file():
        return None
    return place.parent
