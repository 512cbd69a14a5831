# Needs Python 3.11 or newer and make; each target sets up what it needs by itself.
#
#   PYTHON     the interpreter to build .venv with; otherwise the first one found that is new enough
#   PIP_ARGS   passed on to pip, e.g. PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"
#              for PyTorch's small CPU build where the default index would fetch gigabytes of CUDA
#   ARGS       passed on to pytest, the demo, benchmarks or records, e.g. make test ARGS="tests/layers -x"
#   AREA       the benchmark to run, e.g. make bench AREA=recurrent ARGS="--device cpu --quick"

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest --color=no -rs
# A thread of PyTorch that waits must not keep other processes from working.
export GOMP_SPINCOUNT ?= 1000
# Container images set this, and then every process that the tests start would compile all of Seqwise again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all test-faults test-gpu lint format bench records studio clean

help:
	@echo "make install     .venv with seqwise and the development tools in it"
	@echo "make demo        five families compared on built-in text: a table, a verdict, a report"
	@echo "make test        the fast tests: seven minutes on two cores"
	@echo "make test-all    the slow tests: interpreted kernels, kills, clusters, documentation, training runs"
	@echo "make test-faults the long form of the fault battery: kills, signals, full disks, fuzzing; see docs/reliability.md"
	@echo "make test-gpu    the tests that need a CUDA device"
	@echo "make lint        ruff and mypy"
	@echo "make format      let ruff rewrite the layout"
	@echo "make bench       benchmarks against other libraries, results in build/bench as JSON; AREA=recurrent for one"
	@echo "make records     published results reproduced on a GPU: hours; ARGS=\"--recipes sst2 --jobs 4\"; see docs/records.md"
	@echo "make studio      the browser application on the runs in runs/; ARGS=\"FOLDER …\" for others"
	@echo "make clean       remove .venv and everything that was built"
	@echo
	@echo "PyTorch without CUDA, where the default index would fetch gigabytes of it:"
	@echo "  make install PIP_ARGS=\"--extra-index-url https://download.pytorch.org/whl/cpu\""

install: $(STAMP)
	@echo "installed. Try: $(BIN)/seqwise --help"

demo: $(STAMP)
	$(BIN)/seqwise demo $(ARGS)

# As many processes as cores, of one thread each.
PARALLEL := OMP_NUM_THREADS=1 $(PYTEST) -n auto --dist worksteal

test: $(STAMP)
	$(PARALLEL) -m "not slow and not gpu" $(ARGS)
	@echo "not run: the slow tests (make test-all), the tests that need a GPU (make test-gpu)"

test-all: $(STAMP)
	$(PARALLEL) -m "slow and not gpu" $(ARGS)

# The same tests as in test-all, with larger numbers. Each test is named when it begins; Ctrl-C ends all processes.
test-faults: $(STAMP)
	SEQWISE_FAULTS=full $(PARALLEL) -vv -m "not gpu" tests/faults tests/data/test_bounds_memory.py tests/compare/run/test_kills.py $(ARGS)

test-gpu: $(STAMP)
	$(PYTEST) -m gpu $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# One area that misses its goal does not keep the others from running.
AREAS := recurrent transformer language loss decoding translation vectors reading cost
AREA := $(AREAS)
bench: $(STAMP)
	@status=0; for area in $(AREA); do \
	  test -f benchmarks/$$area.py || { echo "there is no area $$area; there are: $(AREAS)"; exit 2; }; \
	  $(BIN)/python benchmarks/$$area.py --json build/bench/$$area.json $(ARGS) || status=1; echo; done; exit $$status

records: $(STAMP)
	$(BIN)/python benchmarks/records.py $(ARGS)

studio: $(STAMP)
	@trap : INT; $(BIN)/seqwise studio $(ARGS) || [ $$? -eq 130 ]  # Ctrl-C is the usual end, no error

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	find src tests benchmarks -name __pycache__ -type d -exec rm -rf {} +

# Installed once, and again when the requirements change.
$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) -c constraints.txt -e ".[dev]"
	@touch $@

$(BIN)/python:
	@python=; for candidate in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11 python; do \
	  if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    python="$$candidate"; break; fi; done; \
	if [ -z "$$python" ]; then \
	  echo "error: no Python 3.11 or newer found. Install one, or name it: make install PYTHON=/path/to/python3" >&2; \
	  exit 1; fi; \
	echo "creating $(VENV) with $$("$$python" --version)"; \
	"$$python" -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "error: $$python cannot create a virtual environment. On Debian and Ubuntu: apt install python3-venv" >&2; \
	  exit 1; }
