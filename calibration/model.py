"""What is fitted: the timing interpreter, as a function of the free parameters, of every row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ahbm_jax.interpret.evaluate import latency_function, leaf_names
from ahbm_jax.kernel_names import Kernel
from ahbm_jax.knobs import Point, point
from ahbm_jax.machine.costs import costs_ns
from ahbm_jax.machine.params import Machine, Workload, replace
from calibration.measurements import Measurements
from calibration.parameters import Parameters

Array = jax.Array
NUMBERS = {  # numbers of a point that are no times, by the machine's key
    "math.lanes": "math.lanes",
    "gemm.stream_depth": "gemm.stream_depth_subtiles",
    "scratch.capacity": "scratch.capacity_bytes",
    "units": "device.units",
    "cache_bytes": "device.cache_bytes",
}
ONE_HEAD = Workload(
    name="of each row",
    layers=1,
    query_heads=1,
    kv_heads=1,
    head_dim=128,
    storage="bfloat16",
    max_context_tokens=2**24,
    value_dim=None,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Latency of rows of measurements.

    Attributes:
      base: a point with the machine's numbers, whose sizes each row replaces.
      sizes: sizes by name, [rows].
      parameters: what is free.
    """

    base: Point
    sizes: dict[str, np.ndarray]
    parameters: Parameters

    @property
    def count(self) -> int:
        """Rows."""
        return len(next(iter(self.sizes.values())))

    def log_latency_ns(self, logs: Array, temperature_ns: Array | None = None) -> Array:
        """Logarithm of each row's latency, [rows], at logarithms of the parameters.

        `temperature_ns` [rows] is that of a smooth maximum; None for the hard one.
        """
        latency = latency_function(
            self.base.kernel, self.base.static, smooth=temperature_ns is not None
        )
        leaves = [leaf.reshape(-1) for leaf in self._leaves(logs)]
        if temperature_ns is not None:
            leaves.append(temperature_ns)
        return jnp.log(latency(*leaves))

    def _leaves(self, logs: Array) -> list[Array]:
        machine = replace(self.base.machine, self.parameters.settings(logs))
        numbers: dict[str, Any] = dict(self.base.leaves) | costs_ns(machine)
        numbers |= {name: _number(machine, key) for name, key in NUMBERS.items()}
        numbers |= self.sizes
        return [jnp.asarray(numbers[name], float) for name in leaf_names(self.base.static)]


def model(
    kernel: Kernel | str,
    variant: str,
    machine: Machine,
    rows: Measurements,
    parameters: Parameters,
) -> Model:
    """The model of a table of measurements on a machine."""
    sizes = rows.spec.sizes(rows.columns)
    single = "query_tokens" not in sizes or bool(np.all(sizes["query_tokens"] == 1))
    knobs = {"variant": variant, "query_length": 1 if single else 2, "context": 2, "C": 1, "P": 1}
    base = point(kernel, machine, ONE_HEAD, knobs)
    return Model(base=base, sizes=sizes, parameters=parameters)


def _number(machine: Machine, key: str) -> Any:
    section, _, field = key.partition(".")
    return getattr(getattr(machine, section), field)
