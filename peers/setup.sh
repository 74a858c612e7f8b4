#!/bin/bash
# Installs the libraries that the peers link: RocksDB, SQLite and libpmemobj. Silent when all are there.
set -euo pipefail
missing=()
[ -e /usr/include/rocksdb/c.h ] || missing+=(librocksdb-dev)
[ -e /usr/include/sqlite3.h ] || missing+=(libsqlite3-dev)
[ -e /usr/include/libpmemobj.h ] || missing+=(libpmemobj-dev)
[ ${#missing[@]} -gt 0 ] || exit 0
command="apt-get install -y --no-install-recommends ${missing[*]}"
if [ "$(id -u)" != 0 ]; then
  echo "missing: ${missing[*]}; please run: sudo apt-get update && sudo $command" >&2
  exit 1
fi
echo "setup: installing ${missing[*]} ($command)" >&2
apt-get update -qq || echo "setup: apt-get update failed; trying with the package lists at hand" >&2
DEBIAN_FRONTEND=noninteractive $command >/dev/null
