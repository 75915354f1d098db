# The tasks of this repository. `make help` lists them; CI runs `make test` (.ci/run).

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BIN := .cache/bin
# All programs are built as the released binary is, so that they share what was compiled. With GOGC=400 the compiler needs a third
# less time, and more memory.
BUILD := CGO_ENABLED=0 GOGC=400 go build -trimpath
# Each module is checked by itself, as its users build it.
MODULES = $(shell go list -m -f '{{.Dir}}')
# Seconds of load for `make torture`, and time for each target of `make fuzz`.
SECONDS_OF_LOAD ?= 60
FUZZTIME ?= 10s
# What `make check-fast` compares with.
BASE ?= $(shell git rev-parse --verify --quiet --abbrev-ref main || echo HEAD)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: check
check: gofmt gofix vet lint prose test ## everything that must hold: the static checks and all tests

.PHONY: check-fast
check-fast: ## gofmt, go vet and quick tests of what differs from BASE (main) and of what imports it
	@$(BUILD) -o $(BIN)/ ./itest/cmd/gotest ./itest/cmd/withservers
	@$(MAKE) --no-print-directory gofmt
	@changed=$$($(BIN)/gotest -changed $(BASE) -list -short); if [ -n "$$changed" ]; then CGO_ENABLED=0 go vet -trimpath $$changed; fi
	@$(BIN)/withservers $(BIN)/gotest -changed $(BASE) -short -timeout=10m work

.PHONY: test
test: programs ## all tests of all modules, the core with the race detector, on servers that it starts itself
	@$(BIN)/withservers $(BIN)/gotest -race=core -timeout=30m work

.PHONY: race
race: programs ## the same, with the race detector for all that it can help: run every night
	@$(BIN)/withservers $(BIN)/gotest -race -timeout=60m work

.PHONY: gofmt
gofmt: ## fail if gofmt would change a file
	@changed=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); \
	if [ -n "$$changed" ]; then printf 'gofmt would change (run gofmt -w on them):\n%s\n' "$$changed"; exit 1; fi

.PHONY: gofix
gofix: ## fail if go fix would change a file
	@go fix -diff work

.PHONY: vet
vet: ## go vet over all modules
	@go vet work

.PHONY: lint
lint: $(BIN)/golangci-lint ## golangci-lint over all modules (.golangci.yaml)
	@status=0; for dir in $(MODULES); do \
		(cd "$$dir" && "$(CURDIR)/$(BIN)/golangci-lint" run --allow-parallel-runners --config "$(CURDIR)/.golangci.yaml" ./...) || status=1; done; exit $$status

.PHONY: prose
prose: $(BIN)/vale ## vale over docs and Go comments (.vale.ini)
	@$(BIN)/vale --no-wrap --output=line --glob='!{.cache,tools/vale}/**' \
		$$(git ls-files --cached --others --exclude-standard '*.md' '*.go' | grep -v _test.go | xargs grep -L '^// Code generated')

.PHONY: vulncheck
vulncheck: $(BIN)/govulncheck ## known vulnerabilities in what is linked; needs the database at vuln.go.dev
	@for dir in $(MODULES); do (cd "$$dir" && "$(CURDIR)/$(BIN)/govulncheck" ./...) || { \
		code=$$?; [ $$code -eq 3 ] || echo "govulncheck did not run to its end in $$dir (is vuln.go.dev reachable?): nothing was found out about it"; exit $$code; }; done

.PHONY: bench
bench: programs $(BIN)/nats-server ## Postrider beside the limits and its peers, an hour; BENCH="-quick -run drain" for less
	@$(BIN)/withservers go run ./bench $(value BENCH)

.PHONY: temporal
temporal: ## build the peer of sagas in bench: BENCH="-run saga-flow -temporal .cache/bin/temporal"; its dependencies are large
	@cd bench/temporal && GOWORK=off go build -ldflags='-s -w' -o "$(CURDIR)/$(BIN)/temporal" .

