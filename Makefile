# Lodestone: the commands a newcomer needs. Each sets itself up (tools/setup.sh) and says what it installs.

SHELL := /bin/bash
# A Rust installed for the user alone is often not in the path of a fresh shell.
export PATH := $(HOME)/.cargo/bin:$(PATH)

.PHONY: help run test prove lint deny clean
.DEFAULT_GOAL := help

help:
	@echo "Lodestone: storage for persistent memory, and for any SSD file with full power-loss durability."
	@echo
	@echo "  make run     guided first run: a pool, real data, crashes, figures, a report (ARGS='...' is passed on)"
	@echo "  make test    format, tidy, and the tests of every crate; ends with 'N passed, N failed'"
	@echo "  make prove   exhausted crash states, mutation audits, planted bugs, schedules, weak memory, lints"
	@echo "  make lint    format, tidy and lints alone"
	@echo "  make deny    licenses, versions, sources and known faults of the crates of others; needs the network"
	@echo "  make clean   remove what was built, and the guest's files in vm/.cache"
	@echo
	@echo "  cargo xtask vm setup && cargo xtask vm pmem   the tests on (emulated) persistent memory; see vm/README.md"

run:
	@tools/setup.sh build
	@cargo build --release --package lodestone-cli
	@cargo run --release --quiet --package lodestone-cli -- demo $(ARGS)

test:
	@tools/setup.sh test
	@tools/test.sh test

prove:
	@tools/setup.sh test
	@tools/test.sh prove

lint:
	@tools/setup.sh test
	@tools/test.sh lint

deny:
	@tools/setup.sh deny
	@tools/test.sh deny

clean:
	cargo clean
	rm -rf vm/.cache
