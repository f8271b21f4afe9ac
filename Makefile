# What a checkout can do. Needs make, Python 3.11 or newer and a C compiler; all else goes into
# the project's own virtual environment, .venv, and that of the fake CUDA device, .venv-fakecuda.
#
#   make test ARGS="-k ring -x"          pass arguments on to pytest; the same for demo, benchmark.
#                                        It is then a part of the tests that is wanted: those on the
#                                        fake CUDA device have make test-fakecuda ARGS=...
#   make test PYTHON=python3.13 VENV=.venv313        another interpreter, in its own environment

VENV ?= .venv
PYTHON ?=
ARGS ?=
RUN := "$(VENV)/bin/python"

MAKEFLAGS += --no-builtin-rules --no-print-directory
.NOTPARALLEL:
.DEFAULT_GOAL := help

# What the caller has active is no part of the project's environment, and would leak into it.
unexport VIRTUAL_ENV CONDA_PREFIX PYTHONPATH PYTHONHOME PIP_TARGET PIP_PREFIX PIP_USER

.PHONY: help
help:
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | \
	  while IFS='|' read -r name text; do printf '  make %-17s %s\n' "$$name" "$$text"; done

.PHONY: demo
demo: venv ## train a network on 1,797 real digit scans, fed from an LMDB
	@$(RUN) scripts/demo.py $(ARGS)

.PHONY: test
test: venv ## run the tests, those of the CUDA device on a fake one included
ifeq ($(ARGS),)
	@mkdir -p build && rm -f build/skipped.txt
	@RINGFEED_SKIPPED=build/skipped.txt $(RUN) -m pytest -n 2
	@RINGFEED_SKIPPED=build/skipped.txt $(MAKE) test-fakecuda
	@echo "All tests passed. Of the tests, then of those on the fake CUDA device:"; cat build/skipped.txt
else
	@$(RUN) -m pytest $(ARGS)
endif

# What takes long is left out: faults and properties, real threads and processes under stress, the
# packages and documents, and of the rooms what is marked slow, such as the sanitizers' runs.
.PHONY: test-fast
test-fast: venv ## run the rooms' own tests, but for those marked slow
	@$(RUN) -m pytest -q -n 2 -m "not slow" tests/memory tests/prefetch $(ARGS)
	@echo "Left out: tests marked slow, and all outside of tests/memory and tests/prefetch, the fake CUDA"
	@echo "device's among them. make test runs them all."

# An environment of its own: CuPy, and Cython to build one module of it against the fake. The first
# run fetches CuPy's wheel and sources and takes two minutes; what is built stays in build/fakecuda.
FAKECUDA := .venv-fakecuda
CUPY := 'cupy-cuda13x==14.2.0' 'Cython==3.2.4' 'nvidia-cuda-nvrtc==13.5.37'

.PHONY: test-fakecuda
test-fakecuda: ## run the CUDA device's tests alone
	@$(MAKE) venv VENV=$(FAKECUDA)
	@$(FAKECUDA)/bin/python -m pip --disable-pip-version-check install --quiet $(CUPY)
	@$(FAKECUDA)/bin/python tests/fakecuda/py/fakecuda_build.py >/dev/null
	@PYTHONPATH=tests/fakecuda/py $(FAKECUDA)/bin/python -m pytest -p fakecuda \
	  -o testpaths='tests/gpu tests/memory tests/fakecuda' $(ARGS)

# NVIDIA's compilers, from wheels, in that environment: none of them needs a GPU.
.PHONY: test-kernels
test-kernels: ## compile the GPU's kernels with NVRTC 12 and 13, run their PTX, read their machine code
	@$(MAKE) venv VENV=$(FAKECUDA)
	@$(FAKECUDA)/bin/python -m pip --disable-pip-version-check install --quiet $(CUPY) \
	  'nvidia-cuda-nvrtc-cu12==12.9.86' 'nvidia-cuda-nvdisasm==13.5.37' \
	  'nvidia-cuda-cuobjdump==13.5.37'
	@$(FAKECUDA)/bin/python tests/fakecuda/py/fakecuda_build.py >/dev/null
	@RINGFEED_TEST_KERNELS=1 PYTHONPATH=tests/fakecuda/py:tests/compiled_kernels \
	  $(FAKECUDA)/bin/python -m pytest -p fakecuda -o testpaths=tests/compiled_kernels $(ARGS)

