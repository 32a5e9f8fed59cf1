# Every target with a "##" comment is listed by "make help". Tools run at the versions below, in ./bin, out of go.mod.

GOLANGCI_VERSION    := v2.15.0
GOFUMPT_VERSION     := v0.12.0
STATICCHECK_VERSION := v0.8.2

BIN         := $(CURDIR)/bin
GOLANGCI    := $(BIN)/golangci-lint-$(GOLANGCI_VERSION)
GOFUMPT     := $(BIN)/gofumpt-$(GOFUMPT_VERSION)
STATICCHECK := $(BIN)/staticcheck-$(STATICCHECK_VERSION)

PKGS      ?= ./...
TESTFLAGS ?=
FUZZTIME  ?= 30s
SOAKTIME  ?= 10m
BENCHARGS ?=
BASE      ?=

# One package that hangs must not use up all of the time. Beside other busy processes endtoend takes 17 minutes.
TEST_TIMEOUT ?= 35m
# The packages that take longest begin first, so that none of them is left alone at the end.
TEST_FIRST := ./internal/endtoend ./broker/amqpbroker ./internal/faulttest ./consumer ./cmd/swarmiji ./broker/redisbroker ./broker/sqlbroker
# Packages with servers mostly wait: amqpbroker's tests take 230 s, of which the processors work 42 s. With six at once two cores are busy
# all the time, and some timings become worthless.
TEST_PARALLEL ?= 4
# The files of the tests and of their servers are in memory where there is room for them, since the tests kill processes, not computers.
# Test binaries stay on the disk.
TEST_DIR ?= $(shell [ "$$(df -k --output=avail /dev/shm 2>/dev/null | tail -1)" -gt 6000000 ] 2>/dev/null && echo /dev/shm/swarmiji-test)
# These packages only compute: the race detector makes them up to eight times slower and finds nothing there. SQLite's engine is C
# translated to Go; docs and archtest read source files. Where such a package orders goroutines by atomic operations, "intrinsics/off" makes
# these calls, which the detector sees; without it the detector would report races that are none. Code with crypto/subtle panics with it.
#
# The flags stand in the environment for the programs that tests build: with other flags than the tests, all that they import would be
# compiled twice.
OWN           := github.com/swarmiji/swarmiji
COMPUTES      := encoding/... go/... hash/... html/... math/... reflect regexp/... text/... unicode/... \
	github.com/google/go-cmp/... github.com/vmihailenco/... pgregory.net/...
# The compiler writes no tables for debuggers, which the linker drops: a sixth of its processor time.
NO_DWARF      := -dwarf=false
# It does not inline calls in this module and in go-redis: that takes two fifths of the time to compile them. The tests are as fast
# without, because most of their time is the race detector's. But a function may allocate what stays on the stack where it is inlined.
NO_INLINE     := $(OWN)/... github.com/redis/...
# Of several patterns for a package the last one counts.
NO_RACE       := $(NO_DWARF:%=-gcflags=all=%) $(COMPUTES:%='-gcflags=%=-race=false -d=ssa/intrinsics/off $(NO_DWARF)') \
	$(NO_INLINE:%='-gcflags=%=-l $(NO_DWARF)') $(patsubst %,'-gcflags=%=-race=false $(NO_DWARF)',modernc.org/... $(OWN)/docs... $(OWN)/internal/archtest)
TEST_ENV := $(if $(TEST_DIR),mkdir -p -m 1777 $(TEST_DIR) && TMPDIR=$(TEST_DIR) GOTMPDIR=/tmp) CGO_ENABLED=1 GOFLAGS="$(strip $(filter-out $(NO_RACE),$(GOFLAGS)) $(NO_RACE))"

# The test binaries have no symbols and no tables for debuggers: a third of the time of linking 190 of them. Stacks of panics do not need
# them.
TEST_LINK := "-ldflags=-s -w"

# The compiler and the linker without garbage collection, vet without facts about other modules.
TOOLS := -toolexec=$(CURDIR)/scripts/tool.sh

# A program with the race detector sleeps for a second before it ends, each test's and each process of theirs, so that other threads may
# finish their reports.
GORACE ?= atexit_sleep_ms=50
export GORACE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## install what the tests need and the machine lacks (Debian, as root)
	@./scripts/setup.sh
	@$(TEST_ENV) go build $(TOOLS) -o /dev/null ./internal/testserver/natsd # else the first test would wait for the compiler

.PHONY: test
test: setup ## run all tests with the race detector against real servers (20 to 40 minutes on 2 cores, by the machine)
	$(TEST_ENV) SWARMIJI_REQUIRE_SERVERS=1 go test -race $(TOOLS) $(TEST_LINK) -p $(TEST_PARALLEL) -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $(if $(filter ./...,$(PKGS)),$(TEST_FIRST)) $(PKGS)

