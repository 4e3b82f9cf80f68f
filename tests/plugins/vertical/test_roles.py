import pytest

from p2pfl.core.errors import DataError, InputError, LearningError, PrivacyError, TopologyError
from p2pfl.plugins.vertical.roles import Roles, check_coefficients, check_predictors, check_rows
from p2pfl.topology import complete, ring


@pytest.mark.parametrize(
    ("parties", "label", "helper", "error", "sentence"),
    [
        (("ada",), "ada", "cleo", InputError, "at least two different ones"),
        (("ada", "ada"), "ada", "cleo", InputError, "at least two different ones"),
        ((), "ada", "cleo", InputError, "the parties are none"),
        (("ada", "bob"), "cleo", None, InputError, "label holder cleo is none of the parties ada, bob"),
        (("ada", "bob"), "bob", "ada", InputError, "the helper ada holds columns or labels"),
    ],
)
def test_roles_that_protect_nobody_are_refused(parties, label, helper, error, sentence):
    with pytest.raises(error, match=sentence):
        Roles(parties, label=label, helper=helper)


def test_the_label_holder_never_solves_and_no_party_deals_for_itself():
    for helper in ("cleo", None):
        for label in ("ada", "bob", "eve"):
            roles = Roles(("eve", "ada", "bob"), label=label, helper=helper)
            assert roles.solver != label
            assert all(roles.dealer(x, y) not in {x, y} for x in roles.parties for y in roles.parties if x != y)
            assert roles.solver in roles.peers


def test_every_two_peers_that_take_part_are_neighbours():
    roles = Roles(("peer0", "peer2"), label="peer0", helper="peer1")
    roles.check_swarm(complete(5))
    with pytest.raises(TopologyError, match="peer0-peer2 are no edges"):
        roles.check_swarm(ring(5))
    with pytest.raises(InputError, match="eve is no peer of this run"):
        Roles(("peer0", "eve"), label="peer0", helper="peer1").check_swarm(complete(3))


@pytest.mark.parametrize(
    ("columns", "classes", "fine"), [(1, None, False), (2, None, True), (2, 3, False), (3, 3, True)]
)
def test_columns_that_follow_from_predictions_are_refused(columns, classes, fine):
    roles = Roles(("ada", "bob"), label="bob", helper="cleo")
    roles.check_columns("bob", 0, classes=classes)
    roles.check_columns("ada", columns, classes=classes, alone_column=True)
    if fine:
        roles.check_columns("ada", columns, classes=classes)
    else:
        with pytest.raises(DataError, match=f"ada has {columns} encoded columns"):
            roles.check_columns("ada", columns, classes=classes)


def test_limits_hold_at_their_bounds():
    check_rows(50)
    check_coefficients(5, 50)
    check_predictors("ada", 6, more=8)
    with pytest.raises(DataError, match="49 rows in common"):
        check_rows(49)
    with pytest.raises(LearningError, match="6 coefficients of all parties for 59 rows"):
        check_coefficients(6, 59)
    with pytest.raises(PrivacyError, match="ada has shown 7 linear predictors"):
        check_predictors("ada", 7, more=8)
