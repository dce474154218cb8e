"""The `ahbm` command. JAX is imported inside the commands alone, so that `--help` is fast."""
