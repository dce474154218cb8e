"""The wheel carries all three packages and the shipped configs, and works on its own."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Runs with the unpacked wheel first on the path, and without this checkout.
USE_WHEEL = """
import importlib, json, sys
wheel, checkout = sys.argv[1:]
sys.path = [wheel] + [path for path in sys.path if path not in ("", checkout)]
packages = [importlib.import_module(name) for name in ("ahbm_jax", "kernels", "calibration")]
from ahbm_jax.config import shipped
from ahbm_jax.config.load import load_machine
load_machine("ahbm_4sip")
print(json.dumps({
    "files": [package.__file__ for package in packages],
    "names": {kind: shipped.names(kind) for kind in shipped.SINGLE},
}))
"""


def _output(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds what the wheel holds."""
    folder = tmp_path_factory.mktemp("wheel")
    _output(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "unpacked")
    return folder / "unpacked"


def test_holds_what_is_meant_to_ship(unpacked: Path) -> None:
    tops = {path.name for path in unpacked.iterdir() if not path.name.endswith(".dist-info")}
    assert tops == {"ahbm_jax", "kernels", "calibration"}


def test_works_outside_the_checkout(unpacked: Path, tmp_path: Path) -> None:
    use = (sys.executable, "-c", USE_WHEEL, unpacked, ROOT)
    found = json.loads(_output(*use, cwd=tmp_path))
    assert [Path(file).parents[1] for file in found["files"]] == [unpacked] * 3
    assert found["names"] == {
        folder.name: sorted(path.stem for path in folder.glob("*.yaml"))
        for folder in (ROOT / "configs").iterdir()
    }


def test_script_is_there(unpacked: Path) -> None:
    (entry_points,) = unpacked.glob("*.dist-info/entry_points.txt")
    assert "ahbm = ahbm_jax.cli.main:main" in entry_points.read_text(encoding="utf-8")
    assert (unpacked / "ahbm_jax" / "cli" / "main.py").is_file()