.PHONY: unit
unit: ## run the tests that this machine can run; those without their server are skipped
	go test $(TESTFLAGS) $(PKGS)

.PHONY: test-short
test-short: ## run the quick tests only (go test -short)
	go test -short $(TESTFLAGS) $(PKGS)

.PHONY: lint
lint: $(GOLANGCI) $(STATICCHECK) fmt-check vet ## run golangci-lint, staticcheck, gofumpt and go vet
	$(GOLANGCI) run $(PKGS)
	$(STATICCHECK) $(PKGS)

.PHONY: fmt
fmt: $(GOFUMPT) ## format all Go files
	$(GOFUMPT) -w .

.PHONY: fmt-check
fmt-check: $(GOFUMPT) ## list files that are not formatted, and fail if there are any
	@files=$$($(GOFUMPT) -l .) && if [ -n "$$files" ]; then printf 'not formatted; run make fmt:\n%s\n' "$$files"; exit 1; fi

.PHONY: vet
vet: ## run go vet, on packages compiled as the tests are
	$(TEST_ENV) go vet -race $(TOOLS) $(PKGS)

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (30s)
	./scripts/fuzz.sh $(FUZZTIME)

.PHONY: thorough
thorough: export SWARMIJI_THOROUGH = 1
thorough: setup ## run all tests as test does, and those that "make test" leaves out because they take long (an hour)
	SWARMIJI_REQUIRE_SERVERS=1 CGO_ENABLED=1 go test -race -p $(TEST_PARALLEL) -timeout 60m $(TESTFLAGS) $(PKGS)

.PHONY: browser
browser: setup ## test the dashboard in a browser over three brokers
	SWARMIJI_THOROUGH=1 SWARMIJI_REQUIRE_SERVERS=1 go test -count 1 -timeout 30m -v $(TESTFLAGS) ./internal/browsertest

.PHONY: screenshots
screenshots: setup ## take the pictures of docs/dashboard
	SWARMIJI_SCREENSHOTS=$(CURDIR)/docs/dashboard SWARMIJI_REQUIRE_SERVERS=1 go test -count 1 -run '^TestScreenshots$$' ./internal/browsertest

.PHONY: soak
soak: setup ## run the long tests, faults included, for SOAKTIME each (10m)
	SWARMIJI_REQUIRE_SERVERS=1 SWARMIJI_SOAK=$(SOAKTIME) CGO_ENABLED=1 go test -race -p 1 -count 1 -timeout 0 -v -run '^TestSoak' $(PKGS)

.PHONY: bench
bench: setup ## measure against the raw client, or against the commit BASE, and print the table of ratios
	$(if $(BASE),./scripts/beside.sh compare $(BASE),go run ./bench/compare) $(BENCHARGS)

.PHONY: bench-peers
bench-peers: setup ## measure beside River, asynq and BullMQ (bench/peers; needs Node for BullMQ)
	cd bench/peers && npm ci --no-audit --no-fund --ignore-scripts --silent && go run . $(BENCHARGS)

.PHONY: cost
cost: setup ## measure what features cost, unused and used, against the commit BASE without them
	./scripts/beside.sh cost $(or $(BASE),57fe833) $(BENCHARGS)

.PHONY: capabilities
capabilities: setup ## write docs/capabilities.md from what the conformance suites see of each adapter
	SWARMIJI_UPDATE=1 SWARMIJI_REQUIRE_SERVERS=1 go test -p 1 -count 1 -timeout $(TEST_TIMEOUT) -run '^Test(Conformance(Quorum|SQLite|Postgres)?|Store(Postgres)?|Bus(Postgres)?)$$' ./broker/... ./resultstore/... ./events/... ./schedule/...
	SWARMIJI_UPDATE=1 go test -count 1 ./internal/captable

.PHONY: cover
cover: setup ## run all tests and write what they cover to cover.out
	SWARMIJI_REQUIRE_SERVERS=1 go test -p $(TEST_PARALLEL) -timeout $(TEST_TIMEOUT) -coverpkg=./... -coverprofile=cover.out $(PKGS)
	go tool cover -func=cover.out | tail -1

.PHONY: tidy
tidy: ## tidy go.mod and check the downloaded modules
	go mod tidy
	go mod verify

.PHONY: clean
clean: ## remove what the targets made
	rm -rf $(BIN) .tmp
	find . -name '*.test' -type f -delete
	rm -f cover.out

# The name of a tool carries its version, so that a new version here is a new file there.
$(GOLANGCI):
	@$(call install,github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION),golangci-lint)

$(GOFUMPT):
	@$(call install,mvdan.cc/gofumpt@$(GOFUMPT_VERSION),gofumpt)

$(STATICCHECK):
	@$(call install,honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK_VERSION),staticcheck)

define install
echo "building $(1), once"; GOBIN=$(BIN) nice go install $(1) && mv $(BIN)/$(2) $@
endef
