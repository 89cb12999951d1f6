# make env    make or mend .venv, with everything that tests, the docs and the demo need
# make demo   tune a real network for at most ten minutes and print what it gained; of what tests
#             need, such as PyTorch and the CUDA compiler, it installs nothing
# make test   lint, types and all tests that need no GPU
# make debian the tests that need a program of Debian's, and that `make test` leaves out
# make slow   the tests that take minutes: the README followed to the letter, long fleets
# make check  lint and types only; make fast: the tests that need neither TVM nor Ray
# make docs   the site, into build/docs; make docs-serve shows it on http://127.0.0.1:8000
# make fuzz   the property tests, on inputs that nobody saw before; FUZZ=tests/spaces to choose

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
DEMO_STAMP := $(VENV)/.installed
STAMP := $(VENV)/.installed-tests

DEMO_MODEL := runs/demo-model.onnx
DEMO_RUN := runs/demo
DEMO_BUDGET ?= 10m
FUZZ ?= tests
TESTS ?= not gpu and not long
SITE := build/docs
DOCS_PORT ?= 8000

.PHONY: env demo test debian slow lint check fast fuzz docs docs-serve clean again
.DELETE_ON_ERROR:
.NOTPARALLEL: # one pip at a time in .venv
unexport PYTHONDONTWRITEBYTECODE # else each of hundreds of processes compiles all that it imports

# An environment is made anew where its Python is missing, does not start or is too old, and where
# the checkout has moved since: paths are written into its scripts. The stamps hold the checkout's.
WORKS := $(RUN) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
BROKEN := $(shell test ! -e $(VENV) || { $(WORKS) && \
	! cat $(DEMO_STAMP) $(STAMP) 2>/dev/null | grep -qvxF "$(CURDIR)"; } || echo yes)

env: $(STAMP)

$(DEMO_STAMP): EXTRAS := ui,onnxruntime
$(STAMP): EXTRAS := tests,ui,onnxruntime
$(DEMO_STAMP) $(STAMP): pyproject.toml $(if $(BROKEN),again)
	@test -e $(VENV) || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is missing or older than 3.11: make env PYTHON=python3.12" >&2; exit 1; }
	@$(RUN) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@echo "installing into $(VENV): a few minutes the first time"
	@rm -f $(DEMO_STAMP) $@
	@$(RUN) -m pip install --quiet --quiet --no-input --disable-pip-version-check \
		--no-compile --editable '.[$(EXTRAS)]'
	@$(RUN) -W ignore -m compileall -qq -j 0 $(VENV)/lib || true # on all cores; pip takes one
	@for stamp in $(DEMO_STAMP) $@; do echo "$(CURDIR)" > $$stamp; done

again:
	@echo "$(VENV) is broken: making it anew"; rm -rf $(VENV)

lint: env
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check

check: lint
	$(RUN) -m mypy

# On the other core, beside the types, all tests are read once: the three processes that read them
# after that find them compiled.
test: lint
	@$(RUN) -m pytest --collect-only --quiet >/dev/null 2>&1 & \
		echo "$(RUN) -m mypy"; $(RUN) -m mypy; typed=$$?; wait; exit $$typed
	$(RUN) -m pytest -m "$(TESTS)" --numprocesses=3 --dist=loadgroup --no-loadscope-reorder

debian: env
	$(RUN) -m pytest -m "debian and long and not gpu"

slow fuzz: export TUNER_TEST_OPTIMISED = 1

slow: check
	$(RUN) -m pytest -m "long and not gpu"

fast: env
	$(RUN) -m pytest -m "not tvm and not ray and not gpu and not slow and not long"

fuzz: env
	$(RUN) -m pytest -m "hypothesis and not gpu and not long" --hypothesis-profile=fuzz $(FUZZ)

docs: env
	$(RUN) -m sphinx --quiet --fail-on-warning --keep-going -d $(SITE)-cache -c docs . $(SITE)
	@echo "$(SITE)/index.html"

docs-serve: docs
	$(RUN) -m http.server --bind 127.0.0.1 --directory $(SITE) $(DOCS_PORT)

# A second time it goes on with the run that is there.
demo: $(DEMO_MODEL)
	$(VENV)/bin/tuner tune $(DEMO_MODEL) --run $(DEMO_RUN) --time-budget $(DEMO_BUDGET) \
		--effort quick --target llvm
	$(VENV)/bin/tuner bench $(DEMO_RUN)
	@echo "(tuner and mlflow are in $(VENV)/bin)"

$(DEMO_MODEL): examples/squeezenet.py | $(DEMO_STAMP)
	@mkdir -p $(@D)
	$(RUN) examples/squeezenet.py $(@D)/part-$(@F)
	@mv $(@D)/part-$(@F) $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find tuner spaces actors cluster tests benchmarks examples -name __pycache__ -prune \
		-exec rm -rf {} +
