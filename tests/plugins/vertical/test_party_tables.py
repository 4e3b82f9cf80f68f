"""Tables of parties: each owner's own file and declaration, and columns of a shared data set dealt out for trials."""

import numpy as np
import pytest

from p2pfl.core.errors import DataError
from p2pfl.data.bundled import read_bundled
from p2pfl.data.loader import check_options, source_of
from p2pfl.plugins.vertical.party_loading import deal_columns, load_parties
from p2pfl.plugins.vertical.party_tables import vertical

KEYS = [["nhs:digits"], ["name:text", "born:date"]]
TABLES = {
    "ada.csv": "nhs;name;born;age;sex\n17;Zoë;31.01.1970;31,5;f\n18;Bo;01.02.1971;44;m\n;O'Neil;1972-03-04;;m\n",
    "ada.csv.toml": 'separator = ";"\ndecimal = ","\ndates = "%d.%m.%Y | %Y-%m-%d"\n',
    "ada.columns.toml": '[columns]\nage = { type = "number", missing = nan }\nsex = ["f", "m"]\n',
    "bob.csv": "nhs,name,born,ill\n0018,BO,1971-02-01,yes\n17,zoe,1970-01-31,no\n",
    "bob.columns.toml": 'target = "ill"\ncolumns = { ill = ["no", "yes"] }\n',
}
OPTIONS = {"path": "{peer}.csv", "label": "bob", "helper": "cleo", "keys": KEYS}


@pytest.fixture
def load(tmp_path):
    def load(peers=("ada", "bob", "cleo"), only=None, tables=TABLES, **options):
        for name, text in tables.items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        given = OPTIONS | {"path": str(tmp_path / "{peer}.csv")} | options
        check_options("vertical", vertical, given)
        return load_parties(vertical(None, **given), peers, peers if only is None else only)

    return load


def test_each_party_has_its_own_columns_and_the_values_of_the_agreed_keys(load):
    parties = load().parties
    ada, bob = parties.party("ada"), parties.party("bob")
    assert parties.names == ("ada", "bob")
    assert (parties.label, parties.helper, parties.rows) == ("bob", "cleo", "common")
    assert parties.keys == ("nhs:digits", "name:text, born:date")
    assert ada.columns == ("age", "sex=f", "sex=m")
    np.testing.assert_array_equal(ada.features, [[31.5, 1, 0], [44, 0, 1], [np.nan, 0, 1]])
    assert ada.target is None
    assert ada.keys == (("17", "18", None), ("zoe\x1f19700131", "bo\x1f19710201", "oneil\x1f19720304"))
    assert bob.features.shape == (2, 0)
    assert bob.target.tolist() == [1, 0]
    assert bob.description.classes == ("no", "yes")
    assert [{*one} & {*other} for one, other in zip(ada.keys, bob.keys, strict=True)] == [
        {"17", "18"},
        {"zoe\x1f19700131", "bo\x1f19710201"},
    ]


def test_a_peer_reads_its_own_table_alone(load):
    only = {name: text for name, text in TABLES.items() if name.startswith("ada")}
    federation = load(only=["ada"], tables=only)
    assert [*federation.parties.own] == ["ada"]
    assert [*load(only=["cleo"], tables={}).parties.own] == []
    assert federation.notes["ada"][0].startswith('of 3 rows, 1 lack a part of the key "nhs:digits"')