# Python 3.12 and CuPy and nothing else, in .venv-rehearsal, and a copy of the checkout in build/rehearsal.
.PHONY: rehearse-gpu
rehearse-gpu: venv ## run scripts/gpu_check.py as on a bare machine with a GPU, on the fake device
	@$(RUN) scripts/rehearse_gpu.py

# An environment of its own, since the peers are large.
.PHONY: test-peers
test-peers: ## run the tests that need other loaders: they read what is converted, and are compared
	@$(MAKE) venv VENV=.venv-peers
	@.venv-peers/bin/python -m pip install --quiet --editable '.[peers]'
	@.venv-peers/bin/python -m pytest tests/packaging/test_dali.py \
	  tests/packaging/test_benchmark_peers.py $(ARGS)

# An environment of its own, of 2 GB. PyTorch comes first and at this version: what else asks for it
# would fetch the newest, with all of CUDA. Where pip finds a build for the CPU alone, that will do.
INTEGRATIONS := .venv-integrations
# In a folder of its own, where only the comparison with it looks: beside a PyTorch for the CPU its
# import fails, and other libraries would try it.
TORCHVISION := $(INTEGRATIONS)/torchvision
.PHONY: test-integrations
test-integrations: ## run the tests that train with PyTorch, Lightning, Accelerate, Transformers and JAX
	@$(MAKE) venv VENV=$(INTEGRATIONS)
	@$(INTEGRATIONS)/bin/python -m pip --disable-pip-version-check install --quiet 'torch==2.13.0'
	@$(INTEGRATIONS)/bin/python -m pip --disable-pip-version-check install --quiet --group integrations
	@test -d $(TORCHVISION) || $(INTEGRATIONS)/bin/python -m pip --disable-pip-version-check install \
	  --quiet --no-deps --target $(TORCHVISION) 'torchvision==0.28.0'
	@RINGFEED_TEST_INTEGRATIONS=1 $(INTEGRATIONS)/bin/python -m pytest -o faulthandler_timeout=400 \
	  -o testpaths='tests/integrations tests/consumers tests/packaging/test_public_names.py \
	  tests/prefetch/cli/test_convert.py' $(ARGS)

.PHONY: benchmark
benchmark: venv ## measure images/s, CPU time per image and waiting on this machine
	@$(RUN) scripts/benchmark.py $(ARGS)

.PHONY: lint
lint: venv ## ruff, import contracts, spelling
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@"$(VENV)/bin/lint-imports" --no-cache --no-logo
	@$(RUN) -m codespell_lib

.PHONY: types
types: venv ## mypy, strict
	@$(RUN) -m mypy

.PHONY: check
check: lint types test ## lint, types and test

# An environment of its own. Nothing is imported: the reference is made from the sources.
DOCS := .venv-docs

.PHONY: docs
docs: ## build the guide and a reference of the API into build/docs; a warning is an error
	@[ -x $(DOCS)/bin/python ] || { $(MAKE) venv && $(RUN) -m venv $(DOCS); }
	@$(DOCS)/bin/python -m pip --disable-pip-version-check install --quiet --upgrade 'pip>=25.1'
	@$(DOCS)/bin/python -m pip --disable-pip-version-check install --quiet --group docs
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs --quiet build --strict
	@echo build/docs/index.html

.PHONY: format
format: venv ## rewrite the sources as ruff formats them
	@$(RUN) -m ruff format .
	@$(RUN) -m ruff check --fix-only --quiet .

.PHONY: hooks
hooks: venv ## run the linters at every commit from now on
	@$(RUN) -m pre_commit install

.PHONY: wheel
wheel: venv ## build the wheel into dist/
	@$(RUN) -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl

.PHONY: venv
venv: ## make the environment, or bring it up to date with pyproject.toml
	@sh scripts/make_venv.sh "$(VENV)" "$(PYTHON)"

.PHONY: clean
clean: ## remove what was built and cached, the environments and the demo's database included
	@rm -rf "$(VENV)" $(FAKECUDA) $(DOCS) $(INTEGRATIONS) .venv-rehearsal build dist data/digits_lmdb ringfeed.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find memory prefetch scripts tests -name __pycache__ -type d -prune -exec rm -rf {} +
