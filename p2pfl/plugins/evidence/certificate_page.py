"""A certificate of forgetting in words, and as a page for the data protection officer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from p2pfl.plugins.evidence.certificate import PROMISE, Certificate
from p2pfl.results.facts import Block, FactTable, Note, Section, pairs
from p2pfl.results.formats import count_of
from p2pfl.results.pages.rendering import page

DATA_WORDS = {
    True: "are those of the old run",
    False: "DIFFER from those of the old run",
    None: "were not compared with those of the old run",
}
"""Whether the training samples of a peer that remains are those of the old run."""


def sentences(certificate: Certificate) -> Iterator[str]:
    """Yield what a certificate says, for a terminal."""
    yield f"{_who_left(certificate)} left {certificate.run}; {certificate.replay} is the run that never had them"
    if certificate.request:
        yield f"asked by: {certificate.request}"
    yield f"{count_of(certificate.rounds, 'round')} were played again; the models are equal {certificate.precision}"
    for same, words in DATA_WORDS.items():
        if peers := [peer for peer, each in certificate.data.items() if each is same]:
            yield f"the data of {', '.join(peers)} {words}"
    for each in certificate.accepted:
        yield f"accepted: {each}"
    if certificate.deleted:
        yield f"{count_of(len(certificate.deleted), 'file')} of the old run were deleted"
    for emptied in certificate.emptied:
        yield f"{', '.join(emptied.keys)} of {emptied.path} of the old run were deleted"
    for each in certificate.undone:
        yield f"not done: {each}"
    if certificate.signer:
        yield f"signed {certificate.signed}"


def certificate_page(certificate: Certificate) -> str:
    """Return a certificate as a page."""
    withdrawn = [(each.peer, each.people, each.digest) for each in certificate.withdrawals]
    names = sorted(certificate.models_before.keys() | certificate.models_after.keys())
    models = [
        (name, certificate.models_before.get(name, "none")[:16], certificate.models_after.get(name, "none")[:16])
        for name in names
    ]
    deleted = [(each.path, each.sha256) for each in certificate.deleted]
    deleted += [(f"{each.path}: {', '.join(each.keys)}", each.sha256) for each in certificate.emptied]
    sections: list[Section] = [
        (
            "what",
            "What left",
            [
                pairs(
                    "",
                    {
                        "who": _who_left(certificate),
                        "old run": certificate.run,
                        "replay": certificate.replay,
                        "asked by": certificate.request or "not stated",
                        "date": certificate.date,
                        "signed": certificate.signed,
                        "GDPR, article": ", ".join(certificate.law),
                    },
                ),
                FactTable("People", ("owner", "people", "keyed hash of their keys"), withdrawn, text=3)
                if withdrawn
                else None,
            ],
        ),
        (
            "how",
            "How",
            [
                PROMISE,
                pairs(
                    "",
                    {
                        "method": certificate.method,
                        "rounds played again": str(certificate.rounds),
                        "equal": certificate.precision,
                        "experiment before (SHA-256)": certificate.experiment_before,
                        "experiment after": certificate.experiment_after,
                        "starts from": f"the model {certificate.start}" if certificate.start else "the seed",
                    },
                ),
                FactTable("Models", ("file", "before (SHA-256)", "after"), models, text=3),
                FactTable(
                    "Data of those who remain",
                    ("peer", "training samples"),
                    [(peer, DATA_WORDS[same]) for peer, same in certificate.data.items()],
                    text=2,
                ),
            ],
        ),
        (
            "deleted",
            "Deleted",
            [FactTable("", ("file of the old run", "SHA-256 before"), deleted, text=2) if deleted else "Nothing."],
        ),
        ("remains", "What remains", _capitalised([*certificate.remains, *certificate.accepted])),
        (
            "undone",
            "Not done",
            _capitalised(certificate.undone) or ["Nothing is open."],
        ),
        ("sign", "Signatures", [Note("", style="signature"), Note("", style="signature")]),
    ]
    return page(f"Certificate of erasure: {_who_left(certificate)}", sections)


def _capitalised(phrases: Sequence[str]) -> list[Block]:
    return [f"{each[0].upper()}{each[1:]}." for each in phrases]


def _who_left(certificate: Certificate) -> str:
    return ", ".join([*certificate.peers, *(each.who for each in certificate.withdrawals)])
