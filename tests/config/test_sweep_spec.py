from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ahbm_jax.config import shipped
from ahbm_jax.config.load import load_sweep
from ahbm_jax.errors import ConfigError
from ahbm_jax.sweeps.spec import load_request

GOOD = """\
schema: ahbm-sweep/1
name: good
kernel: decode
machine: ahbm_4sip
workload: llama3_70b
knobs: {P: 8}
set: {gemm.stream_depth_subtiles: 8}
axes:
  variant: [opt1, opt3]
  context: {low: 1024, high: 65536, count: 7, scale: log}
  hbm.access_latency_ns: {low: 60, high: 200, count: 3}
sample:
  design: latin
  count: 5
  knobs:
    issue.composite_cycles: {low: 0, high: 400, whole: true}
variables: [latency_ns]
"""


def spec(folder: Path, text: str) -> Path:
    path = folder / "spec.yaml"
    path.write_text(text)
    return path


def test_a_file_becomes_the_request_that_it_says(tmp_path: Path) -> None:
    made = load_request(str(spec(tmp_path, GOOD)))
    names = [dimension.name for dimension in made.space.dimensions]
    assert names == ["variant", "context", "hbm.access_latency_ns", "sample"]
    assert made.space.shape == (2, 7, 3, 5)
    _, context, latency, sample = made.space.dimensions
    np.testing.assert_array_equal(context.knobs["context"], 2.0 ** np.arange(10, 17))
    np.testing.assert_array_equal(latency.knobs["hbm.access_latency_ns"], [60, 130, 200])
    cycles = sample.knobs["issue.composite_cycles"]
    assert np.all((cycles >= 0) & (cycles <= 400) & (cycles == np.round(cycles)))
    assert made.machine.gemm.stream_depth_subtiles == 8
    assert made.held == {"P": 8}


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("context:", "contxt:", 10, "did you mean `context`"),
        ("hbm.access_latency_ns:", "hbm.acess_latency_ns:", 11, "hbm.access_latency_ns"),
        ("count: 7", "cout: 7", 10, "did you mean `count`"),
        ("scale: log", "scale: cubic", 10, "linear or log"),
        ("low: 60", "low: cold", 11, "a finite number"),
        ("[opt1, opt3]", "[opt1, 3]", 9, "a non-empty text"),
        ("[opt1, opt3]", "[]", 9, "a list of values"),
        ("design: latin", "design: grid", 13, "sobol or latin"),
        ("issue.composite_cycles:", "issue.composit_cycles:", 16, "issue.composite_cycles"),
        ("kernel: decode\n", "", 1, "add `kernel: ...`"),
        ("axes:", "axis:", 8, "did you mean `axes`"),
    ],
)
def test_a_mistake_is_named_with_its_line(
    tmp_path: Path, old: str, new: str, line: int, said: str
) -> None:
    assert old in GOOD
    with pytest.raises(ConfigError) as caught:
        load_sweep(spec(tmp_path, GOOD.replace(old, new, 1)))
    (problem,) = caught.value.problems
    assert f"spec.yaml:{line}:" in problem
    assert said in problem


def test_all_mistakes_come_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("context:", "contxt:").replace("count: 5", "count: 0")
    text = text.replace("machine: ahbm_4sip", "machine: ahbm_5sip")
    with pytest.raises(ConfigError) as caught:
        load_sweep(spec(tmp_path, text))
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize("name", shipped.names("sweeps"))
def test_shipped_sweeps_are_right(name: str) -> None:
    assert load_request(name).space.points > 100
