"""How much scratch a program needs: a bump allocator whose scopes recycle (ADR-0063)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Number = Any


class Scratch:
    """Bytes in use and their peak. A scope of n arenas needs n times what is allocated inside."""

    def __init__(self, zero: Number, maximum: Callable[[Number, Number], Number]) -> None:
        self.used = zero
        self.peak = zero
        self._maximum = maximum

    def allocate(self, size_bytes: Number) -> None:
        """Take `size_bytes` until the enclosing scope ends."""
        self.used = self.used + size_bytes
        self.peak = self._maximum(self.peak, self.used)

    @contextmanager
    def scope(self, buffers: int) -> Iterator[None]:
        """Free on exit what is allocated inside, having held `buffers` copies of it."""
        outer_used, outer_peak = self.used, self.peak
        self.peak = self.used
        yield
        inside = self.peak - outer_used
        self.used = outer_used
        self.peak = self._maximum(outer_peak, outer_used + buffers * inside)