.PHONY: bench-check
bench-check: programs $(BIN)/nats-server ## fail if a ratio of `make bench` has fallen by 15% since bench/baseline.json
	@$(BIN)/withservers go run ./bench -check $(value BENCH)

.PHONY: microbench
microbench: programs ## the benchmarks of hot functions
	@$(BIN)/withservers go test -run '^$$' -bench . -benchmem work

.PHONY: torture
torture: programs ## the crash, failover and model tests for SECONDS_OF_LOAD (60) seconds each
	@POSTRIDER_TORTURE=$(SECONDS_OF_LOAD)s $(BIN)/withservers go test -count=1 -timeout $$((7200 + 12 * $(SECONDS_OF_LOAD)))s -v \
		-run 'Torture|Crash|Failover|Model' work

.PHONY: saga-model
saga-model: programs ## random sagas, beside the reference on each store, for SECONDS_OF_LOAD (60) seconds each
	@POSTRIDER_TORTURE=$(SECONDS_OF_LOAD)s $(BIN)/withservers go test -count=1 -p 5 -timeout $$((600 + 2 * $(SECONDS_OF_LOAD)))s -v \
		-run '^TestSagaModel$$' ./saga/sagatest ./store/memory ./itest/sqlite ./store/postgres ./itest/mysql

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (10s)
	@go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' work | while read -r dir; do \
		for target in $$(cat "$$dir"/*_test.go | sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p'); do \
			(cd "$$dir" && go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) .) </dev/null; done; done

.PHONY: demo
demo: ## a small shop on SQLite and an embedded JetStream, live
	@go run ./cmd/postrider demo

.PHONY: recording
recording: programs ## docs/demo.svg, the picture of the README, from a run of the demo
	@$(BIN)/postrider demo --plain | $(BIN)/recording > docs/demo.svg

.PHONY: dev
dev: programs ## start all servers, and a shell in which go test finds them
	@$(BIN)/withservers -with POSTGRES,MYSQL,NATS,REDIS,RABBITMQ,KAFKA $${SHELL:-bash} -c \
		'env | grep ^POSTRIDER_TEST_; echo "The servers end with this shell. One test: go test ./store/postgres -run TestModel"; exec $${SHELL:-bash}'

.PHONY: tidy
tidy: programs ## go mod tidy in every module, with the others as they are in the work tree
	@$(BIN)/release tidy

.PHONY: release
release: programs ## commit a release and tag its modules: VERSION=v0.1.0; pushes nothing
	@$(BIN)/release tag $(VERSION)

.PHONY: release-check
release-check: programs ## install the modules and the binary from an empty folder, as users will
	@$(BIN)/release check $(VERSION)

.PHONY: modules
modules: ## a module proxy with the modules as a release has them, into dist/modules: VERSION=v0.1.0
	@echo "building what writes them (a minute the first time)"
	@$(BUILD) -o $(BIN)/ ./itest/cmd/release
	@$(BIN)/release modules $(VERSION)
	@echo "dist/modules has the modules as $(VERSION)"

.PHONY: dist
dist: programs ## binaries for all platforms with checksums, SBOMs and licenses: VERSION=v0.1.0, into dist
	@$(BIN)/release dist $(VERSION)

.PHONY: image
image: programs ## the container image for linux/amd64 and linux/arm64, into dist/image
	@$(BIN)/release image $(VERSION)

.PHONY: chart
chart: programs ## check the Helm chart with Helm, and write the manifests that are made from it
	@cd itest/deploy && ../../$(BIN)/withservers go test -run TestChart -count=1 . -update

SITE := .cache/site
SITE_DIR ?= dist/site
MERMAID := 12.3.0

.PHONY: site
site: $(SITE)/ready ## the documentation site, into dist/site
	@NO_MKDOCS_2_WARNING=1 PYTHONPATH=site $(SITE)/bin/mkdocs build --quiet --strict --config-file site/mkdocs.yml --site-dir "$(abspath $(SITE_DIR))"

