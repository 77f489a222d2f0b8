# Everything a contributor or a machine does here has a name below; `make help`
# lists them. Tools are pinned and live in .tmp/bin; nothing is installed
# outside this folder, but for the Redis that the tests start, which is the
# system's.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --warn-undefined-variables --no-builtin-rules --no-print-directory

GO ?= go
# As releases are built: without the codec of MessagePack, which gin would bring, and which alone is
# a seventh of a build from nothing.
export GOFLAGS := $(strip $(shell $(GO) env GOFLAGS) -tags=nomsgpack)
# Modules of their own, for tests and tools whose libraries the gateway does not need.
MODULES := test/deploy test/release test/oidc
# How long each fuzz target runs.
T ?= 60s
# Packages to test, lint and cover.
PKG ?= ./...
# 1: what can be short is.
SHORT ?=

TMP := .tmp
BIN := $(TMP)/bin
GOLANGCI_VERSION := v2.15.0
GOLANGCI := $(BIN)/golangci-lint-$(GOLANGCI_VERSION)
GOVULNCHECK_VERSION := v1.9.0
GOVULNCHECK := $(BIN)/govulncheck-$(GOVULNCHECK_VERSION)
GORELEASER_VERSION := v2.16.0
GORELEASER := $(BIN)/goreleaser-$(GORELEASER_VERSION)
SYFT_VERSION := v1.57.0
SYFT := $(BIN)/syft-$(SYFT_VERSION)
# What is known of vulnerabilities: the database of Go, or file:///FOLDER with a copy.
VULN_DB ?= https://vuln.go.dev

# The JavaScript SDK clients of the interop tests and the real SLIM software,
# present once installed.
JS := $(patsubst %/package.json,%,$(wildcard test/interop/js/package.json test/slim/js/package.json test/stdio/js/package.json test/conformance/package.json))
JS_READY := $(JS:%=%/node_modules/.package-lock.json)

# The Python SDKs, of two times: their versions exclude each other.
PYTHON_READY := $(patsubst test/python/requirements-%.txt,$(TMP)/python-%/.ready,$(wildcard test/python/requirements-*.txt))

# The MCP servers over standard input and output that only make interop runs.
STDIO_READY := test/stdio/js/node_modules/.package-lock.json $(TMP)/stdio-more/.ready $(TMP)/stdio-new/.ready $(TMP)/stdio-old/.ready

# The Prometheus that scrapes gateways in a test: that of the machine, or Debian's.
PROMETHEUS := $(if $(shell command -v prometheus && command -v promtool),,$(BIN)/prometheus)

# Tests need the race detector where goroutines share something. Calm are the packages
# of these folders whose code has neither a lock nor an atomic value; by the rules of
# test/arch they start no goroutine either.
CALM := /(translators|policy|ect|lifecycle)(/|$$)|/gateway/(config|problem|transport/a2a/frame)$$|/cmd/aepbctl(/(agents|approvals|client|evidence|lifecycle|reference|reply|rollback|send|workflow))?$$|/test/(arch|matrix)$$
LOCKS := (sync|sync/atomic|golang.org/x/sync/[a-z]+)
# The packages of a lane among PKG, 0: race, 1: calm. Those that mostly wait for other
# processes come first: at the end they would wait alone.
lane = $(GO) list -f '{{.ImportPath}} {{.Dir}} {{join .Imports " "}} ' $(PKG) | \
	awk -v calm='$(CALM)' -v locks=' $(LOCKS) ' '($$1 ~ calm && $$0 !~ locks) == $(1) { print ($$1 !~ /\/(test\/(slim|interop|python|e2e|conformance|faults|peers|attacks|stories)|gateway\/state\/redis)$$/), $$2 }' | sort -sk1,1 | cut -d" " -f2-
