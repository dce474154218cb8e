"""Which KV heads the selected SIPs hold, and how many requests that puts on one group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ahbm_jax.errors import UsageError
from ahbm_jax.machine.number import cdiv
from ahbm_jax.machine.params import Grid, Machine, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The KV heads of each selected SIP, by its number."""

    heads: dict[int, tuple[int, ...]]

    @property
    def most(self) -> int:
        """KV heads of the SIP that holds most: the one that takes longest."""
        return max(len(heads) for heads in self.heads.values())

    def users_per_group(self, users: int, grid: Grid, cubes: int) -> int:
        """Requests that one group of `cubes` CUBEs serves one after the other.

        A request has a part for each KV head; the groups of a SIP share its parts evenly.
        """
        return cdiv(users * self.most, grid.cubes // cubes)


def share(machine: Machine, workload: Workload, devices: Sequence[int] | None = None) -> Share:
    """KV heads spread evenly, in order, over the machine's SIPs.

    Args:
      machine: the machine.
      workload: the model.
      devices: numbers of the SIPs to look at; all by default.

    Raises:
      UsageError: a SIP that the machine has not, or none that holds a head.
    """
    sips = machine.grid.sips
    selected = range(sips) if devices is None else devices
    for device in selected:
        if not 0 <= device < sips:
            raise UsageError(
                f"`--device` names SIP {device}; `{machine.name}` has SIPs 0 to {sips - 1}: give "
                "some of those, or all"
            )
    each, more = divmod(workload.kv_heads, sips)
    heads: dict[int, tuple[int, ...]] = {}
    for sip in selected:
        first = sip * each + min(sip, more)
        heads[sip] = tuple(range(first, first + each + (sip < more)))
    if not any(heads.values()):
        raise UsageError(
            f"`--device` names SIPs without a KV head: `{workload.name}` has {workload.kv_heads} "
            f"KV heads, on SIPs 0 to {min(workload.kv_heads, sips) - 1} of `{machine.name}`"
        )
    return Share(heads=heads)
