"""Common rows of parties who do not learn whom another party has."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from aligning import OUTSIDER, Recorder, aligned, parties, people
from p2pfl.core.errors import DataError, PrivacyError
from p2pfl.learning.additive import add_up, answer_questions
from p2pfl.plugins.vertical import alignment
from p2pfl.plugins.vertical.alignment import align, align_openly
from p2pfl.plugins.vertical.matching import ABSENT, match_rows
from p2pfl.privacy.commutative_powers import hash_to_point, multiply
from p2pfl.privacy.keys import SecretSource, SeededSource

NAMES = ("ada", "bob", "dan", "eve", "fay")


def drawn(count, *, keys=1, seed=0, people_count=14, rows=9):
    """Tables of some of the same people, with a value missing here and there."""
    rng = np.random.default_rng(seed)
    tables = {}
    for name in NAMES[:count]:
        own = rng.permutation(people_count)[:rows].tolist()
        tables[name] = [
            [None if key < keys - 1 and rng.random() < 0.4 else f"{key}:{person}" for person in own]
            for key in range(keys)
        ]
    return tables


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_all_parties_have_the_intersection_in_one_order(count):
    tables = drawn(count)
    given = parties(tables, label="bob")
    result, _ = aligned(given)
    common = set.intersection(*({*values[0]} for values in tables.values()))
    assert common
    assert {*people(given, result, "ada")} == common
    assert result.rows == result.common == len(common)
    assert result.matched == (len(common),)
    assert result.sizes == dict.fromkeys(NAMES[:count], 9)
    orders = [people(given, result, peer) for peer in given.names]
    assert all(each == orders[0] for each in orders)


@pytest.mark.parametrize(
    ("count", "options"),
    [
        (2, {}),
        (2, {"helper": None}),
        (2, {"rows": "hidden"}),
        (2, {"rows": "labelled"}),
        (2, {"rows": "labelled", "helper": None}),
        (3, {}),
        (3, {"rows": "labelled"}),
    ],
)
@pytest.mark.parametrize("keys", [1, 3])
def test_the_protocol_finds_what_a_comparison_of_all_tables_finds(count, options, keys):
    given = parties(drawn(count, keys=keys, seed=count), label="bob", **options)
    result, _ = aligned(given, seed=5)
    openly = align_openly(given, SeededSource(5))
    assert (result.rows, result.common, result.matched) == (openly.rows, openly.common, openly.matched)
    for peer in given.names:
        np.testing.assert_array_equal(result.positions(peer), openly.positions(peer))


def test_the_order_of_rows_is_neither_that_of_a_table_nor_the_same_again():
    given = parties({name: [[str(number) for number in range(30)]] for name in ("ada", "bob")})
    orders = [people(given, aligned(given, seed=seed)[0], "ada") for seed in (1, 2)]
    assert orders[0] != orders[1] != [str(number) for number in range(30)]
    again = [people(given, aligned(given, source=SecretSource())[0], "ada") for _ in range(2)]
    assert again[0] != again[1]


def test_lists_are_shuffled_by_their_owners_and_positions_by_the_helper():
    source = SeededSource(3)
    given = parties({name: [[str(number) for number in range(30)]] for name in ("ada", "bob")})
    _, recorder = aligned(given, source=source)
    points, scalars = secrets_of(given, source)
    sent = recorder.received["bob"][0]
    listed = [sent[start : start + 4].astype("<i8").tobytes() for start in range(0, len(sent), 4)]
    in_order = multiply(scalars["ada"], points["ada"])
    assert {*listed} == {*in_order}
    assert listed != in_order
    for peer in given.names:
        positions = recorder.received[peer][-1].tolist()
        assert sorted(positions) == [*range(30)] != positions


def test_only_the_helper_can_make_the_pseudonyms_that_it_compares(monkeypatch):
    source, compared = SeededSource(3), []
    monkeypatch.setattr(alignment, "match_rows", lambda tokens: compared.append(tokens) or match_rows(tokens))
    given = parties(drawn(2), label="bob")
    aligned(given, source=source)
    points, scalars = secrets_of(given, source)
    made = {point for own in points.values() for point in multiply(scalars["bob"], multiply(scalars["ada"], own))}
    [[[bob], [ada]]] = compared
    assert made.isdisjoint(bob + ada)
    assert {*multiply(scalars["helper"], made)} == {*bob, *ada}


def test_two_parties_alone_stop_comparing_rows_that_a_key_has_matched():
    tables = {"ada": [["1", None, "3"], ["a", "b", "c"]], "bob": [["1", "3", None], ["a", "c", "b"]]}
    given = parties(tables, helper=None)
    result, recorder = aligned(given)
    assert result.matched == (2, 1)
    lengths = [len(each) // 4 for each in recorder.received["ada"]]  # points of bob's list and of ada's own, by key
    assert lengths == [3, 3, 1, 1]


def test_labelled_rows_are_all_of_the_label_holder_with_a_gap_where_a_party_lacks_them():
    tables = {"ada": [["1", "2", "9"]], "bob": [["2", "3", "1", "4"]]}
    for helper in ("helper", None):
        given = parties(tables, label="bob", rows="labelled", helper=helper)
        result, _ = aligned(given)
        assert (result.rows, result.common) == (4, 2)
        assert sorted(people(given, result, "bob")) == ["1", "2", "3", "4"]
        pairs = [*zip(people(given, result, "bob"), people(given, result, "ada"), strict=True)]
        assert sorted(pairs) == [("1", "1"), ("2", "2"), ("3", None), ("4", None)]


def test_hidden_rows_are_the_union_in_which_nobody_sees_who_is_common():
    tables = {"ada": [["1", "2", "9"]], "bob": [["2", "3", "1", "4"]]}
    given = parties(tables, label="bob", rows="hidden")
    result, recorder = aligned(given)
    assert (result.rows, result.common, result.matched) == (5, 2, ())
    pairs = zip(people(given, result, "bob"), people(given, result, "ada"), strict=True)
    assert sorted(pairs, key=str) == [("1", "1"), ("2", "2"), ("3", None), ("4", None), (None, "9")]
    placed = recorder.received["ada"][-1]
    assert sorted(placed.tolist()) == [-1, -1, 0, 1, 2]  # its own rows, and two places of others


def secrets_of(given, source):
    """Points of all values, and the scalars of all peers, as only the test knows them."""
    nonces = b"".join(source.bytes(32, purpose="alignment, nonce", peer=peer) for peer in given.names)
    context = hashlib.sha256(b"p2pfl alignment" + hashlib.sha256(b"run").digest() + nonces).digest()
    prefixes = [hashlib.sha256(context + name.encode()).digest() for name in given.keys]
    points = {
        peer: [
            hash_to_point(prefix + value.encode())
            for prefix, column in zip(prefixes, given.party(peer).keys, strict=True)
            for value in column
            if value is not None
        ]
        for peer in given.names
    }
    scalars = {
        peer: source.bytes(32, purpose="alignment, scalar", peer=peer)
        for peer in (*given.names, given.helper)
        if peer is not None
    }
    return points, scalars


def pieces(arrays):
    data = [each.astype("<i8").tobytes() for each in arrays]
    return {each[start : start + 32] for each in data for start in range(0, len(each), 32)}


@pytest.mark.parametrize("count", [2, 3])
def test_nobody_receives_an_id_a_point_of_a_value_or_a_finished_list_of_another_party(count):
    source = SeededSource(3)
    given = parties(drawn(count, keys=2), label="bob")
    _, recorder = aligned(given, source=source)
    points, scalars = secrets_of(given, source)
    everybody = [value for peer in given.names for column in given.party(peer).keys for value in column if value]
    assert {*recorder.received} == {*given.names, "helper"}
    assert OUTSIDER not in recorder.received
    for peer, arrays in recorder.received.items():
        seen = pieces(arrays)
        assert not any(value.encode() in piece for value in everybody if len(value) > 2 for piece in seen)
        for owner, own in points.items():
            assert seen.isdisjoint(own)  # nobody sends a point that is not multiplied, or scalars
            alone = multiply(scalars[owner], own)
            assert seen.isdisjoint(multiply(scalars[owner], alone))
            finished = own
            for each in given.names:
                finished = multiply(scalars[each], finished)
            if peer == "helper":
                assert seen >= {*finished}  # the test knows what pseudonyms look like
            else:
                assert seen.isdisjoint(finished)
                assert seen.isdisjoint(multiply(scalars["helper"], finished))
        assert seen.isdisjoint(scalars.values())
    for array in recorder.public:
        assert len(array) <= count * 10  # sizes, nonces, counts: nothing as long as a list


def test_no_party_receives_a_point_twice_or_a_list_that_it_can_compare_with_its_own():
    source = SeededSource(3)
    given = parties(drawn(3), label="bob")
    _, recorder = aligned(given, source=source)
    points, scalars = secrets_of(given, source)
    for peer in given.names:
        # what a party can make of its own values: multiples by any product of its own scalar
        own = [*points[peer], *multiply(scalars[peer], points[peer])]
        received = [each for array in recorder.received[peer] for each in pieces([array])]
        assert len(received) == len({*received})
        assert {*received}.isdisjoint(own)
        others = [each for other in given.names if other != peer for each in points[other]]
        assert {*received}.isdisjoint(others)


def test_a_list_shows_the_number_of_rows_and_not_how_many_lack_a_value():
    for missing in (0, 5):
        values = [None] * missing + [str(number) for number in range(8 - missing)]
        given = parties({"ada": [values, [*map(str, range(8))]], "bob": [[*map(str, range(8))]] * 2})
        _, recorder = aligned(given)
        assert [len(pieces([array])) for array in recorder.received["bob"][:1]] == [16]


def test_pseudonyms_depend_on_the_run_on_nonces_and_on_the_key():
    given = parties({"ada": [["1"], ["1"]], "bob": [["1"], ["1"]]})
    seen = []
    for run, seed in ((b"one", 1), (b"two", 1), (b"one", 2)):
        _, recorder = aligned(given, seed=seed, run=run)
        seen += sorted(pieces(recorder.received["helper"]))
    assert len({*seen}) == len(seen) == 3 * 2  # two keys, equal at both parties


def refusing(given, sentence, error=DataError, **options):
    with pytest.raises(error, match=sentence):
        aligned(given, **options)


def test_parties_with_too_few_rows_end_before_a_pseudonym_leaves():
    given = parties({"ada": [[*map(str, range(60))]], "bob": [["1"]]}, least=50)
    recorder = Recorder([*given.names, "helper"])
    refusing(given, r"bob has 1 rows, fewer than data.options.least = 50; collect more rows$", recorder=recorder)
    assert recorder.received == {}
    refusing(
        parties({"ada": [["1"]], "bob": [["2"]]}),
        r"have 0 rows in common, .* check that all tables write their keys in",
    )
    refusing(parties({"ada": [["1"]], "bob": [["2"]]}, helper=None), r"have 0 rows in common")
    refusing(parties({"ada": [["1", "2"]], "bob": [["2", "3"]]}, least=2), r"have 1 rows in common")


def test_an_agreed_size_holds_for_the_tables_of_others():
    given = parties({"ada": [["1", "2"]], "bob": [["1"]]}, sizes={"ada": 2, "bob": 7})
    refusing(given, r"bob comes with 1 rows, but 7 are agreed; ask bob for the reason")


@pytest.mark.parametrize("change", [{"names": ("other",)}, {"label": "bob"}, {"least": 2}, {"rows": "labelled"}])
def test_a_party_with_other_keys_or_roles_ends_the_run_before_a_pseudonym_leaves(change):
    tables = {"ada": [["1"]], "bob": [["1"]]}
    ours, theirs = parties(tables), parties(tables, **change)
    sent = []

    def total(question):
        assert question.to is None, "a message has left"
        sent.append(question)
        answers = [generator_question.answer(peer) for generator_question, peer in zip(questions, tables, strict=True)]
        return sum(answers)

    generators = [align(each, SeededSource(1), run=b"") for each in (ours, theirs)]
    questions = [next(each) for each in generators]
    for generator in generators:
        with pytest.raises(DataError, match=r"has other keys, roles or limits than the other peers; give all peers"):
            generator.send(total(questions[0]))
    assert len(sent) == 2


@pytest.mark.parametrize(
    ("count", "options", "sentence"),
    [
        (
            3,
            {"helper": None},
            r"ada, bob, dan have no helper, so every party would learn .*; set data.options.helper",
        ),
        (3, {"rows": "hidden"}, r'rows = "hidden" takes two parties and a helper, .* set it to "common"'),
        (2, {"rows": "hidden", "helper": None}, r'rows = "hidden" takes two parties and a helper'),
    ],
)
def test_roles_that_would_show_more_than_they_should_are_refused(count, options, sentence):
    refusing(parties(drawn(count), **options), sentence, PrivacyError)


@pytest.mark.parametrize("helper", ["helper", None])
def test_points_of_low_order_end_the_run(helper, monkeypatch):
    """A list of zeros would make all products zero, so that everybody seems to be common."""
    original = alignment._Alignment._multiplied

    def cheating(self, holder, read):
        honest = original(self, holder, read)
        return np.zeros_like(honest) if holder == "ada" else honest

    monkeypatch.setattr(alignment._Alignment, "_multiplied", cheating)
    refusing(parties(drawn(2), helper=helper), r"received no points; a peer does not follow", PrivacyError)


def test_a_helper_that_counts_more_rows_than_there_are_ends_the_run(monkeypatch):
    monkeypatch.setattr(alignment._Alignment, "choose", lambda *_: np.zeros((99, 2), np.int64))
    refusing(
        parties(drawn(2)),
        r"helper has counted 99 rows, of which \d are common, which the tables .*; choose",
        PrivacyError,
    )


@pytest.mark.parametrize("rows", ["common", "labelled", "hidden"])
@pytest.mark.parametrize(
    ("number", "place", "added"),
    [(0, 0, 1), (0, 0, -3), (0, 1, 1), (0, 2, 1), (3, 0, -9), (3, 1, 2), (3, 2, -1), (-1, 0, 1)],
    ids=["rows", "fewer", "agreed", "nonce", "order", "common", "by key", "positions"],
)
def test_who_alters_what_a_peer_states_ends_the_run_in_a_sentence(rows, number, place, added):
    """The sizes and nonces that parties state, what the helper counts, and that no positions are wrong."""
    given = parties(drawn(2), label="bob", rows=rows)
    peers, count = [*given.names, given.helper], 6
    numbers = iter(range(count))

    def total(question):
        answer = add_up(question, peers).copy()
        if question.to is None and next(numbers) == number % count:
            answer[place] += added
        return answer

    with pytest.raises(PrivacyError, match=r"all peers have received other numbers than \w+ has published"):
        answer_questions(align(given, SeededSource(1), run=b""), total)


def test_a_helper_that_claims_more_common_rows_than_a_party_has_positions_for_ends_the_run(monkeypatch):
    """With all rows of the label holder, nothing else shows that fewer than `least` are common."""
    tables = {"ada": [[*map(str, range(40, 100))]], "bob": [[*map(str, range(60))]]}
    given = parties(tables, label="bob", rows="labelled", least=50)
    refusing(given, "have 20 rows in common, fewer than data.options.least = 50")

    def lying(tokens):
        matches = match_rows(tokens)
        return replace(matches, key=np.where(np.arange(len(matches.key)) < 60, 0, ABSENT))

    monkeypatch.setattr(alignment, "match_rows", lying)
    refusing(given, "received positions that cannot be those of rows", PrivacyError)


def test_a_party_that_comes_with_too_many_rows_is_refused(monkeypatch):
    monkeypatch.setattr(alignment, "MAX_ROWS", 8)
    refusing(parties(drawn(2)), r"ada comes with 9 rows, more than 8; align a part of them")


def test_positions_that_are_none_end_the_run(monkeypatch):
    monkeypatch.setattr(alignment, "_column", lambda chosen, column: np.zeros(len(chosen()), np.int64) + 3 * column)
    refusing(
        parties(drawn(2)), r"received positions that cannot be those of rows; a peer does not follow", PrivacyError
    )


def test_each_answer_is_the_same_however_often_a_total_asks():
    given = parties(drawn(2, keys=2))

    peers = [*given.names, given.helper]

    def total(question):
        for peer in peers if question.to is None else question.to.among:
            np.testing.assert_array_equal(question.answer(peer), question.answer(peer))
        return add_up(question, peers)

    result = answer_questions(align(given, SecretSource(), run=b""), total)
    assert people(given, result, "ada", 1) == people(given, result, "bob", 1)
