"""The configs that come with the package, and how a name or path finds its file."""

from __future__ import annotations

import os
from pathlib import Path

from ahbm_jax.config.problem import shown
from ahbm_jax.errors import ConfigError, nearest

SINGLE = {
    "machines": "machine",
    "workloads": "workload",
    "benches": "bench",
    "sweeps": "sweep",
    "fits": "fit",
}


def root() -> Path:
    """The folder of shipped configs: inside an installed wheel, or the checkout's `configs`."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "_configs"
    return installed if installed.is_dir() else package.parent / "configs"


def names(kind: str) -> list[str]:
    """Names of the shipped configs of a kind, one of `SINGLE`, sorted."""
    return sorted(path.stem for path in (root() / kind).glob("*.yaml"))


def resolve(kind: str, path_or_name: str | os.PathLike[str]) -> Path:
    """The file that a name or path means.

    Args:
        kind: one of `SINGLE`.
        path_or_name: the name of a shipped config, or the path of a file. A text with a slash or
            a YAML suffix, and a `Path`, is a path and may not exist.

    Raises:
        ConfigError: for a name that is neither shipped nor a file.
    """
    text = os.fspath(path_or_name)
    path = Path(text)
    if not isinstance(path_or_name, str) or path.name != text or path.suffix in (".yaml", ".yml"):
        return path
    known = names(kind)
    if text in known:
        return root() / kind / f"{text}.yaml"
    if os.path.isfile(path):  # unlike Path.is_file, never raises
        return path
    single = SINGLE[kind]
    raise ConfigError(
        [
            f"`{single}`: got {shown(text)}, no shipped {single} and no file; allowed: "
            f"{', '.join(known)}, or the path of a file{nearest(text, known)}; "
            f"change: give one of these names or a path that ends in .yaml"
        ]
    )
