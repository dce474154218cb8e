"""Why a point takes as long as it takes: the order of events, slack, what-ifs, steady states."""

from ahbm_jax.explanation.explain import Explanation, explain, explain_point

__all__ = ["Explanation", "explain", "explain_point"]
