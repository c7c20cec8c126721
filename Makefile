# Everything a developer runs. What `make up` and `make test` need is in README.md; `make fresh` proves it.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PROTOS := $(wildcard protos/embereye/v1/*.proto)
# As the chart runs it; IMAGE=registry.example/embereye:1.2.3 for another name.
IMAGE := embereye:$(shell sed -n 's/^appVersion: *//p' charts/embereye/Chart.yaml)
EXAMPLES := charts/embereye/examples/sensorfleet.yaml charts/embereye/examples/camerafleet.yaml

# Programs of other makers that tests send from and compare with; without them those tests are skipped.
PEERS := ffmpeg gstreamer1.0-tools gstreamer1.0-plugins-base gstreamer1.0-plugins-good gstreamer1.0-plugins-bad gstreamer1.0-plugins-ugly \
  gstreamer1.0-rtsp gir1.2-gst-rtsp-server-1.0 python3-gi prometheus prometheus-alertmanager postgresql mosquitto chromium

# The same, built from Go modules into .cache where Go is: an ONVIF camera, a server of RTSP, and NATS.
BUILT_PEERS := go2rtc mediamtx nats-server

# What `make model` learns from, and where it works; a run that was interrupted goes on where it was.
DATA := ../shared/data
TRAINING := .cache/training

# What Grafana says that a dashboard is, and what checks that; where there is npm.
GRAFANA_TYPES := @grafana/schema@12.4.11 typescript@5.9.3
OIDC_PROVIDER := oidc-provider@9.13.3
BROWSER_DRIVER := playwright-core@1.65.1 axe-core@4.14.1
CERT_MANAGER := github.com/cert-manager/cert-manager@v1.17.2

# What tests run of Kubernetes' own; built from Go modules into .cache, once. Beside it, what the end-to-end tests run.
E2E_PROGRAMS := prometheus prometheus-operator prometheus-config-reloader
# Minutes of building each, for slow tests alone.
E2E_PROGRAMS += $(if $(findstring -m slow,$(ARGS)),metallb-controller metallb-speaker prometheus-adapter keda-operator keda-adapter)
NODE_PROGRAMS := kind kube-scheduler kube-proxy kubelet kubeadm coredns
PROGRAMS := etcd kube-apiserver kube-controller-manager kubectl helm gateway-api keda-crds glua embereye-valve

.PHONY: docs screenshots help install peers programs e2e-programs up observe test fuzz fresh lint format bench model image release e2e e2e-up e2e-down requirements crds monitoring pictures golden clean bench-gate faults soak

help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  make \1|\2/' | awk -F'|' '{ printf "%-20s  %s\n", $$1, $$2 }'

install: $(VENV)/.installed ## Install into .venv (done by the others when needed)

$(VENV)/.installed: requirements-dev.txt pyproject.toml setup.py bench/pyproject.toml e2e/pyproject.toml $(PROTOS)
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or later is needed: install python3 and python3-venv" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed; $(PYTHON) is older: make PYTHON=python3.11 …" >&2; exit 2; }
	@echo "installing into $(VENV) (about a minute the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@PATH="$(abspath $(BIN)):$$PATH" PYTHONWARNINGS=ignore $(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable . --editable bench --editable e2e
	@touch $@

peers: ## Install FFmpeg, GStreamer, Prometheus, PostgreSQL, Mosquitto, NATS, camera servers and an identity provider, which tests talk to where they are (root, Debian)
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

up: install ## Run the example fleets on this machine, with a simulated fire; more options: make up ARGS="--for 60s"
	$(BIN)/embereye up --data .data $(ARGS) $(EXAMPLES)

programs: install ## Build what tests run of Kubernetes, and our own client in Go (done by test; minutes the first time, resumed where it was interrupted)
	@e2e/cluster/binaries --optional $(PROGRAMS) >/dev/null

observe: install ## The same with a real Prometheus, our alert rules and Alertmanager, from Debian's packages
	$(BIN)/python e2e/observe $(ARGS) $(EXAMPLES)

# Tests wait more than they work. The tests of a file share their fixtures and follow each other. What ends a test that
# hangs ends nothing that hangs in its fixtures afterwards: then the process ends, and says where it was.
STUCK := --override-ini faulthandler_timeout=600 --override-ini faulthandler_exit_on_timeout=true
test: install programs ## Run all fast tests, the operator against a real kube-apiserver among them; ARGS go to pytest, "-n0" has them run one by one
	$(BIN)/pytest --numprocesses auto --dist loadfile $(STUCK) $(ARGS)

MINUTES := 10
fuzz: install ## Feed every parser that faces the network garbage for MINUTES=10 each
	FUZZ_MINUTES=$(MINUTES) $(BIN)/pytest service/tests/hostile/test_fuzz.py $(ARGS)

fresh: ## Prove `make up` and `make test` in a bare Debian of their own (root; most of an hour, without root just `make test`); ARGS="--debian trixie"
	e2e/fresh $(ARGS)

