"""Values as a person reads them in a terminal."""


def printable(text: str, limit: int = 40) -> str:
    """At most `limit` characters on one line, none of which a terminal would obey: ids and models come from clients."""
    clean = "".join(one if one.isprintable() else "?" for one in text[: limit + 1])
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def tokens(value: float) -> str:
    """Whole tokens."""
    return f"{value:.0f}"


def seconds(value: float | None) -> str:
    """Seconds to a tenth below a hundred, whole ones above; a dash for what is not known."""
    if value is None:
        return "-"
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def share(value: float | None) -> str:
    """A part of one in percent; a dash for what is not known."""
    return "-" if value is None else f"{100 * value:.0f} %"


def rate(value: float | None) -> str:
    """A number a second; a dash for what is not known."""
    return "-" if value is None else f"{value:.2f}" if value < 10 else f"{value:.0f}"
