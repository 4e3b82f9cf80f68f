"""A certificate of forgetting in words, and as a page for the data protection officer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from p2pfl.plugins.evidence.certificate import FILE, PROMISE, Certificate, EmptiedFile
from p2pfl.plugins.evidence.withdrawal_request import WithdrawalRequest
from p2pfl.results.facts import Block, Bullets, FactTable, Happening, Note, Section, pairs
from p2pfl.results.formats import count_of
from p2pfl.results.pages.rendering import page

DATA_WORDS = {
    True: "are those of the old run",
    False: "DIFFER from those of the old run",
    None: "were not compared with those of the old run",
}
"""Words for the comparison of the training samples of a peer that remains with those of the old run."""

LEARNED_WORDS = {
    "explained": "coefficients, tests, importances",
    "statistics": "means and deviations of features",
}
"""Words for the keys of a summary that are deleted, apart from those of scores."""

SHOWN_DIGITS = 16
"""Digits of the digest of a file that a page shows."""

DIGITS = "A SHA-256 tells a file from all others; {} has all of its digits"

RECIPIENTS = (
    "Give this certificate to all who have received the old model, and ask them to delete it (GDPR, article 19)."
)

NO_PROMISE = (
    "It does not promise that nobody kept a copy, that the old and the new models together do not show who left, or "
    "that a model is anonymous."
)

ACCEPTED = "Whoever has both the old and the new model learns this, which was accepted:"


def sentences(certificate: Certificate) -> Iterator[str]:
    """Yield what a certificate says, for a terminal."""
    yield f"{_who_left(certificate)} left {certificate.run}; {certificate.replay} is the run that never had them"
    yield from (f"asked by: {each}" for each in _asked(certificate))
    yield f"{count_of(certificate.rounds, 'round')} were played again; the models are equal {certificate.precision}"
    data = {peer: _data_words(certificate, peer) for peer in certificate.data}
    for words in dict.fromkeys(data.values()):
        yield f"the data of {', '.join(peer for peer, each in data.items() if each == words)} {words}"
    for each in certificate.accepted:
        yield f"accepted: {each}"
    if certificate.deleted:
        yield f"{count_of(len(certificate.deleted), 'file')} of the old run were deleted"
    if certificate.others:
        yield _copies(certificate)
    for emptied in certificate.emptied:
        yield f"{_emptied(emptied)} in {emptied.path} of the old run were deleted"
    for each in certificate.undone:
        yield f"not done: {each}"
    if certificate.signer:
        yield f"signed {certificate.signed}"


def asked_by(request: WithdrawalRequest) -> str:
    """Return in words who has signed a request, when and why."""
    reason = f": {request.reason}" if request.reason else ""
    people = f" for {request.who}" if request.people else ""
    return f"{request.peer}, who signed the request{people} on {date_words(request.date)}{reason}"


def _asked(certificate: Certificate) -> list[str]:
    """Return who asked, and whether they signed."""
    requests = [msgspec.convert(table, WithdrawalRequest) for table in certificate.requests]
    words = [f"{certificate.request} (not signed by the peer)"] if certificate.request else []
    return [*map(asked_by, requests), *words]


def certificate_page(certificate: Certificate) -> str:
    """Return a certificate as a page, whose first lines a data protection officer reads without the rest."""
    withdrawn = [(each.peer, each.people, each.digest) for each in certificate.withdrawals]
    sections: list[Section] = [
        (
            "what",
            "Who left",
            [
                pairs(
                    "",
                    {
                        "who": _who_left(certificate),
                        "from the files of": ", ".join(certificate.holders) or "not stated",
                        "asked by": "; ".join(_asked(certificate)) or "not stated",
                        "erased on": date_words(certificate.date),
                        "run that had the data": certificate.run,
                        "run that never had them": certificate.replay,
                        "GDPR, article": ", ".join(certificate.law),
                    },
                ),
                FactTable("People, by a hash of their identifiers", ("owner", "people", "hash"), withdrawn, text=3)
                if withdrawn
                else None,
                "The owner keeps the key of the hash, withdrawn.key, and can prove with it whose identifiers these are."
                if withdrawn
                else None,
            ],
        ),
        ("how", "How the new models were made", _method(certificate)),
        ("deleted", "What was deleted", _deleted(certificate)),
        (
            "remains",
            "What remains",
            [
                Note(f"{_copies(certificate)[0].upper()}{_copies(certificate)[1:]}.", style="warning")
                if certificate.others
                else None,
                Bullets([*map(Happening, _capitalised(certificate.remains))]),
                RECIPIENTS,
                *([Note(ACCEPTED, style="warning")] if certificate.accepted else []),
                Bullets([*map(Happening, _capitalised(certificate.accepted))]) if certificate.accepted else None,
            ],
        ),
        (
            "undone",
            "What was not done",
            [
                Bullets([*map(Happening, _capitalised(certificate.undone))])
                if certificate.undone
                else f"Nothing is open in the files of {', '.join(certificate.holders)}."
            ],
        ),
        (
            "promise",
            "What this certificate promises",
            [
                PROMISE,
                NO_PROMISE,
            ],
        ),
        (
            "sign",
            "Signatures",
            [
                _signed(certificate),
                Note("", style="signature"),
                Note("", style="signature"),
            ],
        ),
    ]
    head = [Note(_verdict(certificate), style="warning" if certificate.undone else "verdict")]
    return page(f"Certificate of erasure: {_who_left(certificate)}", sections, head=head)


def _verdict(certificate: Certificate) -> str:
    """Return in plain words what was done."""
    rounds = count_of(certificate.rounds, "round")
    files = len(certificate.deleted) + len(certificate.emptied)
    gone = f"What the old run had learned was deleted ({count_of(files, 'file')})."
    return (
        f"{_who_left(certificate)} left {certificate.run}. All {rounds} of the training were played again as if their "
        f"data had never been there. {gone if files else 'Nothing of the old run was deleted.'}"
    )


def _method(certificate: Certificate) -> list[Block | None]:
    names = sorted(certificate.models_before.keys() | certificate.models_after.keys())
    models = [
        (
            name,
            certificate.models_before.get(name, "none")[:SHOWN_DIGITS],
            certificate.models_after.get(name, "none")[:SHOWN_DIGITS],
        )
        for name in names
    ]
    return [
        pairs(
            "",
            {
                "method": "all rounds were played again without the data",
                "rounds": str(certificate.rounds),
                "equal to models that never had the data": certificate.precision,
                "started from": f"the model {certificate.start}" if certificate.start else "the same random numbers",
                "settings before (SHA-256)": certificate.experiment_before or "unknown",
                "settings after": certificate.experiment_after,
            },
        ),
        FactTable(f"Models. {DIGITS.format(FILE)}", ("file", "before", "after"), models, text=3),
        FactTable(
            "Data of those who remain",
            ("peer", "training samples"),
            [(peer, _data_words(certificate, peer)) for peer in certificate.data],
            text=2,
        )
        if certificate.data
        else None,
    ]


def _data_words(certificate: Certificate, peer: str) -> str:
    """Return whether the training samples of a peer are those of the old run, in words."""
    same = certificate.data[peer]
    fewer = same is None and any(each.peer == peer for each in certificate.withdrawals)
    return f"{DATA_WORDS[same]}, which had people who left" if fewer else DATA_WORDS[same]


def _signed(certificate: Certificate) -> str:
    """Return who signed, and how to check it."""
    if not certificate.signer:
        return f"Nobody has signed the file {FILE} yet."
    return (
        f"The file {FILE} is signed {certificate.signed}. Compare this fingerprint with that of the officer's key. The "
        f"command p2pfl forget --check {certificate.replay} verifies it; with the directories of all peers and "
        "--roster also who has signed, and who has not."
    )


def _deleted(certificate: Certificate) -> list[Block | None]:
    rows = [(each.path, "the whole file", each.sha256[:SHOWN_DIGITS]) for each in certificate.deleted]
    rows += [(each.path, _emptied(each), each.sha256[:SHOWN_DIGITS]) for each in certificate.emptied]
    table = FactTable(DIGITS.format(FILE), ("file of the old run", "deleted", "SHA-256 before"), rows, text=3)
    return [table if rows else "Nothing."]


def _copies(certificate: Certificate) -> str:
    """Return whose copies the certificate is about, and whose it is not."""
    return (
        f"this is about the files of {', '.join(certificate.holders)}; {', '.join(certificate.others)} had the old "
        "model, too: read their certificates as well"
    )


def _emptied(file: EmptiedFile) -> str:
    return ", ".join(dict.fromkeys(LEARNED_WORDS.get(key, "scores") for key in file.keys))


def date_words(text: str) -> str:
    """Return a date as people write it; as it stands where it is none."""
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{date.day} {date:%B %Y, %H:%M %Z}"


def _capitalised(phrases: Sequence[str]) -> list[str]:
    return [f"{each[0].upper()}{each[1:]}." for each in phrases]


def _who_left(certificate: Certificate) -> str:
    return ", ".join([*certificate.peers, *(each.who for each in certificate.withdrawals)]) or "people of other peers"
