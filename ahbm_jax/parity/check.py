"""Run a kernel on parity cases, or on a user's arrays, and measure it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jax.sharding import Mesh

from ahbm_jax.errors import UsageError
from ahbm_jax.kernel_names import Kernel, reference, resolve_kernel
from ahbm_jax.outputs import attention
from ahbm_jax.parity.case import Case
from ahbm_jax.parity.hard import hard_cases
from ahbm_jax.parity.metric import Errors, measure
from ahbm_jax.parity.random_set import random_cases
from ahbm_jax.tl.program import PER_CUBE, heads_of

# Arguments of `attention` that say what is right, rather than how it is computed.
REFERENCE = ("kv_len", "softmax_scale", "query_start", "window", "sinks", "softcap")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """What a kernel made of a case.

    Attributes:
      name: name of the case.
      right: the right answer in words.
      seen: public reports of kernels that got it wrong.
      shapes: H, K, T, S, D and the storage type.
      settings: keyword arguments of `attention`.
      errors: against the float64 reference.
      rerun_equal: whether a second run gave the same bits.
      exact: whether the output is the exact one; None where the case has none.
    """

    name: str
    right: str
    seen: str
    shapes: Mapping[str, Any]
    settings: Mapping[str, Any]
    errors: Errors
    rerun_equal: bool
    exact: bool | None

    @property
    def passed(self) -> bool:
        """Whether everything about the case is right."""
        return self.errors.passed and self.rerun_equal and self.exact is not False

    def row(self) -> dict[str, Any]:
        """The result as plain values."""
        return {**asdict(self), "passed": self.passed}


def run_case(
    case: Case,
    *,
    kernel: str | Kernel = "decode",
    variant: str | None = None,
    mesh: Mesh | None = None,
) -> CaseResult:
    """Run `kernel` on a case twice and measure it.

    Args:
      case: the input.
      kernel: as for `attention`.
      variant: instead of the case's own.
      mesh: device mesh with axes `cube` and `pe`, of the sizes of the case's grid.
    """
    settings = {**case.settings} if variant is None else {**case.settings, "variant": variant}
    if heads_of(resolve_kernel(kernel, settings.get("variant"))) == PER_CUBE and mesh is None:
        settings |= _a_head_on_each_cube(case)
    inputs: tuple[Any, Any, Any] = case.q, case.k, case.v
    runs = [attention(kernel, *inputs, mesh=mesh, **settings) for _ in range(2)]
    (o, lse), again = runs[0], runs[1]
    _check_finite(case)
    asked = {name: settings[name] for name in REFERENCE if name in settings}
    right = reference()(*inputs, **asked)
    storage = str(case.q.dtype)
    return CaseResult(
        name=case.name,
        right=case.right,
        seen=case.seen,
        shapes=_shapes(case),
        settings=settings,
        errors=measure(o, lse, right, storage, exact_p=settings.get("exact_p", False)),
        rerun_equal=_bits((o, lse)) == _bits(again),
        exact=None if case.exact is None else bool(np.array_equal(np.asarray(o), case.exact)),
    )


def _a_head_on_each_cube(case: Case) -> dict[str, Any]:
    """Settings that give the case as many CUBEs as a KV head has query heads."""
    cubes, (_, pes) = len(case.q) // len(case.k), case.settings.get("grid", (1, 1))
    start = case.settings.get("start_cube", 0)
    return {"grid": (cubes, pes), "group_shape": None, "start_cube": start % cubes}


def check_parity(
    seed: int, count: int, *, kernel: str | Kernel = "decode", variant: str | None = None
) -> list[CaseResult]:
    """Every hard case, and `count` random ones, all drawn from `seed`."""
    cases = [*hard_cases(seed), *random_cases(seed, count, kernel)]
    return [run_case(case, kernel=kernel, variant=variant) for case in cases]


def check_input(
    q: Any, k: Any, v: Any, *, kernel: str | Kernel = "decode", **settings: Any
) -> CaseResult:
    """Measure `kernel` on a user's q [H, T, D], k and v [K, S, D].

    Raises:
      UsageError: an argument of `attention` is out of range, or a visible value is not finite.
    """
    mesh = settings.pop("mesh", None)
    q, k, v = (np.asarray(x) for x in (q, k, v))
    return run_case(Case(name="input", q=q, k=k, v=v, settings=settings), kernel=kernel, mesh=mesh)


def _check_finite(case: Case) -> None:
    kv_len = case.settings.get("kv_len")
    for name, x in (("q", case.q), ("k", case.k[:, :kv_len]), ("v", case.v[:, :kv_len])):
        bad = np.argwhere(~np.isfinite(x.astype(np.float32)))
        if len(bad):
            at = tuple(int(i) for i in bad[0])
            raise UsageError(
                f"`{name}` has {x[at]} at {at}, and {len(bad)} such values in all; finite values "
                "are needed in `q` and below `kv_len` in `k` and `v`"
            )


def _shapes(case: Case) -> dict[str, Any]:
    (heads, rows, dim), (kv_heads, tokens, _) = case.q.shape, case.k.shape
    return {
        "H": heads,
        "K": kv_heads,
        "T": rows,
        "S": tokens,
        "D": dim,
        "Dv": case.v.shape[2],
        "storage": str(case.q.dtype),
    }


def _bits(arrays: Any) -> list[bytes | None]:
    return [None if x is None else np.asarray(x).tobytes() for x in arrays]
