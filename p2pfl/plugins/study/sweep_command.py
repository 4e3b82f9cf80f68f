"""``p2pfl sweep``: from arguments to a study, and what it prints."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from p2pfl.cli import tables, terminal
from p2pfl.cli.experiments import check_owner, find_unlisted, note_code
from p2pfl.core.errors import InputError
from p2pfl.experiment.file.reading import draft, read
from p2pfl.plugins.study.study import (
    Study,
    load,
    name_setting,
    parse_budget,
    parse_combination,
    parse_random,
    parse_value,
    parse_values,
    with_changes,
)
from p2pfl.plugins.study.study_commands import SweepOptions
from p2pfl.plugins.study.sweep import sweep
from p2pfl.results.comparisons.comparison import RunOutcome
from p2pfl.results.comparisons.exports import comparison_json


def run(options: SweepOptions) -> int:
    """Run a sweep and print its table; return the exit status, 1 if a run failed."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError("a sweep does not work with torchrun, as --jobs starts its processes; leave torchrun out")
    study = study_of(options)
    noted = set[str]()

    def trusts(changes: Sequence[str]) -> bool:
        """Return whether code of a setting may run; print each that may because the user agrees."""
        unlisted = find_unlisted(study.experiment, changes=changes, name=options.name)
        if options.trust_code:
            note_code([each for each in unlisted if each not in noted])
            noted.update(unlisted)
        return options.trust_code or not unlisted

    if options.name is not None:
        check_owner(read(study.experiment, trust_code=trusts(())), options.name)
        alone = {"topology.kind": "ring", "topology.peers": [options.name], "privacy.mode": "none"}
        study = with_changes(study, {"set": alone})
    name = draft(study.experiment).name
    folder = Path(options.out) if options.out else Path(options.runs) / f"{name}-sweep"
    console = terminal.console(stderr=True, quiet=options.json)

    done_of = [0, 0]

    def observe(outcome: RunOutcome, done: int, count: int) -> None:
        done_of[:] = done, count
        console.print(f"{done}/{count} {line(outcome)}", soft_wrap=True)

    try:
        result = sweep(study, folder, processes=options.jobs or _cores(), observe=observe, trusts=trusts)
    except KeyboardInterrupt as interrupt:
        done, count = done_of
        interrupt.add_note(f"{done} of {count} runs are done" if count else "no run is done")
        interrupt.add_note(f"go on with {options.line}")
        raise
    comparison = result.comparison
    if options.json:
        print(json.dumps(comparison_json(comparison) | {"folder": str(folder)}, allow_nan=False))
    else:
        tables.comparison(comparison, console=console)
        console.print(f"sweep directory: {folder}", soft_wrap=True)
    failed = [each for each in result.outcomes if each.failure is not None]
    if failed:
        first = f"{name_setting(failed[0].values)} seed {failed[0].seed}: {failed[0].failure}"
        terminal.note(f"p2pfl: {len(failed)} of {len(result.outcomes)} runs failed, the first is {first}")
    return 1 if failed else 0


def study_of(options: SweepOptions) -> Study:
    """Return the study of the arguments, which add to those of a file.

    Raises
    ------
    InputError
        An argument has no value, or one of another form.
    """
    study = load(Path(options.experiment)) or Study(experiment=options.experiment)
    changes = [*options.changes, *([] if options.peers is None else [f"topology.peers={options.peers}"])]
    more: dict[str, Any] = {
        "set": {key: parse_value(text) for key, text in _pairs("--set", changes)},
        "over": {key: parse_values(text) for key, text in _pairs("--over", options.over)},
        "random": {key: parse_random(text) for key, text in _pairs("--random", options.random)},
        "without": (*study.without, *map(parse_combination, options.without)),
        "against": {key: parse_value(text) for key, text in _pairs("--against", options.against)},
        "draws": options.draws,
        "seeds": None if options.seeds is None else _seeds(options.seeds),
        "metric": options.metric,
        "budget": options.budget,
        "baselines": options.baselines or None,
    }
    if options.draws is not None and not (study.random or more["random"]):
        raise InputError("--draws has no key to draw; name one with --random KEY=LOW..HIGH")
    made = with_changes(study, more)
    if made.budget is not None:
        parse_budget(made.budget)
    return made


def _pairs(option: str, texts: list[str]) -> list[tuple[str, str]]:
    pairs = []
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key or not value:
            raise InputError(f'{option} "{text}" has no key or no value; write it as section.key=...')
        pairs.append((key.strip(), value.strip()))
    if len({key for key, _ in pairs}) < len(pairs):
        raise InputError(f"{option} names a key twice; write all its values behind one {option}")
    return pairs


def _seeds(text: str) -> int | tuple[int, ...]:
    try:
        seeds = tuple(int(part) for part in text.split(","))
    except ValueError:
        seeds = (-1,)
    if min(seeds) < 0 or seeds == (0,) or len(set(seeds)) < len(seeds):
        raise InputError(f"--seeds {text} is neither a number of seeds nor a list of them; write 5, or 0,3,7")
    return seeds if "," in text else seeds[0]


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)  # p2pfl.core.process would import torch here, too
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def line(outcome: RunOutcome) -> str:
    """Return the result of a run, as one line.

    Examples
    --------
    >>> line(RunOutcome(values={"learning.rate": "0.1"}, seed=3, score=0.91234, seconds=1.25))
    'learning.rate=0.1 seed 3: 0.912 in 1.2 s'
    """
    what = outcome.failure
    if what is None and outcome.score is not None:
        what = f"{outcome.score:.3f} in {outcome.seconds:.1f} s"
    return f"{name_setting(outcome.values)} seed {outcome.seed}: {what}"
