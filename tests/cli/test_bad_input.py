"""Bad input gives one message that names the value and what is allowed, and exit code 2."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ahbm_jax.cli.main import main
from ahbm_jax.config import shipped

ROOT = Path(__file__).resolve().parents[2]

KERNEL_FILE = """
def fine(tl, q, k, v, output):
    pass
"""

CASE = """schema: ahbm-case/1
kernel: decode
machine: ahbm_4sip
workload: absent.yaml
knobs: {c0: 5}
set:
  hbm.latency_ns: 3
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files that a user may have got wrong."""
    workload = (shipped.root() / "workloads" / "llama3_70b.yaml").read_text()
    heads = workload.replace("{value: 64,", "{value: 33,").replace("{value: 8,", "{value: 2,")
    (tmp_path / "heads.yaml").write_text(heads)
    machine = (shipped.root() / "machines" / "one_pe.yaml").read_text()
    (tmp_path / "nan.yaml").write_text(
        machine.replace("access_latency_ns: {value: 100", "access_latency_ns: {value: .nan")
    )
    (tmp_path / "unreadable.yaml").write_text("grid: [1, 2\n  sips: }")
    (tmp_path / "kernel.py").write_text(KERNEL_FILE)
    (tmp_path / "broken.py").write_text("import nothing_of_this_name\n")
    bench = (shipped.root() / "benches" / "milestone-gqa-llama70b.yaml").read_text()
    (tmp_path / "bench.yaml").write_text(bench.replace("cubes: [1, 2, 4, 8]", "cubes: [5]"))
    (tmp_path / "variant.yaml").write_text(bench.replace("[dot, opt1,", "[dot, opt11,"))
    (tmp_path / "knobs.yaml").write_text(
        bench.replace("    pes: 8\n", "    pes: 8\n    knobs: {hbm.latency_ns: 3}\n", 1)
    )
    (tmp_path / "case.yaml").write_text(CASE)
    cubes = CASE.replace("absent.yaml", "llama3_70b").replace("c0", "C")
    (tmp_path / "cubes.yml").write_text(cubes.replace("hbm.latency", "hbm.access_latency"))
    rng = np.random.default_rng(0)

    def save(name: str, heads: int, kv_heads: int, **more: object) -> None:
        q = rng.normal(size=(heads, 1, 16)).astype(np.float32)
        k, v = (rng.normal(size=(kv_heads, 20, 16)).astype(np.float32) for _ in range(2))
        arrays = {"q": q, "k": k, "v": v} | more
        np.savez(tmp_path / name, **arrays)  # type: ignore[arg-type]

    save("heads.npz", 33, 2)
    save("good.npz", 4, 2)
    save("nan.npz", 4, 2, q=np.full((4, 1, 16), np.nan, np.float32))
    save("pickled.npz", 4, 2, v=np.array([{}], dtype=object))
    np.savez(tmp_path / "no_v.npz", q=np.zeros(1), k=np.zeros(1))
    (tmp_path / "text.npz").write_text("no arrays")
    return tmp_path


CASES = [
    # heads
    (["parity", "--input", "heads.npz"], ["33", "2 KV heads", "32 or 34"]),
    (["run", "decode", "--workload", "heads.yaml"], ["33", "`kv_heads` 2", "32 or 34"]),
    # sizes
    (["run", "decode", "--tile", "0"], ["`tile` is 0", "1 to 16,777,216"]),
    (["run", "decode", "--tile", "8 k"], ["'8 k'", "8192, 8k, 1M"]),
    (["run", "decode", "--c", "5"], ["`C` is 5", "no rectangle", "4 x 4", "1, 2, 3, 4, 6"]),
    (["run", "decode", "--c", "17"], ["`C` is 17", "1 to 16"]),
    (["run", "decode", "--p", "9"], ["`P` is 9", "1 to 8"]),
    (["run", "decode", "--p", "many"], ["many", "integer"]),
    (["run", "decode", "--context", "2M"], ["2097152", "0 to 1,048,576", "llama3_70b"]),
    (["run", "decode", "--context", "-1"], ["-1", "0 to 1,048,576"]),
    (["run", "decode", "--context", "9k", "--cache", "8k"], ["9216", "8192", "`cache_tokens`"]),
    (["run", "decode", "--users", "0"], ["`users` is 0", "1 to"]),
    (
        ["run", "decode", "--context", "9k", "--query-start", "9k", "--query-length", "2"],
        ["`query_start` is 9216", "`query_length` 2", "`context` of 9216 tokens"],
    ),
    (["run", "prefill", "--window", "0"], ["`window` is 0", "1 to"]),
    (["run", "decode", "--group-shape", "2x8"], ["2 x 8", "4 x 4"]),
    (["run", "decode", "--group-shape", "2by4"], ["2by4", "2x4"]),
    # names
    (["run", "decode", "--variant", "opt33"], ["'opt33'", "did you mean `opt3`", "opt3v"]),
    (["run", "decod"], ["'decod'", "did you mean `decode`", "FILE.py:NAME"]),
    (["run", "absent.py:f"], ["absent.py:f", "no file"]),
    (["run", "kernel.py:fin"], ["kernel.py", "`fin`", "did you mean `fine`"]),
    (["run", "broken.py:f"], ["broken.py", "nothing_of_this_name"]),
    (["run", "decode", "--layout", "contigous"], ["'contigous'", "did you mean `contiguous`"]),
    (["run", "decode", "--level1", "tree"], ["'tree'", "mesh, ring"]),
    (["run", "decode", "--machine", "ahbm_3sip"], ["'ahbm_3sip'", "ahbm_4sip"]),
    (["run", "decode", "--contxt", "8"], ["--contxt", "--context"]),
    (["bench", "milestone"], ["'milestone'", "milestone-gqa-llama70b"]),
    (["bench", "absent.yaml"], ["absent.yaml"]),
    (["bench", "bench.yaml"], ["`C` is 5", "single_user_decode", "multi_user_decode"]),
    (["bench", "variant.yaml"], ["'opt11'", "did you mean `opt1`"]),
    (["bench", "knobs.yaml"], ["hbm.latency_ns", "access_latency_ns"]),
    (["bench", "milestone-gqa-llama70b", "--device", "4"], ["SIP 4", "0 to 3"]),
    (["bench", "milestone-gqa-llama70b", "--device", "one"], ["'one'", "0,1", "all"]),
    (["parity", "--model", "smollm3"], ["'smollm3'", "did you mean `smollm2`"]),
    (["parity", "--variant", "opt33"], ["'opt33'", "did you mean `opt3`"]),
    (["runn"], ["runn"]),
    # cases
    (["run", "absent.yaml"], ["absent.yaml:1: got no such file", "correct the path"]),
    (["run", "bench.yaml"], ["bench.yaml:2: `schema`", "allowed: ahbm-case/1", "another file"]),
    (
        ["run", "case.yaml"],
        ["case.yaml:4: `workload`", "case.yaml:5: `knobs.c0`", "case.yaml:7:", "access_latency_ns"],
    ),
    (["run", "cubes.yml"], ["`C` is 5", "no rectangle", "4 x 4"]),
    (["run", "cubes.yml", "--set", "hbm"], ["`--set key=value`"]),
    # machine numbers
    (["run", "decode", "--set", "hbm.access_latency_ns=nan"], ["nan", "0 to 1e+06"]),
    (["run", "decode", "--set", "hbm.latency_ns=3"], ["hbm.latency_ns", "access_latency_ns"]),
    (["run", "decode", "--set", "hbm"], ["`--set key=value`"]),
    (["run", "decode", "--machine", "nan.yaml"], ["nan.yaml:", "access_latency_ns", "nan"]),
    (["machine", "show", "unreadable.yaml"], ["unreadable.yaml:"]),
    (["machine", "show", "absent.yaml"], ["absent.yaml"]),
    # what does not fit
    (
        ["run", "decode", "--machine", "one_pe", "--variant", "one_shot", "--context", "1M"],
        ["1,048,576 are there", "too few", "scratch.capacity_bytes"],
    ),
    # arrays
    (["parity", "--input", "absent.npz"], ["absent.npz", "numpy.savez"]),
    (["parity", "--input", "text.npz"], ["text.npz", "numpy.savez"]),
    (["parity", "--input", "pickled.npz"], ["pickled.npz"]),
    (["parity", "--input", "no_v.npz"], ["no array v", "q, k"]),
    (["parity", "--input", "nan.npz"], ["`q` has nan", "finite"]),
    (["parity", "--input", "good.npz", "--tile", "0"], ["`tile` is 0", "at least 1"]),
    (["parity", "--input", "good.npz", "--grid", "0,1"], ["(0, 1)", "at least 1"]),
    (["parity", "--input", "good.npz", "--grid", "2x2"], ["'2x2'", "2,4"]),
    (["parity", "--input", "good.npz", "--kv-len", "21"], ["`kv_len` is 21", "0 to 20"]),
    (["parity", "--input", "good.npz", "--storage", "int8"], ["'int8'", "bfloat16"]),
    (["parity", "--input", "good.npz", "--seed", "1"], ["`--seed`", "--kv-len"]),
    (["parity", "--grid", "2,2"], ["`--grid`", "--seed"]),
    # outputs
    (["run", "decode", "--json", "absent/x.json"], ["absent", "no folder"]),
    (["run", "decode", "--json", "."], ["a folder"]),
    (["run", "decode", "--json", "/dev/null"], ["/dev/null", "no regular file"]),
    # simulations: all of it before they run
    (["simulate", "decod"], ["'decod'", "did you mean `decode`"]),
    (["simulate", "decode", "--arbitration", "first-come"], ["'first-come'", "`first_come`?"]),
    (["simulate", "decode", "--arbitration", "x"], ["'x'", "allowed: static, first_come"]),
    (["simulate", "decode", "--log", "absent/ops.csv"], ["`--log`", "no folder"]),
    (["simulate", "decode", "--log", "/proc/ops.csv"], ["`--log`", "/proc is not writable"]),
    (["simulate", "decode", "--log", "ops.txt"], ["`--log`", "ops.txt", ".parquet or .csv"]),
    (["simulate", "decode", "--trace", "trace.gz"], ["`--trace`", "trace.gz", ".json"]),
    (["simulate", "decode", "--plot", "plot.jpg"], ["`--plot`", "plot.jpg", ".png or .svg"]),
    (["simulate", "decode", "--plot-ranks", "2"], ["`--plot-ranks`", "`--plot`"]),
    (["simulate", "decode", "--plot", "x.svg", "--plot-ranks", "0"], ["--plot-ranks", "0"]),
    (
        ["simulate", "decode", "--trace", "x.json", "--json", "./x.json"],
        ["`--trace` and `--json` are both x.json"],
    ),
    (["simulate", "kernel.py:fine"], ["takes no time"]),
]


@pytest.mark.parametrize(("arguments", "said"), CASES, ids=lambda x: " ".join(map(str, x))[:60])
def test_one_message_and_exit_code_2(
    folder: Path,
    arguments: list[str],
    said: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    out, err = capsys.readouterr()
    assert stopped.value.code == 2, out + err
    assert "Traceback" not in out + err
    for text in said:
        assert text in err
    assert out == ""