$(SITE)/ready: site/requirements.txt Makefile
	@python3 -m venv $(SITE) && $(SITE)/bin/pip install --quiet --requirement site/requirements.txt
	@mkdir -p $(SITE)/assets && cd $(SITE) && npm pack --silent mermaid@$(MERMAID) >/dev/null && tar -xzf mermaid-$(MERMAID).tgz package/dist/mermaid.min.js \
		&& mv package/dist/mermaid.min.js assets/ && rm -r package mermaid-$(MERMAID).tgz
	@touch $@

LANGUAGES := .cache/languages
# A Maven that ends soon takes half the processor time without the best compiler.
JARS := MAVEN_OPTS='-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' mvn --batch-mode --quiet org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DincludeScope=runtime

.PHONY: languages
languages: $(LANGUAGES)/python/ready $(LANGUAGES)/java/ready $(LANGUAGES)/typescript/ready $(LANGUAGES)/migrations/ready

$(LANGUAGES)/python/ready: examples/languages/python/requirements.txt
	@python3 -m venv $(@D) && $(@D)/bin/pip install --quiet --disable-pip-version-check --requirement $< && touch $@

$(LANGUAGES)/java/ready: examples/languages/java/pom.xml
	@$(JARS) --file $< -DoutputDirectory="$(abspath $(@D))" && touch $@

$(LANGUAGES)/migrations/ready: itest/languages/testdata/pom.xml
	@$(JARS) --file $< -DoutputDirectory="$(abspath $(@D))" && touch $@

$(LANGUAGES)/typescript/ready: $(wildcard examples/languages/typescript/*)
	@mkdir -p $(@D) && cp $^ $(@D) && cd $(@D) && npm install --silent --no-audit --no-fund && npm run --silent build && touch ready

CLIENTS := .cache/clients

.PHONY: clients
clients: $(CLIENTS)/python/ready $(CLIENTS)/npm/ready

$(CLIENTS)/python/ready: cmd/postrider/internal/cli/mcp/testdata/requirements.txt
	@python3 -m venv $(@D) && $(@D)/bin/pip install --quiet --disable-pip-version-check --requirement $< && touch $@

$(CLIENTS)/npm/ready: $(addprefix cmd/postrider/internal/cli/mcp/testdata/,package.json client.mjs)
	@mkdir -p $(@D) && cp $^ $(@D) && cd $(@D) && npm install --silent --no-audit --no-fund --ignore-scripts && touch ready

.PHONY: grafana
grafana: .cache/grafana/ready

.cache/grafana/ready: telemetry/testdata/grafana/package.json
	@mkdir -p $(@D) && cp $^ $(@D) && cd $(@D) && npm install --silent --no-audit --no-fund --ignore-scripts && touch ready

.PHONY: programs
programs:
	@$(BUILD) -o $(BIN)/ ./itest/cmd/... ./cmd/postrider

$(BIN)/golangci-lint: TOOL := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(BIN)/govulncheck: TOOL := golang.org/x/vuln/cmd/govulncheck
$(BIN)/nats-server: TOOL := github.com/nats-io/nats-server/v2
$(BIN)/golangci-lint $(BIN)/govulncheck $(BIN)/nats-server: tools/go.mod tools/go.sum
	@echo "building $(@F) (some minutes the first time)"
	@cd tools && GOWORK=off $(BUILD) -o ../$(BIN)/ $(TOOL) && touch ../$@

# vale parses Go with a library in C.
$(BIN)/vale: tools/go.mod tools/go.sum
	@echo "building $(@F) with a C compiler (some minutes the first time)"
	@cd tools && GOWORK=off CGO_ENABLED=1 go build -trimpath -o ../$(BIN)/ github.com/errata-ai/vale/v3/cmd/vale && touch ../$@

.PHONY: clean
clean: ## remove what was built
	rm -rf .cache bin dist
