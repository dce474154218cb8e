"""Colours of pictures of a sweep, for the page and for files."""

from __future__ import annotations

from ahbm_jax.derived import RESOURCES

# Told apart by most eyes, in this order, on white.
COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7f6a00", "#6a51a3"]
COLOURS += ["#444444", "#a6761d", "#1b9e77", "#e7298a"]
CANNOT = "#b0b0b0"
MISSING_COLOUR = "#e8e8e8"
WAITS_COLOUR = "#fff2c2"
CLASS_COLOURS = dict(zip(RESOURCES, COLOURS, strict=False)) | {"waits": WAITS_COLOUR}
