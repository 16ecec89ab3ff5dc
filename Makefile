# Everything that is done to outtail is a target here; `make help` lists them. CI runs `make test` and nothing else.

GO      ?= go
# Of a tagged commit; else the binary keeps the version that is in its source.
VERSION ?= $(shell git describe --tags --dirty 2>/dev/null)
IMAGE   ?= outtail:$(or $(VERSION),dev)
# A release build: static, without paths of the machine that built it.
BUILD   := CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w $(if $(VERSION),-X main.version=$(VERSION))'
# The servers' environment, written by setup.
SERVERS := bin/servers.env
LINT    := $(shell command -v golangci-lint 2>/dev/null || echo $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0)
# The race detector needs a C compiler; a machine without one still runs the tests.
RACE    := $(if $(shell command -v $$($(GO) env CC) 2>/dev/null),-race)

SHELL := /bin/bash
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help build setup test vet test-unit test-integration lint fmt demo bench bench-quick image compose-check clean

help: ## this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## bin/outtail
	$(BUILD) -o bin/outtail ./cmd/outtail

setup: ## prepare Docker and the test servers' images (installs and builds what is missing, as root on Debian)
	@mkdir -p bin
	@test/images/setup.sh >$(SERVERS).new && mv $(SERVERS).new $(SERVERS)

test: setup vet test-unit test-integration ## all tests: unit, integration and crash tests on real servers

vet: ## gofmt, go vet
	@out=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$out" ] || { echo "not gofmt'ed (make fmt): $$out"; exit 1; }
	$(GO) vet ./...

test-unit: ## unit tests with the race detector: no servers, no network
	@[ -n "$(RACE)" ] || echo "test-unit: without the race detector, which needs a C compiler"
	$(GO) test $(RACE) -p 2 -timeout 10m $$($(GO) list ./... | grep -v '/outtail/test/')

test-integration: setup build ## integration and crash tests (RUN=regexp narrows, V=-v prints each)
	@# All of test/, and the packages whose own tests use servers. Several at a time, of each: they mostly wait.
	set -a; . $(SERVERS); OUTTAIL_BINARY=$(CURDIR)/bin/outtail; set +a; \
	$(GO) test $(V) $(if $(RUN),-run '$(RUN)') -count=1 -p 2 -parallel 3 -timeout 40m $$($(GO) list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./... \
		| awk '$$1 ~ "/outtail/test/" || /outtail\/test\/harness/ { print $$1 }')

lint: ## golangci-lint (.golangci.yml says why what is off is off)
	$(LINT) run ./...

fmt: ## gofmt -w
	gofmt -w $$(git ls-files '*.go')

demo: build ## the main job on embedded servers, killed every 15 s, with a verdict (DEMO_SECONDS=40 ends it by itself)
	@exec bin/outtail demo

bench: setup build ## outtail and Debezium in turns on the same servers: drains, crashes, latency, growth; takes an hour (BENCH="-sources mysql -runs 5")
	@rm -f bin/bench.jsonl
	$(call measure,Drain|Crash|Latency|Spread|Way,-runs 3 $(BENCH))
	$(call measure,Growth,$(BENCH))
	$(GO) run ./test/bench/report bin/bench.jsonl docs

bench-quick: setup build ## outtail alone, small, in under three minutes: for development, before and after
	@rm -f bin/bench.jsonl
	$(call measure,Drain|Latency,-runs 2 -rows 200000 -period 8s -arms outtail $(BENCH))
	$(GO) run ./test/bench/report bin/bench.jsonl

# Measurements of this name, with these flags; results are added to bin/bench.jsonl.
measure = set -a; . $(SERVERS); OUTTAIL_BINARY=$(CURDIR)/bin/outtail OUTTAIL_BENCH=1; set +a; \
	$(GO) test ./test/bench -run '$(1)' -v -count=1 -timeout 3h -results $(CURDIR)/bin/bench.jsonl $(2)

image: ## the container image (IMAGE=name:tag)
	docker build --build-arg VERSION=$(VERSION) -t $(IMAGE) .

compose-check: ## docker-compose.yml is well-formed and really carries an event to each topic
	test/compose/check.sh

clean: ## what was built here (images and the Docker engine stay)
	rm -rf bin dist
