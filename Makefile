# The two commands of the README, and what stands behind them. Everything goes into venvs of this folder or the
# user cache; nothing on the system is changed.
PYTHON ?= python3
VENV ?= .venv
REPORT ?= demo-report
CACHE ?= $(or $(SPLATFIX_CACHE),$(HOME)/.cache/splatfix)
NATIVE ?= $(CACHE)/native-lane
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check
TORCH := torch==2.13.0
CPU_INDEX := https://download.pytorch.org/whl/cpu
# splatfix looks at the activated environment first; what is made here is looked at with its own.
unexport VIRTUAL_ENV CONDA_PREFIX
# Bytecode of the rewritten tests is kept, whatever the shell says: collecting them takes half the time then.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test check lint types security audit fuzz hostile docs coverage native native-slow native-venv build-record gsplat clusters slow sabotage docker-test benchmarks gpu-check gpu-check-rehearse clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "splatfix needs Python 3.10 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -q --upgrade "pip>=24"
	@touch $@

# Without an NVIDIA driver a CUDA build of torch would be gigabytes for nothing: take the CPU build where one can be
# had, first from where pip already looks, then from PyTorch's own index; only then whatever `pip install torch` gives.
$(VENV)/.torch: $(VENV)/.made constraints.txt
	@if $(PY) -c 'import importlib.metadata as m; m.version("torch")' 2>/dev/null; then echo "torch is already here"; \
	elif [ -e /proc/driver/nvidia/version ] || [ -e /dev/dxg ] || [ "$$(uname)" = Darwin ]; then \
	  echo "installing $(TORCH)"; $(PIP) install -q -c constraints.txt "$(TORCH)"; \
	else \
	  echo "no NVIDIA driver here: installing a CPU build of $(TORCH)"; \
	  $(PIP) install -q -c constraints.txt "$(TORCH)+cpu" 2>$(VENV)/torch.log \
	  || $(PIP) install -q -c constraints.txt --extra-index-url $(CPU_INDEX) "$(TORCH)+cpu" 2>>$(VENV)/torch.log \
	  || { grep -i "error\|resolve" $(VENV)/torch.log | tail -n 3; \
	       echo "no CPU build can be had (see above): installing the default build of $(TORCH), several GB; Ctrl-C stops it"; \
	       $(PIP) install -q -c constraints.txt "$(TORCH)"; }; \
	fi
	@touch $@

$(VENV)/.demo: $(VENV)/.torch pyproject.toml constraints.txt
	$(PIP) install -q -c constraints.txt -e ".[certify]"
	@touch $@

$(VENV)/.dev: $(VENV)/.torch pyproject.toml constraints.txt
	$(PIP) install -q -c constraints.txt -e ".[certify,containers,test,dev]"
	@touch $@ $(VENV)/.demo

demo: $(VENV)/.demo ## Diagnose this machine, then certify a real training on the sample scenes (no GPU needed)
	@echo; echo "\$$ splatfix diagnose"; $(VENV)/bin/splatfix diagnose || [ $$? -ne 2 ]
	@echo; echo "\$$ splatfix certify --suite quick --out $(REPORT)"
	@$(VENV)/bin/splatfix certify --suite quick --out $(REPORT)
	@echo; echo "The report is in $(REPORT)/: certificate.html to look at, certificate.md as text, certificate.json for programs."

test: $(VENV)/.dev ## The tests that need neither CUDA nor Docker
	$(PY) -m pytest -q -n auto --dist worksteal -m "not native and not gpu and not docker and not slow"

coverage: $(VENV)/.dev ## The same tests with branch coverage, into build/coverage
	$(PY) -m pytest -q -n auto --dist worksteal -m "not native and not gpu and not docker and not slow" \
	  --cov --cov-report=term:skip-covered --cov-report=html:build/coverage

$(VENV)/.docs: $(VENV)/.dev
	$(PIP) install -q -c constraints.txt -e ".[docs]"
	@touch $@

docs: $(VENV)/.docs ## The documentation site, into build/site; a broken link fails
	$(PY) -m tools.docs build/docs
	$(VENV)/bin/zensical build --clean --strict

check: lint types security ## ruff, mypy --strict and bandit

lint: $(VENV)/.dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: $(VENV)/.dev
	$(PY) -m mypy

security: $(VENV)/.dev
	$(PY) -m bandit -q -c pyproject.toml -r splatfix smoke_trainer tools

audit: $(VENV)/.dev ## Known vulnerabilities of what is installed here (error 3: the service could not be asked)
	@$(PY) -m tools.audit

native-venv: $(NATIVE)/.made

$(NATIVE)/.made: ## A second venv with a CUDA build of torch (2.8 GB), kept in the user cache
	$(PYTHON) -m venv $(NATIVE)/venv
	$(NATIVE)/venv/bin/python -m pip install -q --upgrade "pip>=24"
	$(NATIVE)/venv/bin/python -m pip install -q torch==2.11.0 "numpy<3" "setuptools<82" wheel ninja nvidia-cuda-cuobjdump
	@touch $@

