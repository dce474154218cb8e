"""Programs that measure one cost each, for fits of a machine's numbers.

A launch says how often (`sequences`) and of how many bytes (those of K: tokens x head dimension x
element). Each is the program of one unit.
"""

from __future__ import annotations

from ahbm_jax.tl import Context, Handle, Step, Tensor, Tile, declare


@declare(on_units=True)
def reads(tl: Context, q: Tensor, k: Tensor, v: Tensor, output: Tensor) -> None:
    """DMA reads, one after the other, until the last has arrived."""

    def read(_: Tile, last: Handle) -> Handle:
        return tl.load(k)

    tl.start()
    tl.wait(tl.loop(tl.pieces(tl.launch.sequences), read, tl.buffer(*k.shape)))


@declare(on_units=True)
def writes(tl: Context, q: Tensor, k: Tensor, v: Tensor, output: Tensor) -> None:
    """DMA writes, one after the other, until the last is complete."""
    source = tl.buffer(*k.shape)

    def write(_: Tile, carry: tuple) -> tuple:
        tl.store(k, source)
        return carry

    tl.start()
    tl.loop(tl.pieces(tl.launch.sequences), write, ())


@declare(on_units=True)
def gemms(tl: Context, q: Tensor, k: Tensor, v: Tensor, output: Tensor) -> None:
    """Products of the query rows with K, both in scratch: [M, D] by [D, N]."""
    a, b = tl.buffer(*q.shape), tl.buffer(*k.shape)

    def multiply(_: Tile, carry: tuple) -> tuple:
        with tl.scratch_scope():
            tl.dot(a, b)
        return carry

    tl.start()
    tl.loop(tl.pieces(tl.launch.sequences), multiply, ())


@declare(on_units=True)
def exponentials(tl: Context, q: Tensor, k: Tensor, v: Tensor, output: Tensor) -> None:
    """Exponentials of a matrix as large as K, on MATH."""
    x = tl.buffer(*k.shape)

    def exponential(_: Tile, carry: tuple) -> tuple:
        with tl.scratch_scope():
            tl.exp(x)
        return carry

    tl.start()
    tl.loop(tl.pieces(tl.launch.sequences), exponential, ())


@declare(on_units=True)
def messages(tl: Context, q: Tensor, k: Tensor, v: Tensor, output: Tensor) -> None:
    """A chain of messages as large as K: those of one reduce over the PEs of a CUBE."""
    tl.start()

    def step(step: Step, mine: Handle) -> Handle:
        here = tl.position("pe")
        tl.when(step.sends(here), lambda: tl.send(step, "pe", mine))
        return tl.when(step.receives(here), lambda old: tl.recv(step, "pe", old), mine)

    tl.steps("pe", step, tl.buffer(*k.shape))


VARIANTS = {
    "reads": reads,
    "writes": writes,
    "gemms": gemms,
    "exponentials": exponentials,
    "messages": messages,
}
