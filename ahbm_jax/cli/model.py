"""`ahbm parity --model`: a language model whose decode attention is a kernel of ours."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ahbm_jax import smollm2
from ahbm_jax.cli.console import output
from ahbm_jax.config.load import load_machine, load_workload
from ahbm_jax.errors import UsageError, nearest
from ahbm_jax.kernel_names import default_variant, reference
from ahbm_jax.outputs import attention
from ahbm_jax.parity import Errors, measure
from ahbm_jax.parity.metric import E_BAR, EXACT_P, FEW_KEYS_BAR, LSE_BAR
from ahbm_jax.report.amount import microseconds
from ahbm_jax.result import latency_ns

MODELS = {"smollm2": "smollm2_135m"}  # and their workloads
DEFAULTS = {"grid": (2, 2), "tile": 16, "exact_p": False}
ERRORS = ("E", "E_exact_p", "lse_error")
STEPS = 24
MACHINE = "ahbm_4sip"
TEXT = (
    "The tide pools on the north shore are easiest to reach in the early morning, when the water"
    " is low and the rocks are dry. Look for small crabs under the weed, and for anemones, which"
    " close when they are touched. Most of these animals"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One step: what the model read, how far attention was off, and what is next.

    Errors are the worst of all layers: `E` of the attention that the model reads, `E_exact_p` of
    the same with P in float32, `passed` says whether that meets every bar. `margin` is by how much
    the reference's next token leads the second best; `attention_ns` is the machine's time for all
    layers.
    """

    context: int
    token: int
    text: str
    generated: bool
    E: float
    E_exact_p: float
    lse_error: float
    passed: bool
    next_token: int
    right_next_token: int
    margin: float
    attention_ns: float


def check_model(
    name: str, options: dict[str, Any], *, kernel: str, variant: str | None
) -> dict[str, Any]:
    """Read a text and continue it, once with our attention and once with the float64 reference.

    Raises:
      UsageError: an unknown model, a file that cannot be read, or an argument out of range.
    """
    if name not in MODELS:
        hint = nearest(name, MODELS)
        raise UsageError(f"`--model` is {name!r}{hint}; allowed: {', '.join(MODELS)}")
    started = time.perf_counter()
    text, steps = _text(options.pop("text", None)), options.pop("steps", STEPS)
    machine = options.pop("machine", MACHINE)
    settings = DEFAULTS | {"variant": variant or default_variant(kernel)} | options
    model = smollm2.load()
    total = len(model.tokenizer.encode(text).ids) + max(steps, 0)
    times = _times_ns(kernel, machine, MODELS[name], total, settings)
    tokens = _printed(_tokens(model, text, steps, kernel, settings, times))
    summary = _summary(tokens, len(model.layers), time.perf_counter() - started)
    named = {"model": name, "kernel": kernel, "machine": machine, "settings": settings}
    return {**named, **summary, "tokens": [asdict(token) for token in tokens]}


def _text(path: Path | None) -> str:
    if path is None:
        return TEXT
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"`--text` {path} cannot be read as UTF-8 text: {error}") from error


def _times_ns(
    kernel: str, machine: str, workload: str, total: int, settings: dict[str, Any]
) -> np.ndarray:
    """Time of all layers' attention at contexts 1 to `total`; each KV head has a group."""
    chosen, model = load_machine(machine), load_workload(workload)
    total = min(total, model.max_context_tokens)  # the model refuses more
    knobs = {name: x for name, x in settings.items() if name not in ("grid", "exact_p")}
    cubes, pes = settings["grid"]
    knobs |= {"C": cubes, "P": pes, "cache_tokens": max(total, 1)}
    latency_ns(kernel, chosen, model, context=1, **knobs)  # checks the numbers

    def layer(context: jax.Array) -> jax.Array:
        return latency_ns(kernel, chosen, model, context=context, **knobs)

    with jax.enable_x64(True):
        return model.layers * np.asarray(jax.vmap(layer)(jnp.arange(1.0, total + 1.0)))


