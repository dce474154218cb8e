"""From a kernel's name, file or function to the function: the one place that looks kernels up."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from ahbm_jax.errors import UsageError, nearest

Kernel = Callable[..., object]
SHIPPED = "opt3"  # the variant that ADR-0060 ships, of kernels that have it


def resolve_kernel(kernel: str | Kernel, variant: str | None = None) -> Kernel:
    """The function of a shipped kernel's variant, of `FILE.py:NAME`, or `kernel` itself.

    Without `variant` it is the default one.

    Raises:
      UsageError: no such kernel, variant, file or function.
    """
    if callable(kernel):
        return kernel
    if ".py:" in kernel:
        return _from_file(kernel)
    known = _shipped()
    if kernel not in known:
        names = ", ".join(sorted(known))
        raise UsageError(
            f"`kernel` is {kernel!r}{nearest(kernel, known)}; allowed: {names}, or FILE.py:NAME"
        )
    variants = known[kernel]
    variant = default_variant(kernel) if variant is None else variant
    if variant not in variants:
        names = ", ".join(variants)
        hint = nearest(str(variant), variants)
        raise UsageError(f"`variant` is {variant!r}{hint}; kernel `{kernel}` has: {names}")
    return variants[variant]


def default_variant(kernel: str | Kernel) -> str | None:
    """What is run of a shipped kernel if none is asked for: `opt3`, or its first; None of others.

    Other kernels have no variants.
    """
    variants = variant_names(kernel)
    return SHIPPED if SHIPPED in variants else next(iter(variants), None)


def variant_names(kernel: str | Kernel) -> tuple[str, ...]:
    """Variants of a shipped kernel; other kernels have none."""
    return tuple(_shipped().get(kernel, ())) if isinstance(kernel, str) else ()


def reference() -> Callable[..., Any]:
    """`kernels.reference.reference`: attention in float64 numpy."""
    _shipped()  # explains a foreign `kernels`
    return importlib.import_module("kernels.reference").reference


def _shipped() -> dict[str, dict[str, Kernel]]:
    module = importlib.import_module("kernels")
    if not hasattr(module, "KERNELS"):
        raise UsageError(
            f"`kernels` at {getattr(module, '__file__', None)} is another distribution's package; "
            "uninstall that distribution, or install ahbm_jax into an environment without it"
        )
    return module.KERNELS | module.PROGRAMS


def _from_file(name: str) -> Kernel:
    path_text, _, function = name.rpartition(":")
    path = Path(path_text).resolve()
    if not path.is_file():
        raise UsageError(f"`kernel` is {name!r}, but there is no file {path}")
    module = _load(path)
    if not callable(getattr(module, function, None)):
        found = [n for n, x in vars(module).items() if callable(x) and not n.startswith("_")]
        hint = nearest(function, found)
        raise UsageError(f"`kernel` is {name!r}, but {path} has no function `{function}`{hint}")
    return getattr(module, function)


def _load(path: Path) -> ModuleType:
    key = f"ahbm_jax_user_kernel_{path}"
    if key in sys.modules:
        return sys.modules[key]
    spec = importlib.util.spec_from_file_location(key, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"kernel file {path} cannot be run: {error!r}") from error
    sys.modules[key] = module
    return module
