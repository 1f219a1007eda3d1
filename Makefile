# edgeq: make run, make test. Needs Python 3.11 or newer, make and a C++ compiler; everything else goes into .venv.
PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= all
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed-$(EXTRAS)

MODELS ?= mobilenet_v2
BACKENDS ?=
SCHEMES ?=
SCENARIOS ?=
PROFILE ?= quick
WEIGHTS ?= auto
DATASET ?=
CALIBRATION ?=
ROUNDS ?= 1
RESULTS ?= results
TARGET ?=
DEVICE ?=
DEVICE_DIR ?= edgeq
DEVICE_SSH ?= ssh

each = $(foreach name,$(2),$(1) $(name))
matrix = $(call each,--model,$(MODELS)) $(call each,--backend,$(BACKENDS)) $(call each,--scheme,$(SCHEMES))
export_args = $(matrix) --weights "$(WEIGHTS)" $(if $(CALIBRATION),--calibration "$(CALIBRATION)") $(if $(TARGET),--target $(TARGET))
run_args = $(matrix) $(call each,--scenario,$(SCENARIOS)) --profile $(PROFILE) --rounds $(ROUNDS) --results "$(RESULTS)" \
	$(if $(DATASET),--dataset "$(DATASET)") $(if $(RESUME),--resume) \
	$(if $(COOL_TO),--cool-to $(COOL_TO))
# Rounds of its own, unless they are asked for: a single one has no interval.
bench_args = --weights "$(WEIGHTS)" $(if $(CALIBRATION),--calibration "$(CALIBRATION)") \
	$(if $(filter command environment,$(firstword $(origin ROUNDS))),--rounds $(ROUNDS)) $(call each,--only,$(ONLY))
# For a device: what is packed is quantized for it, whatever this machine is.
bundle deploy: TARGET := $(or $(TARGET),aarch64)
bundle_args = $(matrix) --target $(TARGET) --out edgeq-$(TARGET).pyz --profile $(PROFILE) $(if $(DATASET),--dataset "$(DATASET)")
# As with run: what failed to export goes along as such, so that the device's records say why.
bundle_it = status=0; outcomes=$$(mktemp); trap 'rm -f "$$outcomes"' EXIT; \
	$(BIN)/edgeq export --json $(export_args) > "$$outcomes" || status=$$?; \
	[ -s "$$outcomes" ] || exit $$status; \
	$(BIN)/edgeq bundle $(bundle_args) || exit $$?
device_args = --device "$(DEVICE)" --device-dir "$(DEVICE_DIR)" --ssh "$(DEVICE_SSH)"
device_run_args = $(matrix) $(call each,--scenario,$(SCENARIOS)) --profile $(PROFILE) --rounds $(ROUNDS) --results "$(RESULTS)" \
	$(if $(DATASET),--dataset samples) $(if $(RESUME),--resume)
tune_args = $(matrix) $(call each,--scenario,$(SCENARIOS)) --results "$(RESULTS)"

.DEFAULT_GOAL := help
.PHONY: help setup export tune run report bundle deploy bench test test-arm64 lint clean

help:
	@echo 'make run     export and measure MODELS (default: mobilenet_v2) on four frameworks, and print the tables'
	@echo 'make test    lint, type checks and all tests'
	@echo 'make tune    find the fastest threads, streams and batch for what is exported (make run TUNE=1: before it measures)'
	@echo 'make bench   edgeq beside the frameworks'"'"' own tools (about 20 minutes on a quiet machine; ONLY=harness: one group)'
	@echo 'make bundle  export for a device (TARGET=aarch64) and pack all that it needs into edgeq-aarch64.pyz'
	@echo 'make deploy DEVICE=user@host   that, then copy it by rsync over ssh and set it up there (RUN=1: run it, too)'
	@echo 'make test-arm64   edgeq on an emulated Raspberry Pi (as root; debootstrap, qemu-user-static; half an hour, 13 minutes once it has its root)'
	@echo 'also: setup export report lint clean'
	@echo 'variables: MODELS BACKENDS SCHEMES SCENARIOS PROFILE WEIGHTS DATASET CALIBRATION ROUNDS RESULTS COOL_TO RESUME=1 TUNE=1 ONLY EXTRAS'
	@echo '           TARGET DEVICE DEVICE_DIR DEVICE_SSH RUN=1'

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'error: $(PYTHON) is older than Python 3.11'; echo '  try: make PYTHON=python3.11 setup'; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@touch $@

export: setup
	$(BIN)/edgeq export $(export_args)

tune: setup
	$(BIN)/edgeq tune $(tune_args)

# An artifact that failed to export has failed cells, and the run goes on. An export that stopped altogether prints no JSON:
# what lies there is then of an earlier export, and is not measured in the name of this one.
run: setup
	@status=0; outcomes=$$(mktemp); trap 'rm -f "$$outcomes"' EXIT; \
	$(BIN)/edgeq export --json $(export_args) > "$$outcomes" || status=$$?; \
	if [ -s "$$outcomes" ]; then \
		$(if $(TUNE),$(BIN)/edgeq tune $(tune_args) || status=$$?;) \
		$(BIN)/edgeq run $(run_args) || status=$$?; \
		if [ $$status -le 1 ]; then $(BIN)/edgeq report --results "$(RESULTS)" || status=$$?; fi; \
	fi; exit $$status

bundle: setup
	@$(bundle_it); exit $$status

deploy: setup
	@[ -n "$(DEVICE)" ] || { echo 'error: no device'; echo '  try: make deploy DEVICE=pi@raspberrypi.local'; exit 2; }
	@$(bundle_it); \
	$(BIN)/edgeq deploy $(device_args) --bundle edgeq-$(TARGET).pyz || exit $$?; \
	$(if $(RUN),$(BIN)/edgeq run $(device_args) $(device_run_args) || status=$$?; \
	if [ $$status -le 1 ]; then $(BIN)/edgeq report --results "$(RESULTS)" || status=$$?; fi;) \
	exit $$status

report: setup
	$(BIN)/edgeq report --results "$(RESULTS)"

bench: setup
	$(BIN)/python -m benchmarks $(bench_args)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Two files at a time: 10 minutes instead of 19 on 2 cores; no more, because exports of large models take 5 GB each.
test: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-arm64: setup
	$(BIN)/python -m tests.arm64

clean:
	rm -rf $(VENV) build *.egg-info models/*/artifacts
