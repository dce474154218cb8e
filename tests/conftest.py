"""Test session settings: host devices, strict arrays, the compilation cache, hypothesis.

They are environment variables, so that programs which a test starts get them too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

HOST_DEVICES = 16  # enough for shard_map over a C x P grid
ROOT = Path(__file__).resolve().parents[1]

assert "jax" not in sys.modules, "JAX was imported before tests/conftest.py could configure it"
os.environ["XLA_FLAGS"] = " ".join(
    (os.environ.get("XLA_FLAGS", ""), f"--xla_force_host_platform_device_count={HOST_DEVICES}")
).strip()
os.environ["JAX_NUMPY_DTYPE_PROMOTION"] = "strict"
os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"
# Keep every compiled program between runs: by default only those slow to compile are kept.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

settings.register_profile("local", deadline=None, print_blob=True)
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def forget() -> None:
    """Drop what was compiled: a program holds memory maps, and a process has 65,530."""
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()


@pytest.fixture(scope="module", autouse=True)
def forget_programs() -> Iterator[None]:
    """Forget a module's programs after it."""
    yield
    forget()


@pytest.fixture
def forget_each() -> Iterator[None]:
    """Forget a test's programs after it, in modules whose tests share few."""
    yield
    forget()