def _tokens(
    model: smollm2.Model,
    text: str,
    steps: int,
    kernel: str,
    settings: dict[str, Any],
    times_ns: np.ndarray,
) -> Iterator[Token]:
    """Both runs side by side, until they differ on a generated token."""
    exact = reference()
    seen = list[tuple[Errors, Errors]]()

    def ours(q: jax.Array, k: jax.Array, v: jax.Array, kv_len: int) -> jax.Array:
        in_float64 = exact(q, k, v, kv_len=kv_len)

        def measured(exact_p: bool) -> tuple[jax.Array, Errors]:
            chosen = {**settings, "exact_p": exact_p}
            o, lse = attention(kernel, q, k, v, kv_len=kv_len, **chosen)
            return o, measure(o, lse, in_float64, str(q.dtype), exact_p=exact_p)

        o, errors = measured(settings["exact_p"])
        seen.append((errors, errors if settings["exact_p"] else measured(True)[1]))
        return o

    def right(q: jax.Array, k: jax.Array, v: jax.Array, kv_len: int) -> np.ndarray:
        return exact(q, k, v, kv_len=kv_len).o

    runs = [smollm2.generate(model, text, steps, each) for each in (ours, right)]
    for step, other in zip(*runs, strict=False):
        yield Token(
            context=step.kv_len,
            token=step.token,
            text=step.piece,
            generated=step.generated,
            E=max(errors.E for errors, _ in seen),
            E_exact_p=max(errors.E for _, errors in seen),
            lse_error=max((errors.lse_error or 0.0) for errors, _ in seen),
            passed=all(x.passed and exact_p.passed for x, exact_p in seen),
            next_token=step.next_token,
            right_next_token=other.next_token,
            margin=other.margin,
            attention_ns=float(times_ns[step.kv_len - 1]),
        )
        seen.clear()
        if step.generated and step.token != other.token:
            return


def _printed(tokens: Iterator[Token]) -> list[Token]:
    """A line a token, as it comes."""
    console, kept = output(), []
    console.print("context  attention, all layers      E  exact P  text", style="dim")
    for token in tokens:
        kept.append(token)
        shown = json.dumps(token.text, ensure_ascii=False)
        style = "" if token.passed else "red"
        time_us = f"{microseconds(token.attention_ns)} us"
        line = f"{token.context:7d} {time_us:>22}  {token.E:5.3f}    {token.E_exact_p:5.3f}  "
        console.print(line + shown, style="bold " + style if token.generated else style)
    return kept


def _summary(tokens: Sequence[Token], layers: int, seconds: float) -> dict[str, Any]:
    """The verdict, printed."""
    console = output()
    console.print("\n" + "".join(token.text for token in tokens) + "\n", soft_wrap=True)
    # What a step predicts is generated unless the step is inside the prompt.
    decided = [token for token, later in pairwise(tokens) if later.generated]
    wrong = [token for token in decided if token.next_token != token.right_next_token]
    right = all(token.passed for token in tokens)
    worst = {name: max(getattr(token, name) for token in tokens) for name in ERRORS}
    console.print(
        f"{layers} layers x {len(tokens)} steps: E at most {worst['E']:.3f} (two roundings allow "
        f"{FEW_KEYS_BAR}), {worst['E_exact_p']:.3f} with P in float32 (bar {E_BAR[EXACT_P]}), "
        f"log-sum-exp error at most {worst['lse_error']:.1e} (bar {LSE_BAR}): "
        f"{'pass' if right else 'FAIL'}",
        style="green" if right else "bold red",
    )
    console.print(
        f"{len(decided) - len(wrong)} of {len(decided)} greedy tokens are those of float64 "
        "attention",
        style="bold red" if wrong else "green",
    )
    for token in wrong:
        console.print(
            f"  after context {token.context}: token {token.next_token}, not "
            f"{token.right_next_token}, whose logit leads by {token.margin:.4g}",
            style="red",
        )
    console.print(f"{seconds:.1f} s")
    return {
        "passed": right and not wrong,
        **worst,
        "tokens_equal": not wrong,
        "seconds": seconds,
    }
