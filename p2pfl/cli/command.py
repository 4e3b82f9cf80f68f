"""The interface of a command, whether the core, a plug-in or a third party provides it."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

GROUPS = {
    "learn": "train models together, with live peers or simulated ones",
    "plan": "what an experiment needs, costs and protects, before it runs",
    "statistics": "exact results over the data of all peers, which stay where they are",
    "models": "use a saved model",
    "study": "one experiment under many settings; the worth of each peer's data",
    "results": "tables, pages and files of a run",
    "evidence": "what a run proves to others, and what it forgets",
    "operate": "keys, brokers and devices",
}
"""Groups of ``p2pfl --help``, in its order; a plug-in may add others."""


REQUIRED = object()
"""Mark of an argument without a default."""


@dataclass(frozen=True)
class Argument:
    """Declaration of a positional argument, in the annotation of a field of :class:`Options`.

    Attributes
    ----------
    help
        Its line in the help of the command. A default is added to it.
    metavar
        Its name in the help; by default that of the field.
    read
        Function that converts its text, in place of the type of the field.
    """

    help: str
    metavar: str | None = None
    read: Callable[[str], Any] | None = None


@dataclass(frozen=True)
class Option(Argument):
    """Declaration of an option ``--name``, in the annotation of a field of :class:`Options`.

    A field without a default is required. A list takes the option several times.

    Attributes
    ----------
    flag
        The option, if it is not called like the field.
    nargs
        ``?`` or ``+`` as in argparse; ``?`` without a value is the empty text.
    choices
        Function that returns the allowed values; a ``Literal`` lists them in the type.
    exclusive
        True if it works with no other exclusive option.
    """

    flag: str = ""
    nargs: Literal["?", "+"] | None = None
    choices: Callable[[], Sequence[str]] | None = None
    exclusive: bool = False


class Options(Namespace):
    """Arguments of a command; its docstring is the summary, and its annotated fields are the arguments.

    Attributes
    ----------
    command, line
        Name of the command, and the whole line, to repeat it.
    one_table
        What its user does where the tables of other peers are missing.

    Examples
    --------
    >>> from typing import Annotated
    >>> class Hello(Options):
    ...     name: Annotated[str, Argument("name to greet")]
    ...     times: Annotated[int, Option("how often", "N")] = 1
    >>> parser = ArgumentParser(prog="hello")
    >>> add_arguments(parser, Hello)
    >>> parser.parse_args(["ada", "--times", "3"], Hello()).times
    3
    """

    command: str = ""
    line: str = ""
    one_table: ClassVar[str] = "work where the tables of all peers are"


@dataclass(frozen=True)
class Command:
    """A command of ``p2pfl``. A package registers it as an entry point of the group ``p2pfl.commands``, by its name.

    ``p2pfl --help`` imports the module that holds it, which should therefore import little.

    Attributes
    ----------
    group
        What people do with it: one of :data:`GROUPS`, or another word.
    options
        Its arguments and its summary; :mod:`p2pfl.cli.options` has those that commands share.
    function
        A function as ``package.module:name``, which takes the options and returns the exit status. It is imported when
        the command runs.
    """

    group: str
    options: type[Options]
    function: str

    @property
    def summary(self) -> str:
        """A line for ``p2pfl help``."""
        return (self.options.__doc__ or "").partition("\n")[0].rstrip(".")


def add_arguments(parser: ArgumentParser, options: type[Options]) -> None:
    """Add the arguments that options declare: those of their bases, the last of them first, then their own."""
    exclusive = None
    for name, kind, declared in _fields(options):
        default = getattr(options, name, REQUIRED)
        required, default = default is REQUIRED, None if default is REQUIRED else default
        if not isinstance(declared, Option):
            nargs = "+" if get_origin(kind) is list else None if required else "?"
            parser.add_argument(name, metavar=declared.metavar, help=declared.help, nargs=nargs, default=default)
            continue
        settings: dict[str, Any] = {"dest": name, "help": declared.help}
        if kind is bool:
            settings["action"] = "store_true"
        else:
            settings |= {
                "metavar": declared.metavar,
                "type": declared.read or (kind if kind in (int, float) else str),
                "default": default,
            }
            if declared.nargs is not None:
                settings |= {"nargs": declared.nargs} | ({"const": ""} if declared.nargs == "?" else {})
            elif get_origin(kind) is list:
                settings |= {"action": "append", "default": []}
            else:
                settings["required"] = required
            if choices := get_args(kind) if get_origin(kind) is Literal else declared.choices and declared.choices():
                settings["choices"] = choices
        if default is not None and default is not False:
            settings["help"] = f"{declared.help} (default: %(default)s)".strip()
        if declared.exclusive and exclusive is None:
            exclusive = parser.add_mutually_exclusive_group()
        group = exclusive if declared.exclusive and exclusive is not None else parser
        group.add_argument(declared.flag or f"--{name.replace('_', '-')}", **settings)


def _fields(options: type[Options]) -> Iterator[tuple[str, Any, Argument]]:
    """Yield the name, type and declaration of each argument; ``None`` is left out of types."""
    for name, hint in get_type_hints(options, include_extras=True).items():
        kind, *notes = get_args(hint) or (hint,)
        for declared in notes:
            if isinstance(declared, Argument):
                yield name, get_args(kind)[0] if NoneType in get_args(kind) else kind, declared