native: $(VENV)/.dev $(NATIVE)/.made ## Real CUDA builds for sm_120 against cuobjdump; needs nvcc, no GPU
	SPLATFIX_NATIVE_LANE=1 SPLATFIX_NATIVE_PYTHON=$(NATIVE)/venv/bin/python $(PY) -m pytest -q -n 2 -m "native and not gpu and not slow"

native-slow: $(VENV)/.dev $(NATIVE)/.made ## The whole CUDA torch and real Windows wheels against cuobjdump
	SPLATFIX_NATIVE_LANE=1 SPLATFIX_NATIVE_PYTHON=$(NATIVE)/venv/bin/python $(PY) -m pytest -q -m "native and slow and not gpu"

# GSPLAT_CHECKOUT=DIR: gsplat's repository at v1.5.3
GSPLAT ?= $(CACHE)/gsplat-lane
GSPLAT_CHECKOUT ?= build/gsplat

$(GSPLAT)/.made: $(VENV)/.dev
	@[ -d "$(GSPLAT_CHECKOUT)/tests" ] || { echo "GSPLAT_CHECKOUT=DIR: see the Makefile for what lies there"; exit 2; }
	$(PYTHON) -m venv $(GSPLAT)/venv
	$(GSPLAT)/venv/bin/python -m pip install -q --upgrade "pip>=24"
	$(GSPLAT)/venv/bin/python -m pip install -q "$(TORCH)" gsplat==1.5.3 "numpy<2" "pytest<9"
	$(PY) -m splatfix install gsplat --backend pure --python $(GSPLAT)/venv
	@touch $@

gsplat: $(GSPLAT)/.made ## gsplat's own tests on the CPU with the drop-in, and the record of it
	$(PY) -m tools.gsplat_tests $(GSPLAT_CHECKOUT) $(GSPLAT)/venv/bin/python

CLUSTERS ?= $(CACHE)/clusters-lane
$(CLUSTERS)/.made: $(VENV)/.dev
	$(PYTHON) -m venv $(CLUSTERS)/venv
	$(CLUSTERS)/venv/bin/python -m pip install -q --upgrade "pip>=24"
	$(CLUSTERS)/venv/bin/python -m pip install -q ray==2.60.0 kubernetes-validate==1.37.0 -e .
	@touch $@

clusters: $(CLUSTERS)/.made ## The examples on Slurm (as root, apt-get install slurm-wlm munge) and Ray on this machine; a quarter of an hour
	SPLATFIX_CLUSTERS_PYTHON=$(CLUSTERS)/venv/bin/python $(PY) -m pytest -q -n 0 tests/clusters

WITH ?= after
build-record: $(VENV)/.dev $(NATIVE)/.made ## Build SOURCE=folder LABEL=owner/name WITH=pip|after, and write it into the record of real builds
	$(PY) -m tools.builds "$(SOURCE)" --label "$(LABEL)" --python $(NATIVE)/venv --with $(WITH)

slow: $(VENV)/.dev ## The long tests: hostile inputs, fuzzing, kill -9 everywhere, every scene
	$(PY) -m pytest -q -n auto --dist worksteal -m "slow and not native and not gpu and not docker"

sabotage: $(VENV)/.dev ## Environments that are broken on purpose, each refused for its first cause; ten minutes on two cores
	$(PY) -m pytest -q -n auto --dist worksteal tests/sabotage

hostile: $(VENV)/.dev ## Hostile inputs, kills and full disks only; the counts go to tests/records/hostile.json
	$(PY) -m pytest -q -n auto --dist worksteal -m slow --record tests/hostile tests/install/test_killed.py tests/install/test_full_disk.py

FUZZ_SECONDS ?= 600
fuzz: $(VENV)/.dev ## Coverage-guided fuzzing of every reader, FUZZ_SECONDS each; what breaks one is kept in build/fuzz
	@for target in $$($(PY) -m tests.hostile.fuzz --list); do \
	  echo "== $$target"; $(PY) -m tests.hostile.fuzz $$target --seconds $(FUZZ_SECONDS) || exit 1; done

DOCKER_TESTS ?= docker
docker-test: $(VENV)/.dev ## Container lanes on a real engine
	SPLATFIX_DOCKER_LANE=1 $(PY) -m pytest -q -m "$(DOCKER_TESTS)" --durations=8 tests/containers

benchmarks: $(VENV)/.dev ## Our CUDA kernels beside others, in one run; needs a GPU
	$(PY) tests/benchmarks/bench_cuda.py

# GPU_SOURCES=DIR: the peers' wheels or sources; see docs/gpu-check.md
gpu-check: ## Show on a GPU what only a GPU can show: four minutes, then the rest; the record is in gpu-check/
	PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 $(PYTHON) -m pytest -c tests/gpu_check/pytest.ini tests/gpu_check $(GPU_CHECK)

gpu-check-rehearse: $(VENV)/.dev ## Every step of gpu-check on the CPU with stand-ins; shows nothing of a GPU
	$(PY) -m pytest -c tests/gpu_check/pytest.ini tests/gpu_check --rehearse --out build/gpu-check-rehearsal $(GPU_CHECK)

clean: ## Remove the venv and what builds left here
	rm -rf $(VENV) build dist $(REPORT) gpu-check .pytest_cache .mypy_cache .ruff_cache .hypothesis
