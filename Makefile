# Development commands. Needs GNU make 3.81 or later. `make` without a target lists the targets.
#
# ARGS is passed to the program of a target: the test binaries (make test ARGS=name), the simulation, the torture,
# benches/peers, or the mutations. SEEDS is the number of runs of the simulation. SECONDS and SEED are the duration and
# the seed of the torture: make torture SECONDS=600 SEED=7 ARGS="--mode outside". BUILD replaces the packages that demo,
# sim and torture build: targets with the same packages share all dependencies.

SHELL := /bin/sh
.DEFAULT_GOAL := help

# Checks the requirements, installs missing ones, then runs the command that follows.
WITH := ./scripts/setup.sh
PEERS := --manifest-path benches/peers/Cargo.toml
# One target directory for this workspace and for benches/peers, which is not part of the workspace.
DIR := $(or $(CARGO_TARGET_DIR),target)
TARGET := --target-dir $(DIR)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' Makefile

.PHONY: demo
demo: ## watch a lock on five Redis servers while servers are killed and stopped
	$(WITH) cargo build $(or $(BUILD),-p quorlock-demo)
	@$(WITH) $(DIR)/debug/quorlock-demo

.PHONY: test
test: ## run all tests, on real redis-server processes
	$(WITH) cargo test --workspace --all-features --no-fail-fast -- $(ARGS)

# All packages, so that the dependencies have the features of `make test` and are not built again.
.PHONY: loom
loom: ## run the tests of concurrent code in every order of thread steps (loom)
	cargo test --config "build.rustc-workspace-wrapper='scripts/rustc-loom.sh'" --workspace --all-features --lib -- loom_tests:: $(ARGS)

.PHONY: versions
versions: ## run the server tests on each other available version of Redis and Valkey
	$(WITH) ./scripts/servers.sh sh -c "cargo test --quiet -p quorlock-server-model && \
		cargo test --quiet --all-features --test it -- $(ARGS)"

.PHONY: examples
examples: ## run the programs of docs/RECIPES.md on real servers and check their output
	$(WITH) cargo build --all-features --examples
	$(WITH) cargo test --all-features -p quorlock -p quorlock-http -p quorlock-postgres \
		--test examples --test answers --test transaction

.PHONY: compose-test
compose-test: ## lock across the containers of docker-compose.yml while they are paused, killed and disconnected
	$(WITH) ./scripts/compose-test.sh

.PHONY: sim
sim: ## simulate complete clients and model nodes: SEEDS runs of each mode
	$(WITH) cargo build --release --quiet $(or $(BUILD),-p quorlock-sim)
	$(DIR)/release/quorlock-sim --seeds $(or $(SEEDS),2000) $(ARGS)
	cargo test --release --quiet $(or $(BUILD),-p quorlock-sim) --test modes

SECONDS ?= 120
SEED ?= 7

.PHONY: torture
torture: ## run contended locks on real servers under faults, and check the results
	$(WITH) cargo build --release $(or $(BUILD),-p quorlock-torture)
	$(WITH) $(DIR)/release/quorlock-torture --seconds $(SECONDS) --seed $(SEED) $(ARGS)

.PHONY: bench
bench: ## run the benchmarks, then the side-by-side comparison with rslock
	$(WITH) cargo bench --bench '*'
	$(WITH) cargo run --release $(PEERS) $(TARGET) -- $(ARGS)

.PHONY: model
model: ## search every state of a small Redlock for two holders at once
	cargo run --release --quiet -p quorlock-model

.PHONY: mutants
mutants: ## add plausible defects, and check that tests detect each: MUTANTS=name ARGS="--since COMMIT"
	$(WITH) cargo run --quiet -p quorlock-mutants -- $(MUTANTS) --seeds $(or $(SEEDS),20000) $(ARGS)

.PHONY: coverage
coverage: ## line coverage by all tests, or by the simulation alone (SIM=1); LINES=1 lists uncovered lines
	$(WITH) env SIM=$(SIM) LINES=$(LINES) SEEDS=$(SEEDS) ARGS="$(ARGS)" ./scripts/coverage.sh

.PHONY: protocol-mutants
protocol-mutants: ## run cargo-mutants on src/protocol with its unit tests (SHARD=1/8: a part)
	SHARD=$(SHARD) ARGS="$(ARGS)" ./scripts/protocol-mutants.sh

.PHONY: fmt
fmt: ## format the code
	cargo fmt --all
	cargo fmt $(PEERS)

.PHONY: lint
lint: ## check the format, and run clippy with and without features
	cargo fmt --all --check
	cargo fmt $(PEERS) --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings
	cargo clippy --lib --no-default-features -- -D warnings

.PHONY: doc
doc: ## build the documentation, with warnings as errors
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --all-features

.PHONY: clean
clean: ## delete build results
	cargo clean
	rm -rf benches/peers/target
