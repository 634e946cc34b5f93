# make demo   set up .venv and tell the whole story on one page, runs/demo/index.html, from digits
# make test   set up .venv and run every check: ruff, mypy, import-linter, pytest (WORKERS=4: with four processes)
# make reports-check   make one small cell of each report again, and say which pages are stale (ONLY="gradient verdict")
# make docs   set up .venv and write the pages of the API, build/docs/index.html
PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt

ONLY ?=

.PHONY: demo test lint bench reports-check docs clean

demo: $(VENV)/.base
	$(BIN)/dpfedvis calibrate --epsilon 1 --delta 1e-5 --mechanism gradient \
		--rounds 50 --records 4000 --landmarks 500 --gamma 0.005 --tau-x 10 --tau-y 200 --upsilon 20
	@rm -rf runs/demo
	@# numpy and scipy bring a BLAS each, and on two cores their idle threads get in each other's way.
	OPENBLAS_NUM_THREADS=1 $(BIN)/dpfedvis demo --out runs/demo

test: lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo > $(VENV)/import-linter.txt || { cat $(VENV)/import-linter.txt; exit 1; }

bench: $(VENV)/.test
	@# Ratios of the code as users run it: with the threads that BLAS takes by itself.
	OPENBLAS_NUM_THREADS=$$(nproc) OMP_NUM_THREADS=$$(nproc) $(BIN)/python -m pytest tests/benchmarks --benchmarks -s

reports-check: $(VENV)/.base
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m reports.check $(if $(ONLY),--only $(ONLY))

docs: $(VENV)/.docs
	@# The names of dpfedvis are imported when first used, which pdoc does not do.
	$(BIN)/python -W ignore -c 'import dpfedvis as own, pdoc.__main__; \
		vars(own).update({name: getattr(own, name) for name in own.__all__}); pdoc.__main__.cli()' \
		--docformat numpy -o build/docs \
		$$(find accounting dpfedvis attacks -name '*.py' ! -name __main__.py | sed 's,/__init__.py,,; s,\.py$$,,' | tr / . | sort)

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("dpfedvis needs Python 3.11 or newer; this is " + sys.version) if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing dpfedvis into $(VENV)"
	@$(PIP_INSTALL) -e .
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing dpfedvis, NVIDIA FLARE, Opacus and the test tools into $(VENV)"
	@$(PIP_INSTALL) -e ".[nvflare,opacus,test]"
	@touch $@ $(VENV)/.base

$(VENV)/.docs: $(VENV)/.test
	@echo "installing pdoc into $(VENV)"
	@$(PIP_INSTALL) -e ".[docs]"
	@touch $@
