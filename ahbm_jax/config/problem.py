"""One thing wrong with a config, and how pydantic's findings become such problems."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic_core import ErrorDetails

from ahbm_jax.errors import closest, nearest

Loc = tuple[str | int, ...]

_MAPPING_ERRORS = ("model_type", "dataclass_type", "dict_type")
_UNKNOWN_ERRORS = ("extra_forbidden", "unexpected_keyword_argument")


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong at `loc`: what was got, what is allowed there and what to change."""

    loc: Loc
    got: str
    allowed: str
    change: str

    def text(self, where: str) -> str:
        """The problem as one line that starts with `where` (a file and line, or an option)."""
        key = f" `{dotted(self.loc)}`:" if self.loc else ""
        return f"{where}:{key} got {self.got}; allowed: {self.allowed}; change: {self.change}"


def dotted(loc: Loc) -> str:
    """`("panels", 0, "users")` as `panels[0].users`; the `value` of a sourced number is implied."""
    parts = loc[:-1] if len(loc) > 1 and loc[-1] == "value" else loc
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    text = text.removeprefix(".")
    return text if text.isprintable() else ascii(text)


def shown(value: Any) -> str:
    """A value as a message shows it: short, printable, in YAML's words."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (Mapping, list, tuple)):
        return f"a {'mapping' if isinstance(value, Mapping) else 'list'}"
    if isinstance(value, int) and value.bit_length() > 64:  # too long for Python to print, perhaps
        return "a whole number beyond 64 bits"
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."


def shortened(names: Sequence[str]) -> str:
    """Names for a message: the first twenty of them."""
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")


def from_pydantic(
    model: type, errors: Sequence[ErrorDetails], known: Collection[Loc]
) -> list[Problem]:
    """Pydantic's findings about one document as problems.

    Args:
        model: the pydantic model or dataclass that was validated against.
        errors: `ValidationError.errors()`.
        known: the locations that the document has. Pydantic adds the names of union members to a
            location; what is not in the document is cut off.

    Returns:
        One problem a location, in pydantic's order. A missing key is left out where an unknown
        one beside it must be meant for it.
    """
    problems: dict[Loc, Problem] = {}
    meant: set[Loc] = set()
    for error in errors:
        loc, kind = error["loc"], error["type"]
        if kind == "too_short" and len(error["input"]) >= error.get("ctx", {})["min_length"]:
            continue  # its items were refused one by one
        while kind != "missing" and loc not in known:
            loc = loc[:-1]
        if kind in _UNKNOWN_ERRORS:
            problems[loc], intended = _unknown(model, loc)
            meant.add((*loc[:-1], intended))
        elif kind == "missing":
            problems[loc] = _missing(model, loc)
        else:
            problems.setdefault(loc, _wrong(model, loc, error))
    missing = {error["loc"] for error in errors if error["type"] == "missing"}
    return [problem for loc, problem in problems.items() if loc not in meant & missing]


def _unknown(model: type, loc: Loc) -> tuple[Problem, str]:
    siblings = list(_fields(_at(model, loc[:-1])))
    name = str(loc[-1])
    intended = closest(name, siblings)
    change = f"rename it to `{intended}`" if intended else "remove it"
    allowed = shortened(siblings) + nearest(name, siblings)
    return Problem(loc, "an unknown key", allowed, change), intended or ""


def _missing(model: type, loc: Loc) -> Problem:
    value = _sourced("...") if _is_sourced(_at(model, loc)) else "..."
    return Problem(loc, "nothing", _allowed(model, loc), f"add `{loc[-1]}: {value}`")


def _wrong(model: type, loc: Loc, error: ErrorDetails) -> Problem:
    kind, value = error["type"], error["input"]
    allowed = _allowed(model, loc) or error["msg"].removeprefix("Input should be ")
    if kind in _MAPPING_ERRORS and _is_sourced(_at(model, loc)):
        written = "..." if isinstance(value, (list, type(None))) else shown(value)
        change = f"write `{loc[-1]}: {_sourced(written)}`"
        return Problem(loc, f"{shown(value)} without a source", allowed, change)
    change = f"give {allowed}"
    if kind.startswith("greater"):
        change = "raise it"
    elif kind.startswith("less"):
        change = "lower it"
    return Problem(loc, shown(value), allowed, change)


def _sourced(value: str) -> str:
    return f'{{value: {value}, source: "where it comes from"}}'


def _allowed(model: type, loc: Loc) -> str:
    """The rule that the schema keeps for a location or the nearest one above it, or ""."""
    for depth in range(len(loc), 0, -1):
        info = _fields(_at(model, loc[: depth - 1])).get(loc[depth - 1])
        extra = info.json_schema_extra if info is not None else None
        if extra and "allowed" in extra:
            return str(extra["allowed"])
        keys = list(_fields(_at(model, loc)))
        if keys and depth == len(loc):
            return f"a mapping with the keys {shortened(keys)}"
    return ""


def _at(model: Any, loc: Loc) -> Any:
    """The type that the schema has at `loc`, without its `Optional`, `tuple` or `Annotated`."""
    for part in loc:
        if isinstance(part, str):
            info = _fields(model).get(part)
            model = info.annotation if info is not None else None
        while args := get_args(model):
            model = args[0]
    return model


def _fields(model: Any) -> Mapping[Any, Any]:
    """Fields of a pydantic model or dataclass; of anything else, none."""
    return getattr(model, "__pydantic_fields__", {})


def _is_sourced(model: Any) -> bool:
    return set(_fields(model)) == {"value", "source"}
