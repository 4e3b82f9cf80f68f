"""Generators of vertical learning played in one process, with what each peer receives."""

from itertools import count

import numpy as np
import pytest

from p2pfl.learning.additive import add_up, answer_questions
from p2pfl.plugins.vertical.gram import JoinedTable
from p2pfl.plugins.vertical.party_roles import PartyRoles

PAIR = PartyRoles(("ada", "bob"), label="bob", helper="cleo")
THREE = PartyRoles(("ada", "bob", "eve"), label="bob", helper="cleo")
ALONE = PartyRoles(("ada", "bob", "eve"), label="bob")
FOUR = PartyRoles(("ada", "bob", "eve", "dan"), label="bob", helper="cleo")


def play(asking, roles):
    """Return the result of questions, of which all peers are in this process."""
    return answer_questions(asking, lambda question: add_up(question, roles.peers))


def play_altered(asking, roles, change):
    """Return the result of questions whose public totals a peer alters: ``change(number, total)`` in their order."""
    numbers = count()

    def total(question):
        answer = add_up(question, roles.peers)
        return answer if question.to is not None else change(next(numbers), answer.copy())

    return answer_questions(asking, total)


def overheard(asking, roles):
    """Return the result of questions, and the integers that each peer received, message by message."""
    views = {peer: [] for peer in roles.peers}

    def total(question):
        if question.to is not None:
            real = question.to.take

            def take(values):
                views[question.to.peer].append(tuple(values.tolist()))
                real(values)

            object.__setattr__(question.to, "take", take)
        answer = add_up(question, roles.peers)
        if question.to is None:
            for view in views.values():
                view.append(tuple(answer.tolist()))
        return answer

    return answer_questions(asking, total), views


def joined_table(parts, target, roles):
    """Return the table of the columns of each party and a target."""
    return JoinedTable(roles, len(target), parts.__getitem__, lambda _: target)


def split(features, roles):
    """Return the columns of each party: equal shares in turn, of the label holder the first ones."""
    order = [roles.label, *roles.features]
    return {party: features[:, place :: len(order)] for place, party in enumerate(order)}


def two_tables(data_dir, name):
    """Return the columns of ada and bob, and bob's targets, of one of FATE's tables in the folder of data sets."""
    folder = data_dir / "vertical" / name
    if not folder.is_dir():
        pytest.skip(f"{name} is not in the folder of data sets")
    tables = {peer: np.loadtxt(folder / f"{peer}.csv", delimiter=",", skiprows=1) for peer in ("ada", "bob")}
    common = np.intersect1d(tables["ada"][:, 0], tables["bob"][:, 0])
    ada, bob = (table[np.isin(table[:, 0], common)] for table in tables.values())
    ada, bob = (table[np.argsort(table[:, 0])] for table in (ada, bob))
    return {"ada": ada[:, 1:], "bob": bob[:, 2:]}, bob[:, 1]
