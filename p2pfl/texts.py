"""Text from others, such as names in a table or a message of a broker, made safe to show."""

import unicodedata

BREAKS = {"Cc", "Zl", "Zp"}
"""Categories of the characters that control a terminal or end a line."""


def printable(text: str, *, keep: str = "") -> str:
    r"""Return a text with an escape in place of every character that is invisible or controls how text is shown.

    Parameters
    ----------
    text
        The text.
    keep
        Characters that stay as they are, such as a newline.

    Examples
    --------
    >>> printable("ada" + chr(27) + "[2J"), printable("Zoë\n"), printable("a\nb", keep="\n")
    ('ada\\x1b[2J', 'Zoë\\n', 'a\nb')
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else ascii(each)[1:-1] for each in text)


def breaks(text: str) -> bool:
    """Return whether a text contains a control character or ends a line.

    Examples
    --------
    >>> breaks("blood pressure"), breaks("blood" + chr(10) + "pressure")
    (False, True)
    """
    return not text.isprintable() and any(unicodedata.category(each) in BREAKS for each in text)