lint: install ## Check style, types and layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$$(e2e/cluster/binaries helm)/helm lint --strict charts/embereye

bench: install ## Measure sensors, cameras, hub and operator against baselines, and detection on clips where they are
	$(BIN)/embereye bench sensors --quick
	$(BIN)/embereye bench cameras --quick
	$(BIN)/embereye bench hub --quick
	$(BIN)/embereye bench operator --quick
	$(BIN)/embereye bench heat --quick
	$(BIN)/embereye bench detection --quick || true

bench-gate: install ## Measure against the newest record of a machine like this one; fails where a row got worse by 5 % beyond noise
	$(BIN)/embereye bench gate $(ARGS)

model: install ## Train the appearance network anew from labelled pictures in DATA (three minutes), as docs/evidence/appearance.md says
	@for set in video video2 images; do test -f "$(DATA)/$$set/labels.json" || { echo "$(DATA)/$$set/labels.json is missing: make model DATA=FOLDER" >&2; exit 2; }; done
	@test -x $(TRAINING)/venv/bin/python || $(PYTHON) -m venv $(TRAINING)/venv
	@$(TRAINING)/venv/bin/pip install --quiet --disable-pip-version-check --editable . --editable bench --editable training
	nice -n 19 $(TRAINING)/venv/bin/python -m embereye_training $(DATA) $(TRAINING)$(if $(QUICK),/quick --quick)
	$(if $(QUICK),,cp $(TRAINING)/appearance.onnx service/embereye/detect/vision/networks/)

image: install ## Build the image that every component runs, tagged as the chart wants it
	e2e/cluster/build-image $(IMAGE)

release: install ## Put all that a release consists of into dist/VERSION, for you to upload; ARGS="--without-image"
	@$(BIN)/python deploy/release.py $(ARGS)

e2e: e2e-up ## Run the end-to-end tests in a real three-node cluster, which stays up; ARGS="-m slow" for the long ones
	$(BIN)/pytest $(wildcard e2e/test_*.py) $(ARGS)

e2e-programs: ## Build what the cluster runs and end-to-end tests run beside it (done by e2e, also without any of it)
	@e2e/cluster/binaries --optional $(NODE_PROGRAMS) $(E2E_PROGRAMS) $(PROGRAMS) >/dev/null

faults: install ## Make faults on the real processes of this machine, alone and in pairs; ARGS="--page" writes docs/evidence/reliability.md
	$(BIN)/python e2e/faults $(ARGS)

HOURS := 1
soak: install ## Let a steady load, fires and faults run for HOURS=1 on this machine; what leaks, what is lost; ARGS="--seed N" again
	$(BIN)/python e2e/soak --hours $(HOURS) $(ARGS)

e2e-up: install ## Bring the cluster up where it is not, with the image as it is now
	e2e/cluster/up >/dev/null
	e2e/cluster/binaries helm $(E2E_PROGRAMS) >/dev/null
	e2e/cluster/build-image $(IMAGE) >/dev/null
	e2e/cluster/load $(IMAGE)

e2e-down: ## Delete the cluster and everything that was made for it; caches stay
	e2e/cluster/down

docs: install ## Build the documentation as a site with search in site/; strict about links and anchors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: install ## Put the code into the house style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

crds: install ## Write the CRDs and docs/reference/reference.md anew from the Python model
	$(BIN)/python -m embereye_operator.api.crds charts/embereye/files/crds
	$(BIN)/python -m embereye_operator.api.reference docs/reference/reference.md

monitoring: install ## Write docs/reference/metrics.md, alert rules and dashboards anew from their Python source
	$(BIN)/python -m embereye_operator.monitoring.files

pictures: install ## Draw the dashboards of docs/how-to/grafana.md anew, from what a real Prometheus answers (make peers installs one)
	cd operator && ../$(BIN)/python -m tests.monitoring.draw ../docs/how-to/grafana --only fleet-overview --only sensor-shard

screenshots: install ## Take the pictures of the console in docs/images from a real run with a simulated fire (make peers installs Chromium and its driver)
	$(BIN)/python e2e/pictures docs/images

golden: install programs ## Write what the chart makes of its main values, for charts/tests, and its README anew
	$(BIN)/python charts/tests/golden.py
	$(BIN)/python charts/tests/readme.py

requirements: install ## Compile the pinned requirements anew from pyproject.toml
	$(BIN)/pip-compile --quiet --generate-hashes --strip-extras --no-header --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --extra mqtt --extra nats --extra otel --extra parquet --extra postgres --output-file requirements.txt pyproject.toml
	$(BIN)/pip-compile --quiet --generate-hashes --strip-extras --no-header --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --allow-unsafe --all-build-deps --extra dev --constraint requirements.txt --output-file requirements-dev.txt pyproject.toml

clean: ## Remove what was built here (.cache stays)
	rm -rf $(VENV) build dist *.egg-info service/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
