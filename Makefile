# What to type: `make setup` once, then `make build`, `make test`, `make lint`.
# cargo is found where rustup puts it, even in a shell that has not been told yet.
export PATH := $(HOME)/.cargo/bin:$(PATH)
CARGO := cargo
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

DEMO_PLAN := plans/demo.toml
# Seconds for each fuzz target.
FUZZ_SECONDS ?= 60
SOAK_FUZZ_SECONDS ?= 600
# Of the tool that makes the book.
MDBOOK := 0.5.4
# The command's suites that serve no array.
WITHOUT_IO := advise disk examine generate lab_plans predict scan
# Those that hold arrays against the kernel's, or measure, but for write_hole and scrub: they take minutes. `make soak`
# runs them on both back ends.
JUDGED := bitmaps growing_in_place journal kernel lab_md lab_run members mending replace reshaping sizes
# The command's suites that ask the kernel's md, beside others that do not: they are played before the newest, too.
KERNELS := bitmaps examine firmware growing_in_place journal kernel lockless members mending replace reshape reshaping scrub sizes takeovers ublk \
	updates write_hole
# Most tests wait most of the time: for servers, kernels, failures.
export RUST_TEST_THREADS ?= $(shell echo $$((2 * $$(nproc))))

# Root's tests have mounts of their own, which end with the last of their processes: mkfs.btrfs looks at every mount,
# and would fail where a killed run left that of a dead server. (Without root no test mounts a device.)
OWN_MOUNTS := $(shell own='unshare --mount --propagation slave'; $$own true 2>/dev/null && echo $$own)
CARGO_TEST := $(OWN_MOUNTS) $(CARGO) test --locked --workspace

.PHONY: setup judge build install deb dist demo demo-long pictures test suites commands newest threads arm lint quick book smoke bench accuracy fuzz soak soak-serve fmt

setup: ## install what tests and benchmarks need (Debian), and the Rust tool chain
	scripts/setup.sh

judge: setup ## the newest kernel with all of md, for make soak: ten minutes
	scripts/judges.sh newest lockless

build: ## the lapstrake command: target/release/lapstrake
	$(CARGO) build --locked --release --bin lapstrake

install: ## the command, manual pages, completions, systemd units: make install PREFIX=/usr/local DESTDIR=
	$(CARGO) build --locked --profile dist --bin lapstrake
	scripts/install.sh '$(or $(CARGO_TARGET_DIR),target)/dist/lapstrake' '$(or $(PREFIX),/usr/local)' '$(DESTDIR)'

deb: ## Debian packages for amd64 and arm64: dist/
	scripts/setup.sh dist
	scripts/dist.sh deb

dist: ## packages, static archives, container file, bill of materials, checksums: dist/
	scripts/setup.sh dist
	scripts/dist.sh all

demo: ## every level on four disk image files, checked; then a short plan of the lab: target/demo/demo.html
	scripts/setup.sh demo
	$(CARGO) build --locked --release --bin lapstrake --bin lapstrake-demo
	$(or $(CARGO_TARGET_DIR),target)/release/lapstrake-demo target/demo $(DEMO_PLAN)

demo-long: DEMO_PLAN := # the one that is built in
demo-long: demo ## the same with the lab's quick plan: ten minutes

pictures: build ## docs/pictures of real runs: a terminal, and the head of a report's page (five minutes, or STORE=lab.sqlite)
	$(CARGO) xtask pictures '$(or $(CARGO_TARGET_DIR),target)/release/lapstrake' $(if $(STORE),'$(STORE)')

# What could not be tried, one a line: crate lapstrake-not-run.
test soak: export LAPSTRAKE_NOT_RUN := $(abspath $(or $(CARGO_TARGET_DIR),target))/not-run

test: setup ## every test, within minutes
	$(CARGO_TEST) --no-run
	@rm -f $(LAPSTRAKE_NOT_RUN)
	@echo "The suites run side by side; what they say comes when each has ended."
	status=0; $(MAKE) --no-print-directory --keep-going --jobs=2 --output-sync=target \
		smoke suites commands newest threads arm || status=$$?; \
	scripts/not-run.sh $(LAPSTRAKE_NOT_RUN); exit $$status

