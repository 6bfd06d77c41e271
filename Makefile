# make demo, make test: from a machine with Python >= 3.10, g++ and make to the result.
PYTHON ?= python3
CXX ?= g++
BUILD := build/dev
SANITIZED := $(CURDIR)/build/sanitize
BIN := .venv/bin
SOURCES := $(shell find csrc cmake python -type f -not -name '*.pyc' -not -name '*.so') \
           CMakeLists.txt tests/CMakeLists.txt setup.py pyproject.toml
CXX_FILES := $(shell find csrc tests -name '*.h' -o -name '*.cpp' -o -name '*.hip')

# Seen by setup.py and by the tests: one build tree for the wheel, the C++ tests and their kernels.
export MHA_SINK_BUILD_DIR := $(CURDIR)/$(BUILD)
export CMAKE_ARGS += -DMHA_SINK_BUILD_TESTS=ON -DMHA_SINK_WERROR=ON
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test install lint ctest sanitize pytest format clean check-machine
.DELETE_ON_ERROR:
.NOTPARALLEL:  # the output of `make test` ends with pytest's summary

demo: install
	$(BIN)/python -m mha_sink demo

test: install lint ctest sanitize pytest

install: .venv/installed

lint: .venv/requirements
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $(CXX_FILES)
	$(BIN)/mypy

ctest: install .venv/oracle
	$(BIN)/cmake $(BUILD)  # again: tests/fake_hip looks for the oracle's headers
	$(BIN)/cmake --build $(BUILD) --parallel 2
	$(BIN)/ctest --test-dir $(BUILD) --output-on-failure

# The vector levels are one source: the baseline stands for them. -O1 halves the compile time.
# Python is not sanitized itself: the libraries come first by LD_PRELOAD, and its leaks do not count.
sanitize: .venv/requirements .venv/oracle
	$(BIN)/cmake -S . -B $(SANITIZED) -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	  -DMHA_SINK_PYTHON=$(CURDIR)/$(BIN)/python -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python \
	  -DMHA_SINK_BUILD_TESTS=ON -DMHA_SINK_BUILD_PYTHON=ON \
	  '-DMHA_SINK_SANITIZE=address;undefined' -DMHA_SINK_SIMD_LEVELS=baseline \
	  -DCMAKE_CXX_FLAGS_RELEASE=-O1
	$(BIN)/cmake --build $(SANITIZED) --parallel 2
	$(BIN)/ctest --test-dir $(SANITIZED) --output-on-failure --parallel 2
	rm -rf $(SANITIZED)/package  # no module that was deleted since
	$(BIN)/cmake --install $(SANITIZED) --prefix $(SANITIZED)/package/mha_sink --component python
	ln -sf $(CURDIR)/python/mha_sink/* $(SANITIZED)/package/mha_sink/
	PYTHONPATH=$(SANITIZED)/package ASAN_OPTIONS=detect_leaks=0 \
	  LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so.6)" \
	  $(BIN)/python -m pytest -n 2 tests/test_errors.py tests/test_errors_varlen.py \
	  tests/test_mha_bwd.py tests/test_mha_varlen_bwd.py -k "errors or smoke or padded"

pytest: install .venv/oracle
	$(BIN)/python -m pytest -n 2

format: .venv/requirements
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)

clean:
	rm -rf build dist .venv python/*.egg-info

check-machine:
	@command -v $(PYTHON) >/dev/null || { echo "mha_sink: $(PYTHON) is missing: install Python >= 3.10, or name it: make PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "mha_sink: $$($(PYTHON) --version) is too old: Python >= 3.10 is needed, name it: make PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' || { echo "mha_sink: the headers of $(PYTHON) (Python.h) are missing: apt-get install python3-dev"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "mha_sink: the venv module of $(PYTHON) is missing: apt-get install python3-venv"; exit 1; }
	@command -v $(CXX) >/dev/null || { echo "mha_sink: $(CXX) is missing: apt-get install g++"; exit 1; }

.venv/requirements: requirements-dev.txt | check-machine
	@echo "mha_sink: installing the requirements into .venv (two minutes)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet -r requirements-dev.txt
	@touch $@

.venv/oracle: requirements-oracle.txt .venv/requirements
	@$(BIN)/python -m pip install --quiet -r requirements-oracle.txt && touch $@ \
	  || echo "mha_sink: triton could not be installed: the tests that need it will skip"

.venv/installed: .venv/requirements $(SOURCES)
	@rm -rf build/lib*  # setuptools would ship files that were deleted since
	@echo "mha_sink: building the package in $(BUILD) (a few minutes the first time)"
	@$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps .
	@touch $@
