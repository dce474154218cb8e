"""Option types of the command line: token counts, rectangles and grids."""

from __future__ import annotations

import re
from typing import Any

import click

UNITS = {"": 1, "k": 2**10, "m": 2**20}


class Tokens(click.ParamType[int]):
    """A whole number, or one with a binary unit: `128k` is 131072."""

    name = "tokens"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """The number of tokens."""
        found = re.fullmatch(r"(-?\d{1,20})([kKmM]?)", str(value).replace("_", ""))
        if found is None:
            self.fail(f"{value!r}; allowed: a whole number, or one with k or M: 8192, 8k, 1M")
        return int(found[1]) * UNITS[found[2].lower()]


class Pair(click.ParamType[tuple[int, int]]):
    """Two whole numbers with a separator between them."""

    def __init__(self, name: str, separator: str, example: str) -> None:
        self.name, self.separator, self.example = name, separator, example

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, int]:
        """The two numbers."""
        if isinstance(value, tuple):
            return value
        parts = str(value).lower().split(self.separator)
        if len(parts) != 2 or not all(re.fullmatch(r"\s*\d{1,9}\s*", part) for part in parts):
            self.fail(f"{value!r}; allowed: {self.name}, two whole numbers such as {self.example}")
        return int(parts[0]), int(parts[1])


TOKENS = Tokens()
RECTANGLE = Pair("RxC", "x", "2x4")
GRID = Pair("C,P", ",", "2,4")
