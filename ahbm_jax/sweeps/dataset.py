"""The labelled dataset of a sweep: coordinates, units and where it comes from."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import inspect
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr

from ahbm_jax.config.schema import leaves as fields_of
from ahbm_jax.kernel_names import Kernel, resolve_kernel
from ahbm_jax.knobs import NUMBERS
from ahbm_jax.machine.params import Machine, Workload
from ahbm_jax.sweeps.request import Request
from ahbm_jax.sweeps.variables import VARIABLES, labels_of

SCHEMA = "ahbm-sweep-store/1"
TOKENS = ("context", "tile", "cache_tokens", "query_length", "query_start", "query_tile", "window")
UNITS = ("gb_per_s", "ghz", "cycles", "bytes", "ns", "subtiles", "pj_per_byte", "pj_per_mac")


def identity(request: Request) -> dict[str, Any]:
    """What a sweep's numbers depend on; two sweeps that agree in it give the same bits."""
    machine, workload = (dataclasses.asdict(x) for x in (request.machine, request.workload))
    return {
        "schema": SCHEMA,
        "version": importlib.metadata.version("ahbm_jax"),
        "jax": jax.__version__,
        "platform": jax.default_backend(),
        "precision": str(np.dtype(jax.numpy.result_type(float))),
        "kernel": _kernel_name(request.kernel),
        "kernel_sha256": _kernel_hash(request),
        "machine": request.machine.name,
        "machine_sha256": _hash(machine),
        "workload": request.workload.name,
        "workload_sha256": _hash(workload),
        "held": _json({name: _plain(x) for name, x in sorted(request.held.items())}),
        "variables": ", ".join(request.variables),
        "axes_sha256": _hash(_axes(request)),
    }


def coordinates(request: Request) -> xr.Dataset:
    """A dataset of coordinates alone, with the attributes of the whole."""
    coords: dict[str, Any] = {}
    for dimension in request.space.dimensions:
        for name, values in dimension.labels.items():
            coords[name] = (dimension.name, values, _about(name))
    for name in request.variables:
        own = VARIABLES[name].dimension
        if own is not None:
            coords[own] = (own, text(labels_of(name, request.machine)))
    return xr.Dataset(coords=coords, attrs=identity(request))


def dimensions_of(request: Request, name: str) -> tuple[str, ...]:
    """Dimensions of a variable."""
    own = VARIABLES[name].dimension
    return (*(d.name for d in request.space.dimensions), *([own] if own else []))


def shape_of(request: Request, name: str) -> tuple[int, ...]:
    """Shape of a variable."""
    own = (len(labels_of(name, request.machine)),) if VARIABLES[name].dimension else ()
    return (*request.space.shape, *own)


def attributes(request: Request, name: str) -> dict[str, Any]:
    """Unit and meaning of a variable; the meanings of a code as the CF conventions have them."""
    variable = VARIABLES[name]
    found: dict[str, Any] = {"units": variable.unit, "long_name": variable.doc}
    if variable.labels and variable.dimension is None:
        found["flag_values"] = list(range(len(variable.labels)))
        found["flag_meanings"] = " ".join(variable.labels)
    return found


def text(values: tuple[str, ...]) -> np.ndarray:
    """Texts as an array of any length."""
    return np.asarray(values, dtype=np.dtypes.StringDType())


def _about(name: str) -> dict[str, str]:
    if name in NUMBERS:
        return {"units": "tokens" if name in TOKENS else "1"}
    machine_fields = fields_of(Machine)
    if name not in machine_fields:
        return {}
    unit = next((u for u in UNITS if name.endswith("_" + u)), "1")
    return {"units": unit, "long_name": machine_fields[name].doc}


def _axes(request: Request) -> list[Any]:
    """Every value that varies, for hashing."""
    found = []
    for dimension in request.space.dimensions:
        for name, values in dimension.knobs.items():
            plain = [_plain(x) for x in values]
            found.append([dimension.name, name, plain])
    return found


def _plain(x: Any) -> Any:
    if isinstance(x, Machine | Workload):
        return dataclasses.asdict(x)
    return x.item() if isinstance(x, np.generic) else x


def _kernel_name(kernel: str | Kernel) -> str:
    return kernel if isinstance(kernel, str) else kernel.__name__


def _kernel_hash(request: Request) -> str:
    """Hash of the file that the kernel is in."""
    variant = request.held.get("variant") or request.first("variant")
    path = inspect.getsourcefile(inspect.unwrap(resolve_kernel(request.kernel, variant)))
    return hashlib.sha256(Path(path).read_bytes() if path else b"").hexdigest()


def _hash(plain: Any) -> str:
    return hashlib.sha256(_json(plain).encode()).hexdigest()


def _json(plain: Any) -> str:
    return json.dumps(plain, sort_keys=True, default=float)