# Tests that do a thousand times what other tests of their package do once with the race
# detector: they do without. A test of this name anywhere is one of them.
SWEEPS := TestMatrix_EveryCase|TestMatrix_EveryOperation|TestConsent_Matrix|TestOpen_DamagedFile|TestManyTools_.*|TestAdmit_Order|FuzzConsent_.*|TestTaskUnchanged_KeepsItsPlaceOnLists
SWEEPS := $(SWEEPS)|TestSlowReply_IsTold|TestNames_EveryPair|TestSession_EndedSessionsFreeTheirSlots|TestFile_HoldsWhatTheMemoryHolds
SWEEPS := $(SWEEPS)|TestSimulation_ManyRounds|TestEvidence_BusyCallerKeepsAll|TestAttack_OneIssuerFillsRedis|TestNames_PromptsAsSkills
SWEEPS := $(SWEEPS)|TestAttack_Reader_Archives|TestAttack_Consensus_TenThousandRounds
# Packages that need no program but themselves.
QUICK := ./cmd/aepbctl/... ./ect/... ./gateway/... ./lifecycle/... ./policy/... ./translators/... ./test/arch
# What tests are called that last for a minute or more: they have a lane of their own.
LONG := TestLong_.*
# Builds the programs once for all that run them, and says where they are; tests of one
# package build what they need.
BUILT = $(if $(filter ./...,$(PKG)),$(GO) build -o $(BIN)/ ./cmd/... && AEPB_BIN='$(abspath $(BIN))')
# Those of the folders on standard input that have such a test.
having = xargs -n1 | while read -r dir; do grep -sqE '^func ($(1))\(' "$$dir"/*_test.go && echo "$$dir" || true; done

# The folders with a test file that has a line like this.
with = { grep -rl --include='*_test.go' --exclude-dir=node_modules --exclude-dir=$(TMP) '$(1)' . || true; } | xargs -r -n1 dirname | sort -u

.PHONY: help
help: ## this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  %-9s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: ## both programs, into bin/
	$(GO) build -trimpath -o bin/ ./cmd/...

.PHONY: test
test: $(JS_READY) $(PYTHON_READY) redis jq $(PROMETHEUS) ## all but the long tests, in lanes: race, calm, sweeps; installs what it needs
	@$(BUILT) $(MAKE) -k race calm sweeps deploy

.PHONY: quick
quick: ## what can be tested in a minute: no race detector, no other process, nothing long; only what changed
	$(GO) test -short -vet=off $(QUICK)

.PHONY: race
race: # the packages that may have a race, with the race detector; four at once, since some wait
	@list=$$($(call lane,0)); [[ -z $$list ]] || { echo "== race"; $(GO) test -race -vet=off -p 4 -count=1 -timeout 20m -skip '^($(SWEEPS)|$(LONG))$$' $$list; }

.PHONY: calm
calm: # the others, without it
	@list=$$($(call lane,1)); [[ -z $$list ]] || { echo "== calm"; $(GO) test -count=1 -timeout 20m $$list; }

.PHONY: sweeps
sweeps: # the tests that race leaves out, without the race detector
	@list=$$($(call lane,0)); [[ -z $$list ]] || list=$$(echo $$list | $(call having,$(SWEEPS))); \
	[[ -z $$list ]] || { echo "== sweeps"; $(GO) test -vet=off -count=1 -timeout 20m -run '^($(SWEEPS))$$' $$list; }

.PHONY: deploy
deploy: $(PROMETHEUS) # what is in deploy/: the chart, Compose, alerts, dashboards, examples; a module of its own
	@$(if $(filter ./...,$(PKG)),echo "== deploy"; export PATH="$(abspath $(BIN)):$$PATH"; $(foreach dir,$(MODULES),(cd $(dir) && $(GO) test -count=1 -timeout 10m ./...) &&) true)

.PHONY: apiserver
apiserver: ## a real API server of Kubernetes takes what the chart renders; compiles for some 10 minutes the first time
	cd test/apiserver && $(GO) test -vet=off -count=1 -timeout 5m .

.PHONY: long
long: $(JS_READY) ## the tests that last for minutes, and meanwhile the calm ones with the race detector
	@$(BUILT) $(MAKE) -k -j2 --output-sync=target minutes calm-race

.PHONY: minutes
minutes: # the tests that last for minutes; they mostly wait, so all go at once
	@list=$$($(GO) list -f '{{.Dir}}' $(PKG)); list=$$(echo $$list | $(call having,$(LONG))); \
	[[ -z $$list ]] || { echo "== minutes"; $(GO) test -race -count=1 -timeout 10m -p 4 -run '^($(LONG))$$' $$list; }

.PHONY: calm-race
calm-race: # the packages of calm, with the race detector
	@list=$$($(call lane,1)); [[ -z $$list ]] || { echo "== calm-race"; $(GO) test -race -count=1 -timeout 10m -p 1 $$list; }

.PHONY: interop
interop: $(PYTHON_READY) $(STDIO_READY) $(TMP)/python-slim/.ready ## the Python SDKs of MCP, A2A and SLIM through the gateway, and 20 MCP servers over standard input and output; installs them
	$(GO) test -race -count=1 -timeout 5m ./test/python
	$(GO) test -tags interop -count=1 -timeout 5m -run '^TestPython_SameAsWithoutGateway' ./test/slim
	$(GO) test -tags interop -count=1 -timeout 5m ./test/stdio

.PHONY: redis
redis: # the servers that tests of shared state start and stop
	@command -v redis-server >/dev/null && command -v redis-cli >/dev/null && exit; \
	sudo=; [[ $$(id -u) == 0 ]] || sudo=sudo; \
	command -v apt-get >/dev/null || { echo "redis-server and redis-cli are needed for the tests of shared state"; exit 1; }; \
	echo "installing redis-server and redis-cli with apt-get, for the tests of shared state"; \
	$$sudo apt-get update -qq; \
	$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends redis-server

.PHONY: jq
jq: # a tool that docs/stock-tools.md uses
	@command -v jq >/dev/null && exit; \
	sudo=; [[ $$(id -u) == 0 ]] || sudo=sudo; \
	command -v apt-get >/dev/null || { echo "jq is needed for the tests of docs/stock-tools.md"; exit 1; }; \
	echo "installing jq with apt-get, for the tests of docs/stock-tools.md"; \
	$$sudo apt-get update -qq; \
	$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends jq

.PHONY: lint
lint: $(GOLANGCI) ## golangci-lint, as .golangci.yml says and why
	$(GOLANGCI) run $(PKG)
	@$(if $(filter ./...,$(PKG)),$(foreach dir,$(MODULES),(cd $(dir) && $(abspath $(GOLANGCI)) run --config $(abspath .golangci.yml)) &&) true)

.PHONY: vet
vet: ## go vet
	$(GO) vet $(PKG)

.PHONY: arch
arch: ## the rules of the code alone: imports, egress, sizes, documentation
	$(GO) test -count=1 ./test/arch

.PHONY: meters
meters: ## the figures of the tree that may only fall, with their ceilings and worst places
	@$(GO) test -count=1 -run '^TestMeters_WithinCeilings$$' -v ./test/arch | sed -E '/^(=== |--- PASS|PASS$$|ok )/d; s/^    //'

.PHONY: check
check: lint vet tidy test clean-tree ## all that must hold before a change goes in

# Not part of check: what it says changes with its database, and that is on the network.
.PHONY: vuln
vuln: $(GOVULNCHECK) ## known vulnerabilities that the code reaches; needs vuln.go.dev
	@code=0; $(GOVULNCHECK) -db $(VULN_DB) $(PKG) || code=$$?; \
	case $$code in \
	0) ;; \
	3) echo "vuln: the code reaches the vulnerabilities above: take the versions that mend them" >&2 ;; \
	*) echo "vuln: NOTHING WAS CHECKED: govulncheck ended with $$code, for the reason above." >&2; \
	   echo "If the database $(VULN_DB) cannot be reached, run this where it can be, or unpack" >&2; \
	   echo "https://vuln.go.dev/vulndb.zip into a folder and run: make vuln VULN_DB=file:///FOLDER" >&2 ;; \
	esac; exit $$code

.PHONY: tidy
tidy: ## go.mod says what the code needs, no more and no less
	$(GO) mod tidy -diff
	@$(foreach dir,$(MODULES),(cd $(dir) && $(GO) mod tidy -diff) &&) true

.PHONY: clean-tree
clean-tree: # nothing that a run made or changed is left behind
	@dirt=$$(git status --porcelain); if [[ -n $$dirt ]]; then echo "the tree is not clean:"; echo "$$dirt"; exit 1; fi

.PHONY: bench
bench: ## what a translation costs
	$(if $(wildcard test/bench/*.go),$(GO) run ./test/bench,$(GO) test -run '^$$' -bench . -benchmem $(PKG))
	$(GO) test -run '^$$' -bench 'Blobs_|Checkpoint_WithAndWithout$$|Make_10000$$' ./gateway/state/bolt ./gateway ./lifecycle/rollback

.PHONY: soak
soak: T = 1h
soak: ## 600 streams a second for T=1h, then as long mixed load: memory is bounded, returns, and stays flat
	$(GO) run ./test/soak --time $(T)

.PHONY: chaos
chaos: redis ## three replicas under load while gateways and Redis die: no caller gets a wrong answer; SHORT=1
	$(GO) run ./test/chaos $(if $(SHORT),--time 20s)
	AEPB_SEEDS=$(if $(SHORT),1000,10000) $(GO) test -count=1 -run Simulation ./gateway/breakers
	AEPB_ROUNDS=$(if $(SHORT),500,100000) $(GO) test -count=1 -timeout 4h -run Simulation_ManyRounds ./gateway/consensus
	AEPB_STEPS=$(if $(SHORT),100000,1000000) $(GO) test -count=1 -run Twin ./lifecycle/... ./policy/hitl ./gateway/task/execution

.PHONY: abuse
abuse: redis ## all known attacks, unknown callers that stay, identities that want more than their share: a good caller is served; SHORT=1
	$(GO) run ./test/abuse $(if $(SHORT),--time 20s)

.PHONY: fuzz
fuzz: ## every fuzz target for T=60s each
	@dirs=$$($(call with,^func Fuzz)); \
	for dir in $$dirs; do \
		list=$$($(GO) test -list '^Fuzz' "$$dir"); \
		for target in $$(grep '^Fuzz' <<<"$$list"); do \
			echo "== $$dir $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(T) "$$dir"; \
		done; \
	done

.PHONY: demo
demo: ## a gateway between a real A2A agent and a real MCP server, verified
	$(GO) run ./cmd/aepb-gateway demo

.PHONY: cluster
cluster: redis $(PROMETHEUS) ## three replicas, Redis, two demo agents and Prometheus, as deploy/compose has them, as processes
	$(GO) run ./test/cluster

.PHONY: vectors
vectors: ## rewrite the recorded vectors from what the code does; read the diff
	@dirs=$$($(call with,flag[.]Bool.*"update")); \
	if [[ -z $$dirs ]]; then echo "no recorded vectors"; else $(GO) test -count=1 $$dirs -update; fi

.PHONY: cover
cover: ## coverage of all packages by all tests, as coverage.out and a total
	$(GO) test -count=1 -coverpkg=$(PKG) -coverprofile=coverage.out $(PKG)
	$(GO) tool cover -func=coverage.out | tail -1

.PHONY: functions
functions: ## the functions of gateway/ that one unary message runs through, beside state, telemetry, wires and directory
	@mkdir -p $(TMP); for k in Built A2AToMCP; do \
	  $(GO) test -count=1 -run "TestUnary_$$k\$$" -coverpkg=./gateway/... -coverprofile=$(TMP)/$$k.cover ./gateway >/dev/null && \
	  $(GO) tool cover -func=$(TMP)/$$k.cover | awk '$$3 != "0.0%" {print $$1, $$2}' | sort > $(TMP)/$$k.functions; done
	@comm -13 $(TMP)/Built.functions $(TMP)/A2AToMCP.functions | grep -vE 'gateway/(state|telemetry|transport|directory)/' | tee $(TMP)/unary.functions | wc -l

.PHONY: release-check
release-check: $(GORELEASER) $(SYFT) ## a whole release into .tmp/release-check: made twice, compared, run; publishes nothing
	GORELEASER=$(GORELEASER) SYFT=$(SYFT) OUT=$(TMP)/release-check test/release/check.sh

.PHONY: tools
tools: $(GOLANGCI) $(JS_READY) $(PYTHON_READY) redis jq $(PROMETHEUS) ## the pinned tools and test clients

.PHONY: clean
clean: ## remove what the targets made
	rm -rf bin $(TMP) coverage.out $(JS:%=%/node_modules)

$(GOLANGCI):
	@mkdir -p $(BIN)
	GOBIN=$(abspath $(BIN)) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@mv $(BIN)/golangci-lint $@

$(GORELEASER) $(SYFT): $(BIN)/%:
	@mkdir -p $(BIN)
	GOFLAGS= GOBIN=$(abspath $(BIN)) $(GO) install $(if $(findstring syft,$*),github.com/anchore/syft/cmd/syft@$(SYFT_VERSION),github.com/goreleaser/goreleaser/v2@$(GORELEASER_VERSION))
	@mv $(BIN)/$(firstword $(subst -, ,$*)) $@

$(GOVULNCHECK):
	@mkdir -p $(BIN)
	GOBIN=$(abspath $(BIN)) $(GO) install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION)
	@mv $(BIN)/govulncheck $@

# Debian's package is unpacked and not installed: as a package it would be a service.
$(BIN)/prometheus:
	@command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || { echo "prometheus and promtool are needed in PATH for the test that scrapes gateways"; exit 1; }
	@mkdir -p $(BIN) && dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && cd "$$dir" && \
	{ apt-get download -qq prometheus || { sudo=; [[ $$(id -u) == 0 ]] || sudo=sudo; $$sudo apt-get update -qq; apt-get download -qq prometheus; }; } && \
	dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/prometheus ./usr/bin/promtool && \
	touch usr/bin/prometheus && mv usr/bin/promtool usr/bin/prometheus $(abspath $(BIN))/

# A virtual environment from pinned versions with hashes. To change one, edit it and have
# `uv pip compile --no-strip-extras --universal --python-version 3.11 --generate-hashes --no-header
# --no-annotate --no-emit-index-url --no-emit-find-links` read and write the file.
$(PYTHON_READY): $(TMP)/python-%/.ready: test/python/requirements-%.txt | venv
	rm -rf $(@D) && python3 -m venv $(@D) && $(@D)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	@touch $@

$(TMP)/python-slim/.ready: test/slim/requirements.txt | venv
	rm -rf $(@D) && python3 -m venv $(@D) && $(@D)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --require-hashes --requirement $<
	@touch $@

# Not below test: one of the packages has code in Go.
$(TMP)/stdio-more/.ready: test/stdio/more/package-lock.json
	@command -v npm >/dev/null || { echo "npm is needed for the servers in test/stdio/more"; exit 1; }
	rm -rf $(@D) && mkdir -p $(@D) && cp test/stdio/more/package.json $< $(@D) && cd $(@D) && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

$(TMP)/stdio-new/.ready $(TMP)/stdio-old/.ready: $(TMP)/stdio-%/.ready: test/stdio/requirements-%.txt | venv
	rm -rf $(@D) && python3 -m venv $(@D) && $(@D)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	@touch $@

.PHONY: venv
venv: # a Python that can make virtual environments
	@command -v python3 >/dev/null && python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && exit; \
	sudo=; [[ $$(id -u) == 0 ]] || sudo=sudo; \
	command -v apt-get >/dev/null || { echo "python3 of 3.11 or later with venv and pip is needed for the Python SDKs"; exit 1; }; \
	echo "installing python3-venv with apt-get, for the Python SDKs"; \
	$$sudo apt-get update -qq; \
	$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv; \
	python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' || { echo "python3 of 3.11 or later with venv and pip is needed for the Python SDKs, and the python3 in PATH is not one"; exit 1; }

# Among the packages is a Node of the version they need, for machines with an
# older one; the tests choose it themselves. No package may run a script here.
$(JS_READY): %/node_modules/.package-lock.json: %/package-lock.json
	@command -v npm >/dev/null || { echo "npm is needed for the JavaScript packages in $*"; exit 1; }
	cd $* && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@
