#!/bin/bash
# Makes sure that this machine can build Lodestone. Silent and quick if nothing is missing.
#
# usage: tools/setup.sh build|test|deny     ("test" also needs rustfmt, clippy and a browser, "deny" cargo-deny)
#
# 1. A C linker (cc). If missing, apt-get installs gcc and libc6-dev if we are root; otherwise the command is printed.
# 2. cargo, at least rust-version of Cargo.toml. If it is missing or too old, and the distribution has a package that is
#    new enough (rustup), that package is installed. Otherwise the two commands of the Rust project are printed.
#    LODESTONE_INSTALL_RUST=1 runs those commands instead of printing them.
# 3. rustfmt and clippy for "test", and a headless browser (chromium), in which a test opens a report.
# 4. cargo-deny for "deny", built by cargo: some minutes, once.
#
# Nothing is installed without a line that starts with "setup:" and names it.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
purpose=${1:-build}
export PATH="$HOME/.cargo/bin:$PATH"

say() { echo "setup: $*" >&2; }
fail() { say "$*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# Root installs. Other users are told which command to type.
apt_install() {
  local command="apt-get install -y --no-install-recommends $*"
  have apt-get || fail "missing: $*; this machine has no apt-get, install them by its own package manager"
  [ "$(id -u)" = 0 ] || fail "missing: $*; please run: sudo apt-get update && sudo $command"
  say "installing $* ($command)"
  apt-get update -qq || say "apt-get update failed; trying with the package lists at hand"
  DEBIAN_FRONTEND=noninteractive $command >/dev/null || fail "apt-get could not install: $*"
}

# at_least WANTED FOUND: is version FOUND the same as WANTED or newer?
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

rust_wanted=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' Cargo.toml | head -n 1)
rust_found() { cargo --version 2>/dev/null | awk '{ print $2 }'; }
rust_ok() { local found; found=$(rust_found) && [ -n "$found" ] && at_least "$rust_wanted" "$found"; }

install_rust_from_its_project() {
  have curl || apt_install curl ca-certificates
  say "installing Rust (stable) for this user into ~/.cargo with rustup (https://rustup.rs)"
  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --no-modify-path --profile minimal ||
    say "that failed"
}

ensure_rust() {
  rust_ok && return
  local found; found=$(rust_found || true)
  say "Rust ${rust_wanted} or newer is needed; found: ${found:-none}"
  if ! have rustup && have apt-cache && [ "$(id -u)" = 0 ]; then
    [ -n "$(apt-cache show rustup 2>/dev/null)" ] || apt-get update -qq || true
    if [ -n "$(apt-cache show rustup 2>/dev/null)" ]; then apt_install rustup ca-certificates; fi
  fi
  if have rustup; then
    say "installing the stable Rust toolchain for this user (rustup toolchain install stable)"
    rustup toolchain install stable --profile minimal
    rust_ok || rustup default stable
  elif [ "${LODESTONE_INSTALL_RUST:-0}" = 1 ]; then
    install_rust_from_its_project
  fi
  rust_ok && return
  say "please install it (as here, or by any other way that installs cargo $rust_wanted), then run the same command again:"
  say "    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"
  fail "or let this script do so: put LODESTONE_INSTALL_RUST=1 before the same command"
}

# ensure_component CARGO_SUBCOMMAND RUSTUP_COMPONENT APT_PACKAGE
ensure_component() {
  cargo "$1" --version >/dev/null 2>&1 && return
  if have rustup; then
    say "installing the Rust component $2 (rustup component add $2)"
    rustup component add "$2"
  else
    apt_install "$3"
  fi
  cargo "$1" --version >/dev/null 2>&1 || fail "cargo $1 is still missing"
}

have cc || apt_install gcc libc6-dev
ensure_rust
if [ "$purpose" = test ]; then
  ensure_component fmt rustfmt rustfmt
  ensure_component clippy clippy rust-clippy
  have chromium || have chromium-browser || have google-chrome || apt_install chromium
fi
if [ "$purpose" = deny ] && ! cargo deny --version >/dev/null 2>&1; then
  say "installing cargo-deny for this user (cargo install cargo-deny --locked), which takes some minutes"
  cargo install cargo-deny --locked
fi
