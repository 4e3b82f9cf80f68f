import pytest

from p2pfl.core.errors import DataError, InputError, LearningError
from p2pfl.plugins.vertical.party_roles import PartyRoles, check_coefficients, check_rows


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
        PartyRoles(parties, label=label, helper=helper)


def test_the_label_holder_never_solves_and_no_party_deals_for_itself():
    for helper in ("cleo", None):
        for label in ("ada", "bob", "eve"):
            roles = PartyRoles(("eve", "ada", "bob"), label=label, helper=helper)
            assert roles.solver != label
            assert all(roles.dealer(x, y) not in {x, y} for x in roles.parties for y in roles.parties if x != y)
            assert roles.solver in roles.peers


def test_columns_that_follow_from_predictions_are_refused():
    roles = PartyRoles(("ada", "bob"), label="bob", helper="cleo")
    roles.check_columns("bob", 0)
    roles.check_columns("ada", 2)
    roles.check_columns("ada", 1, alone_column=True)
    with pytest.raises(DataError, match="ada has fewer than 2 encoded columns"):
        roles.check_columns("ada", 1)


def test_limits_hold_at_their_bounds():
    check_rows(50)
    check_coefficients(5, 50)
    with pytest.raises(DataError, match="49 rows in common"):
        check_rows(49)
    with pytest.raises(LearningError, match="6 coefficients of all parties for 59 rows"):
        check_coefficients(6, 59)
