"""Statements that an implementation must fulfil, and the error that says which one it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Check = TypeVar("Check", bound=Callable[..., object])


class ContractError(AssertionError):
    """An implementation breaks a promise of its interface; the message names the promise."""


class Contract(dict[str, Check]):
    """The checks of one interface by name, in the order of definition.

    Examples
    --------
    >>> contract = Contract[Callable[[int], None]]()
    >>> @contract.add
    ... def numbers_are_positive(number):
    ...     require(number > 0, "got", number)
    >>> list(contract)
    ['numbers_are_positive']
    """

    def add(self, check: Check) -> Check:
        """Register a check under its own name and return it."""
        self[check.__name__] = check
        return check

    def run(self, *arguments: object) -> None:
        """Run all checks.

        Raises
        ------
        ContractError
            A promise is broken; the message names it.
        """
        for name, check in self.items():
            with named(name):
                check(*arguments)


def require(condition: bool, *details: object) -> None:  # noqa: FBT001 (it reads like assert)
    """Raise :class:`ContractError` with the details unless the condition holds.

    Raises
    ------
    ContractError
        The condition does not hold.
    """
    if not condition:
        raise ContractError(" ".join(str(detail) for detail in details))


def equal(actual: object, expected: object) -> None:
    """Raise :class:`ContractError` unless two values are equal.

    Raises
    ------
    ContractError
        They differ.
    """
    require(actual == expected, f"got {_short(actual)} instead of {_short(expected)}")


@contextmanager
def raising(kind: type[BaseException]) -> Iterator[None]:
    """Require that the body raises an error of this kind.

    Raises
    ------
    ContractError
        The body ends without an error.
    """
    try:
        yield
    except kind:
        return
    raise ContractError(f"no {kind.__name__} was raised")


@contextmanager
def named(check: str) -> Iterator[None]:
    """Name the check in what a failing body raises.

    Raises
    ------
    ContractError
        The body breaks a promise or takes too long.
    """
    promise = check.replace("_", " ")
    try:
        yield
    except ContractError as error:
        raise ContractError(f"broken promise: {promise}; {error}") from error
    except TimeoutError as error:
        raise ContractError(f"broken promise: {promise}; nothing happened before the deadline") from error


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