suites: ## every test but the command's
	@# The pattern leaves out every program with a name in c: none but cli may have one.
	[ "$$(shopt -s nullglob; echo */*/tests/c*.rs */*/tests/c*/main.rs)" = crates/cli/tests/cli/main.rs ]
	$(CARGO_TEST) --no-fail-fast --lib --bins --test '[!c]*'
	$(CARGO_TEST) --no-fail-fast --doc

commands: ## the command's tests
	$(CARGO_TEST) --test cli

newest: ## the command's tests that ask the kernel's md, before Debian's newest
	LAPSTRAKE_JUDGE=newest $(CARGO_TEST) --test cli -- $(addsuffix ::,$(KERNELS))

# The other suites run on both back ends by themselves.
threads: ## as where io_uring is refused: files' tests, and the command's that are not left to the soak
	LAPSTRAKE_BACKEND=threads $(CARGO_TEST) --no-fail-fast \
		--test cli --test fuse -- $(patsubst %,--skip %::,$(WITHOUT_IO) $(JUDGED))

arm: ## the parity kernels of ARM, emulated
	scripts/test-aarch64.sh

lint: ## format, warnings, imports, no_std, documentation and its links
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) xtask check-imports
	$(CARGO) xtask check-nostd
	$(CARGO) xtask check-links
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --workspace --no-deps --quiet

quick: ## after an edit: make quick CRATE=engine TEST=NAME; all tests without TEST, what git calls changed without CRATE
	$(OWN_MOUNTS) $(CARGO) xtask quick $(CRATE) $(addprefix -- ,$(TEST))

book: ## docs/ as a book: target/book/index.html
	$(CARGO) xtask check-links
	@# Built once, to write a dozen pages: without optimization that takes a third of the time.
	CARGO_PROFILE_RELEASE_OPT_LEVEL=0 $(CARGO) install --quiet --locked --root target/tools \
		--no-default-features --features search mdbook@$(MDBOOK)
	target/tools/bin/mdbook build

smoke: ## fuzz targets and benchmarks: do they run at all
	$(CARGO) xtask fuzz --quick
	$(CARGO) xtask bench --quick

bench: ## all benchmarks in full, against their gates
	$(CARGO) xtask bench
	$(CARGO) test --locked --release --package lapstrake-lab --test report_page -- --ignored --nocapture painted

accuracy: build ## models against what was measured: make accuracy TRACES=DIR CASES=DIR
	scripts/accuracy.sh '$(TRACES)' '$(CASES)'

fuzz: ## every fuzz target for FUZZ_SECONDS
	$(CARGO) xtask fuzz $(FUZZ_SECONDS)

soak: judge ## the long forms of the tests, before every judge: hours
	scripts/judges.sh trixie
	rm -f $(LAPSTRAKE_NOT_RUN)
	LAPSTRAKE_SOAK=1 $(CARGO_TEST) --release -- --include-ignored
	status=0; for judge in newest trixie lockless; do \
		LAPSTRAKE_SOAK=1 LAPSTRAKE_JUDGE=$$judge $(CARGO_TEST) --release --no-fail-fast --test cli \
			-- --include-ignored $(addsuffix ::,$(KERNELS)) || status=1; \
	done; exit $$status
	LAPSTRAKE_BACKEND=threads $(CARGO_TEST) --release --no-fail-fast --test cli --test fuse
	$(MAKE) --no-print-directory dist
	scripts/test-dist.sh
	$(CARGO) xtask fuzz $(SOAK_FUZZ_SECONDS)
	$(CARGO) xtask mutants
	scripts/not-run.sh $(LAPSTRAKE_NOT_RUN)

soak-serve: setup ## 64 clients of all kinds, killed and started again, for so many hours: make soak-serve HOURS=0.2
	LAPSTRAKE_SOAK_HOURS=$(or $(HOURS),1) $(CARGO_TEST) --release --test cli soak_serve:: -- --ignored --nocapture

fmt: ## format the sources
	$(CARGO) fmt --all
