# The race detector needs a C compiler. Without one the tests run without it.
race := $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)
npm  := integration/npm/node_modules/.package-lock.json

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/interlock
	go build -trimpath -o bin/interlock ./cmd/interlock

.PHONY: install
install: ## install interlock into Go's bin directory
	go install -trimpath ./cmd/interlock

.PHONY: demo
demo: ## three clients at work on one daemon
	go run ./cmd/interlock demo

.PHONY: test
test: $(npm) ## all tests, with the race detector (needs Node.js 20 or later, for the servers and clients of the integration tests)
	go test $(race) -timeout 15m ./...

.PHONY: race
race: ## the tests of the packages alone, with the race detector
	go test -race ./cmd/... ./mcpd/... ./recovery/... ./session/... ./status/...

.PHONY: lint
lint: ## gofmt, go vet and staticcheck, for Linux and macOS
	.ci/lint

.PHONY: fuzz
fuzz: ## every fuzz target, for SECONDS (default 60) in all
	.ci/fuzz $(or $(SECONDS),60)

.PHONY: bench
bench: ## the benchmarks
	go test -run '^$$' -bench . -benchmem ./mcpd/... ./session/... ./recovery/...

.PHONY: generate
generate: ## write the expected output that tests compare with anew
	go test ./cmd/interlock -run 'TestHelp' -update
	go test ./status -update

.PHONY: clean
clean: ## remove what was built and installed here
	rm -rf bin integration/npm/node_modules

$(npm): integration/npm/package.json integration/npm/package-lock.json
	npm ci --prefix integration/npm
	@touch $@
