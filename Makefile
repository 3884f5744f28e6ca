# FarFS from the outside: each target hands on to cargo, cargo xtask or a script.

PREFIX ?= /usr/local
DESTDIR ?=
KEEP ?=

BIN := $(DESTDIR)$(PREFIX)/bin
SHARE := $(DESTDIR)$(PREFIX)/share
UNITS := $(DESTDIR)$(PREFIX)/lib/systemd/system
RELEASE := target/release/farfs
LEND := target/release/farfs-lend

.PHONY: help
help: ## list what can be made
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

.PHONY: setup
setup: ## install what building and testing need
	@scripts/setup.sh

.PHONY: test
test: setup ## the whole gate: format, house rules, lints, tests, mounts
	cargo xtask ci

.PHONY: quick
quick: ## the gate without the tests that mount
	cargo xtask ci --quick

.PHONY: demo
demo: setup ## show FarFS at work on this machine; KEEP=1 leaves it mounted
	cargo build --release -p cli -p bench
	KEEP=$(KEEP) target/release/bench demo --farfs $(RELEASE)

.PHONY: build
build: ## build the program as it is installed
	cargo build --release -p cli

.PHONY: install
install: build ## install program, manual, completions and units below PREFIX
	install -D -m 755 $(RELEASE) $(BIN)/farfs
	# It may nothing until an administrator says so: README, "Passthrough".
	install -D -m 755 $(LEND) $(BIN)/farfs-lend
	mkdir -p $(SHARE)/man/man1
	$(RELEASE) man $(SHARE)/man/man1
	mkdir -p $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions
	mkdir -p $(SHARE)/fish/vendor_completions.d
	$(RELEASE) completions bash >$(SHARE)/bash-completion/completions/farfs
	$(RELEASE) completions zsh >$(SHARE)/zsh/site-functions/_farfs
	$(RELEASE) completions fish >$(SHARE)/fish/vendor_completions.d/farfs.fish
	for unit in $(wildcard packaging/*.service packaging/systemd/*.service); do \
	    mkdir -p $(UNITS); \
	    sed 's|/usr/local/bin/|$(PREFIX)/bin/|' $$unit >$(UNITS)/$$(basename $$unit); \
	done
	install -D -m 644 packaging/config.toml $(SHARE)/doc/farfs/config.toml
	# mount(8) looks for its helpers here and nowhere else.
	mkdir -p $(DESTDIR)/sbin
	ln -sf $(PREFIX)/bin/farfs $(DESTDIR)/sbin/mount.farfs
