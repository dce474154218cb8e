"""One command: an operation with its operands, before an interpreter gives it a meaning."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ahbm_jax.tl.handle import Handle, Shape
from ahbm_jax.tl.ops import OPS, OpSpec

Operand = Any  # a handle, a reference to HBM, or a number


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Command:
    """An operation on `operands` that makes a matrix of `shape` (in `out` where given)."""

    op: str
    operands: tuple[Operand, ...] = ()
    shape: Shape = (1, 1)
    element_bytes: int = 4
    out: Handle | None = None
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def spec(self) -> OpSpec:
        """The operation's entry in the op set."""
        return OPS[self.op]

    @property
    def handles(self) -> tuple[Handle, ...]:
        """The operands that are in scratch."""
        return tuple(operand for operand in self.operands if isinstance(operand, Handle))

    @property
    def elements(self) -> Any:
        """Elements that a MATH operation touches: the larger of its result and its operands."""
        rows, cols = self.shape
        for handle in self.handles:
            if _is_one(cols) and not _is_one(handle.shape[1]):
                cols = handle.shape[1]
        return rows * cols


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1
