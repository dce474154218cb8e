"""What is best: Pareto fronts, crossovers, and the best choice of knobs under limits."""

from ahbm_jax.search.crossing import Crossing, crossover
from ahbm_jax.search.descent import Divided, divide_budget
from ahbm_jax.search.front import pareto_front
from ahbm_jax.search.tuning import Best, tune

__all__ = ["Best", "Crossing", "Divided", "crossover", "divide_budget", "pareto_front", "tune"]
