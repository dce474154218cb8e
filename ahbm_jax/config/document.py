"""A YAML file as plain data that knows the line of each key, read raising `ConfigError` alone."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import TypeAdapter, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError, YAMLWarning
from ruamel.yaml.nodes import Node, ScalarNode, SequenceNode

from ahbm_jax.config.problem import Loc, Problem, from_pydantic, shown
from ahbm_jax.errors import ConfigError

T = TypeVar("T")

# Anything else, a date say, stays the text it was written as.
_TYPED = tuple(f"tag:yaml.org,2002:{name}" for name in ("int", "float", "bool", "null"))


@dataclass(frozen=True, slots=True)
class Document:
    """What a YAML file holds, where, and what was wrong with it already when it was read."""

    path: Path
    data: Any
    lines: dict[Loc, int]
    problems: list[Problem] = field(default_factory=list)

    def check(self, problems: Iterable[Problem] = ()) -> None:
        """Raise `ConfigError` with the problems found in reading and these, in line order."""
        every = sorted([*self.problems, *problems], key=lambda problem: self._line(problem.loc))
        if every:
            raise ConfigError([p.text(f"{self.path}:{self._line(p.loc)}") for p in every])

    def _line(self, loc: Loc) -> int:
        while loc and loc not in self.lines:
            loc = loc[:-1]
        return self.lines.get(loc, 1)


def read(path: Path, schema: str, others: Collection[str] = ()) -> Document:
    """Read a file and check its `schema:` line.

    Args:
        path: the YAML file.
        schema: what its top-level `schema` key must be.
        others: the schemas of other kinds of file, which end the reading here: nothing in them
            could be right.

    Returns:
        The document without its `schema` key. Duplicate keys and the like are in its `problems`.

    Raises:
        ConfigError: for a file that cannot be read, is no YAML or no mapping.
    """
    document = parse(path)
    if not isinstance(document.data, dict):
        got = "an empty file" if document.data is None else shown(document.data)
        _fail(path, 1, got, "a mapping of keys to values", f"begin with `schema: {schema}`")
    given = document.data.pop("schema", None)
    if given != schema:
        other = given in others
        change = "give another file" if other else f"write `schema: {schema}`"
        document.problems.append(Problem(("schema",), shown(given), schema, change))
        if other:
            document.check()
    return document


def parse(path: Path) -> Document:
    """Read a file as plain data; `ConfigError` if that cannot be done at all."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        _fail(path, 1, "no such file", "a YAML file", "correct the path")
    except IsADirectoryError:
        _fail(path, 1, "a directory", "a YAML file", "give a file in it")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        _fail(
            path, line, f"bytes that are no UTF-8 ({error.reason})", "UTF-8 text", "save as UTF-8"
        )
    except (OSError, ValueError) as error:
        _fail(path, 1, f"a file that cannot be read ({error})", "a readable file", "correct it")
    try:
        reader = _Reader()
        data = reader.read(text)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        said = getattr(error, "problem", None) or str(error).splitlines()[0]
        position = getattr(error, "position", 0)  # of a character that YAML does not allow
        line = mark.line + 1 if mark is not None else text.count("\n", 0, position) + 1
        _fail(path, line, f"unreadable YAML ({said})", "YAML `key: value`", "correct this line")
    except RecursionError:
        _fail(path, 1, "values nested too deeply", "at most a few levels", "flatten them")
    return Document(path, data, reader.lines, reader.problems)


def scalar(text: str) -> Any:
    """One value as YAML reads it: `1e6` a number, `true` a switch; other text stays text."""
    reader = _Reader()
    try:
        value = reader.read(text)
    except (YAMLError, RecursionError):
        return text
    plain = isinstance(value, (bool, int, float, str)) and not reader.problems
    return value if plain else text


def validate(document: Document, kind: type[T], cross: Iterable[Problem] = ()) -> T:
    """The document as `kind` (a pydantic model or dataclass).

    Raises:
        ConfigError: with every problem: of reading, of validation, and those of `cross`.
    """
    try:
        result = TypeAdapter(kind).validate_python(document.data)
    except ValidationError as error:
        found = from_pydantic(kind, error.errors(include_url=False), document.lines)
        taken = {problem.loc for problem in found}
        document.check([*found, *(problem for problem in cross if problem.loc not in taken)])
        raise AssertionError("a validation error without a problem") from error
    document.check(cross)
    return result


def _fail(path: Path, line: int, got: str, allowed: str, change: str) -> NoReturn:
    raise ConfigError([Problem((), got, allowed, change).text(f"{path}:{line}")])


class _Reader:
    """Turns the nodes of one YAML text into plain data, noting lines and problems on the way."""

    def __init__(self) -> None:
        self.yaml = YAML(typ="safe", pure=True)
        self.lines: dict[Loc, int] = {}
        self.problems: list[Problem] = []
        self._seen: set[int] = set()

    def read(self, text: str) -> Any:
        with warnings.catch_warnings(action="ignore", category=YAMLWarning):
            return self.plain(self.yaml.compose(text))

    def plain(self, node: Node | None, loc: Loc = ()) -> Any:
        if node is None:
            return None
        self.lines.setdefault(loc, node.start_mark.line + 1)
        if isinstance(node, ScalarNode):
            return self.scalar(node, loc)
        if id(node) in self._seen:  # also keeps a self-reference or an alias bomb from expanding
            self._add(loc, "an alias of a mapping or list", "each value in place", "copy it here")
            return None
        self._seen.add(id(node))
        if isinstance(node, SequenceNode):
            return [self.plain(item, (*loc, i)) for i, item in enumerate(node.value)]
        return {key: self.plain(value, (*loc, key)) for key, value in self._entries(node, loc)}

    def scalar(self, node: ScalarNode, loc: Loc) -> Any:
        if node.tag not in _TYPED:
            return node.value
        try:
            return self.yaml.constructor.construct_object(node)
        except (YAMLError, ArithmeticError, LookupError, ValueError):
            got = f"{shown(node.value)} tagged as {node.tag.rsplit(':')[-1]}"
            self._add(loc, got, "a value of that type", "correct it")
            return None

    def _entries(self, node: Node, loc: Loc) -> Iterator[tuple[str, Node]]:
        """The keys of a mapping with their values, each key once; its line is noted."""
        keys: set[Loc] = set()
        for key, value in node.value:
            name = key.value if isinstance(key, ScalarNode) else "?"
            here, line = (*loc, name), key.start_mark.line + 1
            first = self.lines.setdefault(here, line)
            if not isinstance(key, ScalarNode):
                self._add(here, "a mapping or list as a key", "names as keys", "write a plain name")
            elif not name.isprintable():  # half a surrogate pair would stop pydantic
                self._add(here, "a key that cannot be printed", "names as keys", "correct it")
            elif here in keys:
                got = f"the key twice (lines {first} and {line})"
                self._add(here, got, "each key once", "remove one of them")
            else:
                keys.add(here)
                yield name, value

    def _add(self, loc: Loc, got: str, allowed: str, change: str) -> None:
        self.problems.append(Problem(loc, got, allowed, change))
