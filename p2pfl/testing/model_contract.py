"""Contract of models that follow from exact totals, as checks that any implementation can run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from p2pfl.core.encodings import Ints
from p2pfl.learning.additive import Question, answer_questions
from p2pfl.learning.exact_model import ExactModel, Outcome, Own, Part, Tensors
from p2pfl.testing.contract import Contract, equal, require

Owners = Mapping[str, Own]
"""Samples by the name of their owner."""

MODEL_CHECKS: Contract[Callable[[ExactModel, Owners], None]] = Contract()
"""Every check by name: ``check(model, owners)``."""

MAX_ROUNDS = 3
"""Rounds that a check plays."""


def check_model(model: ExactModel, owners: Owners) -> None:
    """Run all checks on a model that follows from exact totals.

    Parameters
    ----------
    model
        The model.
    owners
        Samples of at least two owners from which it follows.

    Raises
    ------
    ContractError
        A promise is broken; the message names it.

    Examples
    --------
    >>> from p2pfl.plugins.exact import GLM
    >>> rng = np.random.default_rng(0)
    >>> parts = [Part(rng.normal(size=(40, 2)).astype(np.float32), rng.normal(size=40)) for _ in range(3)]
    >>> check_model(GLM(features=2, classes=None), {name: Own(*parts) for name in ("ada", "bob")})
    """
    require(len(owners) >= 2, "the checks need at least two owners")
    MODEL_CHECKS.run(model, owners)


@MODEL_CHECKS.add
def tensors_have_the_names_and_shapes_of_the_layout(model: ExactModel, owners: Owners) -> None:
    shapes = dict(zip(model.layout.names, model.layout.shapes, strict=True))
    for tensors in (model.start(), _play(model, owners)):
        equal({name: np.shape(tensors[name]) for name in shapes if name in tensors}, shapes)


@MODEL_CHECKS.add
def predictions_do_not_depend_on_who_holds_which_sample(model: ExactModel, owners: Owners) -> None:
    if not model.traits.predicts:
        return
    whole = _pool([*owners.values()])
    together = model.predicted(_play(model, owners), whole.train)
    pooled = model.predicted(_play(model, {"pooled": whole}), whole.train)
    require(np.allclose(together, pooled, atol=1e-9), f"they differ by up to {np.abs(together - pooled).max():g}")


@MODEL_CHECKS.add
def a_model_for_private_noise_asks_once_a_round_and_bounds_the_change(model: ExactModel, owners: Owners) -> None:
    if not model.traits.noisy:
        return
    _, questions = _round(model, model.start(), owners)
    equal(len(questions), 1)
    require((questions[0].change or 0) > 0, "the question states no change")


@MODEL_CHECKS.add
def the_module_predicts_as_the_model_does(model: ExactModel, owners: Owners) -> None:
    if not model.traits.predicts:
        return
    tensors = _play(model, owners)
    module = model.predictor(tensors)
    module.load_state_dict({name: torch.from_numpy(np.asarray(tensors[name])) for name in model.layout.names})
    part = _pool([*owners.values()]).train
    with torch.inference_mode():
        outputs = module.eval()(torch.from_numpy(part.features)).double().numpy()
    expected = model.predicted(tensors, part)
    require(np.allclose(outputs, expected, atol=1e-6), f"outputs differ by up to {np.abs(outputs - expected).max():g}")


def _play(model: ExactModel, owners: Owners) -> Tensors:
    """Return the model after some rounds."""
    tensors = model.start()
    for _ in range(MAX_ROUNDS):
        outcome, _ = _round(model, tensors, owners)
        tensors = outcome.tensors
    return tensors


def _round(model: ExactModel, tensors: Tensors, owners: Owners) -> tuple[Outcome, list[Question]]:
    """Return the outcome of a round and its questions; data may be read while an answer is computed, and only then."""
    questions, answering = list[Question](), False

    def own(peer: str) -> Own:
        require(answering, "round() reads data outside of the answer of a question")
        return owners[peer]

    def total(question: Question) -> Ints:
        nonlocal answering
        questions.append(question)
        answering = True
        answers = [question.answer(peer) for peer in owners]
        answering = False
        for answer in answers:
            equal((answer.dtype, answer.shape), (np.dtype(np.int64), (question.size,)))
        return np.asarray(np.add.reduce(answers))

    return answer_questions(model.round(tensors, own), total), questions


def _pool(owners: Sequence[Own]) -> Own:
    """Return the samples of one owner who holds those of all."""
    tests = [each.test for each in owners if each.test is not None]
    train, validation = (_join([each.train for each in owners]), _join([each.validation for each in owners]))
    return Own(train, validation, _join(tests) if tests else None)


def _join(parts: Sequence[Part]) -> Part:
    return Part(np.concatenate([each.features for each in parts]), np.concatenate([each.targets for each in parts]))
