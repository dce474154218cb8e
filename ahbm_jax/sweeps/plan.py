"""A sweep ready to be evaluated block by block."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ahbm_jax.sweeps.choice import Choice, arguments, choice_of
from ahbm_jax.sweeps.program import QUICK_POINTS, Program, Values, compiled, padded_size
from ahbm_jax.sweeps.request import Request
from ahbm_jax.sweeps.variables import VARIABLES

Arrays = dict[str, np.ndarray]


class Once:
    """Results by key, each made once, by the thread that asks first."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Future[Any]] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The result for `key`; `make` makes it if nobody has or does."""
        with self._lock:
            mine = key not in self._made
            future = self._made.setdefault(key, Future())
        if mine:
            try:
                future.set_result(make())
            except BaseException as error:
                future.set_exception(error)
        return future.result()


PROGRAMS = Once()


@dataclass(slots=True)
class Plan:
    """The evaluation of a request's blocks; notes how long they waited for a compiled program."""

    request: Request
    seconds_compile: float = 0.0
    _choices: Once = field(default_factory=Once)

    def prepare(self, numbers: Iterable[int]) -> ThreadPoolExecutor:
        """Begin to compile what blocks need, in their order, on a thread for each core."""
        pool = ThreadPoolExecutor(os.cpu_count() or 1)
        double = jnp.result_type(float) == jnp.float64  # which each thread must be told
        seen = set()

        def program(number: int) -> None:
            with jax.enable_x64(double):
                self._program(number)

        for number in numbers:
            key = self._key(number)
            if key not in seen:
                seen.add(key)
                pool.submit(program, number)
        return pool

    def start(self, number: int) -> Values:
        """Begin to evaluate a block; the arrays may still be computed when this returns."""
        begin = time.perf_counter()
        choice, program = self._program(number)
        self.seconds_compile += time.perf_counter() - begin
        block = self.request.space.block(number)
        return program(*choice.leaves(*arguments(self.request, block)))

    def finish(self, number: int, values: Values) -> Arrays:
        """The variables of a block as arrays of its shape, a dimension of their own last."""
        block = self.request.space.block(number)
        found = {}
        for name, x in jax.device_get(values).items():
            x = x[:, : block.points]
            own = VARIABLES[name].dimension is not None
            found[name] = x.T.reshape(*block.shape, -1) if own else x.reshape(block.shape)
        return found

    def _program(self, number: int) -> tuple[Choice, Program]:
        """The compiled program of a block and the choice that it is for."""
        request, space = self.request, self.request.space
        quick = space.points_of_choice <= QUICK_POINTS
        size = padded_size(math.prod(space.block_shape), quick=quick)
        block = space.block(number)
        choice = self._choices.get(self._key(number), lambda: choice_of(request, block, size))
        what = choice.kernel, choice.static, request.variables, choice.energies, size
        key = (*what, quick, jnp.result_type(float))
        return choice, PROGRAMS.get(key, lambda: compiled(*what, quick=quick))

    def _key(self, number: int) -> tuple[int, ...]:
        space = self.request.space
        start = space.block(number).start
        pairs = zip(space.dimensions, start, strict=True)
        return tuple(at for dimension, at in pairs if not dimension.numeric)
