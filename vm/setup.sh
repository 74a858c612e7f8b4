#!/bin/bash
# Prepares this machine for the guests of this folder; run it as "cargo xtask vm setup".
#
# 1. Host packages (QEMU, busybox, ndctl, ...) by apt-get: missing ones are printed, and installed if we are root.
# 2. A stock distribution kernel, downloaded and unpacked into vm/.cache/kernel (never installed on the host).
# 3. An initramfs with busybox and the modules that reach the host's /usr (vm/initramfs.sh).
#
# No step is repeated: existing files are kept. "rm -rf vm/.cache" starts afresh.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
cache=$here/.cache
mkdir -p "$cache"

say() { echo "vm setup: $*"; }
fail() { say "$*" >&2; exit 1; }

# Programs that run on the host (QEMU), and programs that the guest runs from the host's /usr (ndctl, mkfs, modprobe,
# ...).
packages=(qemu-system-x86 busybox-static cpio kmod ndctl daxctl e2fsprogs xfsprogs util-linux \
  rdma-core ibverbs-providers iproute2)

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  command="apt-get install -y --no-install-recommends ${missing[*]}"
  [ "$(id -u)" = 0 ] || fail "missing: ${missing[*]}; please run: sudo apt-get update && sudo $command"
  say "installing ${missing[*]} ($command)"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $command >/dev/null
fi

# The kernel that the distribution's meta package names: linux-image-amd64 (Debian), linux-image-generic (Ubuntu).
if [ ! -f "$cache/kernel/version" ]; then
  name=""
  for meta in linux-image-amd64 linux-image-generic; do
    name=$(apt-cache depends "$meta" 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
    [ -z "$name" ] || break
  done
  [ -n "$name" ] || fail "apt knows no stock kernel (linux-image-amd64); run: apt-get update"
  version=${name#linux-image-}
  downloads=("$name")
  # Ubuntu keeps the modules in separate packages.
  for modules in "linux-modules-$version" "linux-modules-extra-$version"; do
    [ -z "$(apt-cache show "$modules" 2>/dev/null)" ] || downloads+=("$modules")
  done
  say "unpacking ${downloads[*]} into vm/.cache/kernel (not installed on this machine)"
  rm -rf "$cache/kernel" "$cache/download" "$cache/initramfs.gz"
  mkdir -p "$cache/kernel" "$cache/download"
  (cd "$cache/download" && apt-get download "${downloads[@]}" 2>&1 | grep -v unsandboxed || true)
  ls "$cache/download/"*.deb >/dev/null 2>&1 || fail "the kernel package could not be downloaded"
  for archive in "$cache/download/"*.deb; do dpkg-deb -x "$archive" "$cache/kernel"; done
  rm -rf "$cache/download"
  [ -d "$cache/kernel/lib/modules" ] || ln -s usr/lib "$cache/kernel/lib"
  depmod -b "$cache/kernel" "$version"
  echo "$version" >"$cache/kernel/version"
fi

version=$(cat "$cache/kernel/version")
for module in nfit nd_pmem dax_pmem device_dax ext4 xfs 9pnet_virtio overlay virtio_net rdma_rxe ib_uverbs; do
  modprobe -d "$cache/kernel" -S "$version" --show-depends "$module" >/dev/null 2>&1 ||
    fail "kernel $version has no module $module; remove vm/.cache/kernel to fetch another kernel"
done

if [ ! -f "$cache/initramfs.gz" ] || [ "$here/initramfs.sh" -nt "$cache/initramfs.gz" ]; then
  say "building vm/.cache/initramfs.gz"
  "$here/initramfs.sh" "$cache/kernel" "$version" "$cache/initramfs.gz"
fi
say "ready (kernel $version, $(qemu-system-x86_64 --version | head -n 1)); next: cargo xtask vm pmem"
