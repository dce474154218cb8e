"""The timing interpreter equals a plain walk of the recorded commands: every kernel, any machine.

A new kernel joins by adding its variants to `KERNELS`.
"""

from __future__ import annotations

import jax
import numpy as np
import pytest
from contracts.points import TIMED, Structure, batch, draw_point
from contracts.walk import walk

from ahbm_jax.interpret.evaluate import report_function
from ahbm_jax.interpret.record import record

STRUCTURES = {
    "default": Structure(),
    "queued": Structure(
        queue=1,
        messages=2,
        math_blocking=False,
        layout="round_robin_cube_first",
        level1="ring",
        level2="ring",
    ),
    "speculative": Structure(
        queue=2,
        messages=1,
        operand_reuse=False,
        query_length=3,
        layout="round_robin",
        packed=True,
    ),
    "users": Structure(queue=3, users=3),
}
# A queue that takes many tiles to fill: until it has, the sweep must not look regular.
DEEP = {"deep queue": Structure(queue=20)}
POINTS = 8
CASES = [(k, v, s) for k, variants in TIMED.items() for v in variants for s in STRUCTURES]
CASES += [("decode", "opt2", "deep queue")]
BUSY = ("cpu", "dma", "gemm", "math", "port")


@pytest.mark.parametrize(("kernel", "variant", "structure"), CASES)
def test_timing_equals_walk(kernel: str, variant: str, structure: str) -> None:
    seed = [ord(c) for c in kernel + variant + structure]
    rng = np.random.default_rng(seed)
    with jax.enable_x64(True):
        drawn_from = (STRUCTURES | DEEP)[structure]
        points = [draw_point(rng, kernel, variant, drawn_from) for _ in range(POINTS)]
        report = report_function(points[0].kernel, points[0].static)(*batch(points))
    report = {name: np.asarray(values) for name, values in report.items()}
    for i, drawn in enumerate(points):
        records = record(drawn.kernel, drawn.machine, drawn.launch())
        walked = walk(drawn.machine, records)
        np.testing.assert_allclose(
            report["latency_ns"][i], walked.latency_ns, rtol=1e-9, err_msg=str(drawn.knobs)
        )
        for engine in BUSY:
            busiest = max(busy[engine] for busy in walked.busy_ns.values())
            np.testing.assert_allclose(
                report[f"most_busy_{engine}"][i], busiest, rtol=1e-9, atol=1e-9
            )
        commands = [c for entry in records for c in entry.commands]
        assert report["sends"][i] == sum(c.op == "send" for c in commands)
        assert report["composites"][i] == sum("composite" in c.op for c in commands)
        assert report["dma_writes"][i] == sum(c.op == "store" for c in commands)
        peak = max(entry.scratch_peak_bytes for entry in records)
        np.testing.assert_allclose(report["scratch_peak_bytes"][i], peak, rtol=1e-12)
