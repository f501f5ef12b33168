# Needs Python 3.11 or newer, g++ and make; the first command sets up .venv and all the rest.
#   make demo      the main job: a MoE batch through the verified RTL, and an area report
#   make test      every test but the nightly ones
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
DEMO   ?=
BENCH  ?=
PYTEST ?=

# One target at a time: each uses all the cores it is worth.
.NOTPARALLEL:
.PHONY: demo bench bench-switch test nightly lint format tables results clean help
.DEFAULT_GOAL := help

help:
	@echo "make demo     a DeepSeek-V3 batch through the RTL; writes build/demo/report.md"
	@echo "              (more options: make demo DEMO='--preset tiny --tokens 16')"
	@echo "make bench    area, delay and throughput of the arithmetic; records them for docs/"
	@echo "make bench-switch  the switch at line rate, nvl8 and nvl32; records it for docs/"
	@echo "make test     all tests but the nightly ones"
	@echo "make nightly  all tests"
	@echo "make lint     ruff and pyright"
	@echo "make format   ruff's formatter"
	@echo "make tables   renew the generated tables in README.md and docs/"
	@echo "make clean    remove what was built; keep the environment"

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "error: Python 3.11 or newer is needed; found none as $(PYTHON). Try: make PYTHON=python3.12 ..." >&2; exit 2; }
	@command -v $${CXX:-g++} >/dev/null || \
	  { echo "error: a C++ compiler is needed; found no $${CXX:-g++}. On Debian: apt install g++" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "error: Python's venv module does not work. On Debian: apt install python3-venv" >&2; exit 2; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(READY)
	$(BIN)/dysharp demo $(DEMO)

test: $(READY)
	$(BIN)/python -m pytest -n 2 $(PYTEST)

nightly: $(READY)
	$(BIN)/python -m pytest -n 2 -m "nightly or not nightly" $(PYTEST)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	$(BIN)/dysharp bench alu $(BENCH)
	$(BIN)/python docs/make_tables.py --record-bench build/bench/alu

bench-switch: $(READY)
	$(BIN)/dysharp bench switch --preset nvl8 --depths 32 40 64 96 128 --out build/bench/nvl8
	$(BIN)/dysharp bench switch --preset nvl32 --out build/bench/nvl32
	$(BIN)/python docs/make_tables.py --record-bench build/bench/nvl8
	$(BIN)/python docs/make_tables.py --record-bench build/bench/nvl32

# Record the run that the README shows; commit what it changes.
results: demo
	$(BIN)/python docs/make_tables.py --record build/demo

tables: $(READY)
	$(BIN)/python docs/make_tables.py

clean:
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