def test_a_target_of_numbers_and_rows_without_a_needed_cell(load):
    tables = TABLES | {
        "bob.csv": "nhs,name,born,cost,age\n18,BO,1971-02-01,12.5,3\n17,zoe,1970-01-31,,4\n",
        "bob.columns.toml": 'target = "cost"\n[columns]\n'
        'cost = { type = "number", missing = "drop" }\nage = "integer"\n',
    }
    federation = load(tables=tables)
    bob = federation.parties.party("bob")
    assert bob.target.tolist() == [12.5]
    assert bob.features.tolist() == [[3]]
    assert bob.keys[0] == ("18",)
    assert federation.notes["bob"][-1] == '1 of 2 rows are left out, because cells are missing: "cost" in 1'


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"label": "eve"}, r'`label` is "eve", which is no peer of the run'),
        ({"helper": "eve"}, r'`helper` is "eve", which is no peer of the run'),
        ({"helper": "bob"}, r'the helper "bob" has a table, .*, but must be no party; name another'),
        ({"helper": "ada"}, r'the helper "ada" has a table, .*ada.csv, but must be no party; name another'),
        ({"rows": "all"}, r'the option "rows" is \'all\'; choose from common, hidden, labelled'),
        ({"sizes": {"ada": 7}}, r'the table of "ada" has 3 rows, but 7 are agreed; correct `sizes`'),
        ({"sizes": {"cleo": 7}}, r'`sizes` names "cleo", which is no party'),
        ({"sizes": {"ada": "7"}}, r'the option "sizes" is .*; write numbers of rows by party'),
        ({"keys": [["nhs"]]}, r"`keys` contains 'nhs'; write a column and one of the rules"),
        ({"key": "nhs"}, r'the data set "vertical" has no option "key"; did you mean "keys"\?'),
        ({"peers": ("bob", "cleo")}, r"there is the one party bob; .* need two or more"),
    ],
)
def test_a_setting_that_does_not_fit_is_refused_before_anything_leaves(load, changes, sentence):
    with pytest.raises(DataError, match=sentence):
        load(**changes)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("ada.columns.toml", "columns = 3", r"ada.columns.toml needs a table \[columns\]"),
        ("ada.columns.toml", "[columns]\n", r"ada.columns.toml declares no column; only the label holder"),
        ("ada.columns.toml", 'target = "age"\ncolumns = { age = "number" }', r"has a target; leave `target` out"),
        ("ada.columns.toml", "columns =", r"is no TOML file \("),
        ("ada.columns.toml", 'colums = { age = "number" }', r'unknown key "colums"; did you mean "columns"'),
        ("ada.columns.toml", 'columns = { age = { type = "number", mean = 3 } }', r"rule `mean`; leave it out"),
        ("bob.columns.toml", 'columns = { ill = ["no", "yes"] }', r"lacks a target; name its column by target = "),
        ("bob.columns.toml", 'target = "il"\ncolumns = { ill = ["no", "yes"] }', r'did you mean "ill"'),
        ("bob.columns.toml", 'target = "ill"\ncolumns = { ill = ["no"] }', r'the target "ill" one level'),
        ("ada.csv", "a,b\n1,2\n", r"ada.csv is separated by commas"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_with_what_to_do(load, name, text, sentence):
    with pytest.raises(DataError, match=sentence):
        load(tables=TABLES | {name: text})


def test_a_missing_declaration_is_named(load):
    with pytest.raises(DataError, match=r"ada.columns.toml is missing; declare the columns of your table there, such"):
        load(tables={name: text for name, text in TABLES.items() if name != "ada.columns.toml"})


def dealt(peers=("ada", "bob", "cleo"), only=None, name="breast_cancer", label=None, helper=None):
    source = source_of(name, None, {})
    return deal_columns(source, peers, peers if only is None else only, label=label, helper=helper, seed=0).parties


def test_dealt_columns_are_those_of_the_data_set_in_another_order_at_each_party():
    whole = read_bundled("breast_cancer")
    parties = dealt(label="bob")
    assert (parties.label, parties.helper, parties.names) == ("bob", "cleo", ("ada", "bob"))
    joined = []
    for peer in ("bob", "ada"):
        party = parties.party(peer)
        rows = np.argsort([int(value) for value in party.keys[0]])
        joined.append(party.features[rows])
    np.testing.assert_allclose(np.hstack(joined), whole.data, atol=1e-12)
    bob = parties.party("bob")
    np.testing.assert_array_equal(bob.target[np.argsort([int(value) for value in bob.keys[0]])], whole.target)
    assert parties.party("ada").target is None
    assert parties.party("ada").keys != bob.keys
    assert bob.columns + parties.party("ada").columns == tuple(whole.feature_names)


def test_a_live_peer_deals_itself_what_a_simulation_deals_it():
    whole, alone = dealt(), dealt(only=["bob"])
    assert [*alone.own] == ["bob"]
    np.testing.assert_array_equal(alone.party("bob").features, whole.party("bob").features)
    assert alone.party("bob").keys == whole.party("bob").keys


def test_pictures_and_numbers_are_dealt_out_too():
    digits, diabetes = dealt(name="digits"), dealt(name="diabetes", peers=("ada", "bob"))
    assert digits.party("ada").features.shape == digits.party("bob").features.shape == (1797, 32)
    assert diabetes.helper is None
    assert max(diabetes.party("ada").target) == 346


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"label": "eve"}, r'`label` is "eve", which is no peer'),
        ({"label": "bob", "helper": "bob"}, r'"bob" is both the label holder and the helper'),
        ({"peers": tuple("abcdefghijkl"), "name": "diabetes"}, r"has 10 columns for 11 parties; use fewer peers"),
        ({"name": "synthetic"}, r'each peer owns its data, .* use data.name = "vertical"'),
    ],
)
def test_columns_that_cannot_be_dealt_out_are_refused(options, sentence):
    with pytest.raises(DataError, match=sentence):
        dealt(**options)
