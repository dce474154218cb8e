"""A decode kernel of one's own: V's load is in flight while the scores are made."""

from kernels.online_softmax import capped, first_partial
from kernels.reduce import reduce_and_store


def my_decode(tl, q, k, v, output):
    """Online softmax over the tiles of this rank's shard, then the two-level reduce."""
    q = tl.load(q)

    def step(tile, partial):
        m, l, o = partial
        with tl.scratch_scope():
            values = tl.load(tl.ref(v, tile))  # awaited where it is first used
            s = tl.composite("gemm", a=q, b=tl.ref(k, tile), epilogue=("scale",))
            s = tl.when(tile.masked, lambda s: tl.mask(s, tile), capped(tl, s))
            m_new = tl.maximum(m, tl.max(s))
            p, correction = tl.exp(s - m_new), tl.exp(m - m_new)
            l_new = l * correction + tl.sum(p)
            o_new = o * correction + tl.dot(p, values)
        return m_new, l_new, o_new

    start = first_partial(tl, q, v, tl.queries())
    return reduce_and_store(tl, tl.loop(tl.tiles(k), step, start), output)
