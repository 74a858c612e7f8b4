#!/bin/bash
# Judges from outside on a mounted volume. They are installed or fetched, never copied into this repository.
#
# usage: tools/judge/fs.sh pjdfstest|pjdfstest-sh|fsx|fsx-two|fio|sqlite|git|redis|cargo [DOMAIN]
#
# LODESTONE_JUDGE_OPERATIONS: operations of each seed of fsx, 20,000 by default. LODESTONE_JUDGE_SIZE: of the volume.
# Needs root, /dev/fuse, and the programs that a message names. The last line is "JUDGE: passed" or "JUDGE: failed".
# Exit code 2: the judge could not be run.
set -uo pipefail
judge=${1:-}
domain=${2:-block}
root=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
lodestone=${LODESTONE:-$root/target/debug/lodestone}
tools=${LODESTONE_JUDGES:-${XDG_CACHE_HOME:-$HOME/.cache}/lodestone-judges}

stop() { echo "error: $1" >&2; exit 2; }
have() { command -v "$1" > /dev/null || stop "$1 is missing; install it by \`$2\`"; }

[ "$(id -u)" = 0 ] || stop "run it as root: the suites change owners and make devices"
[ -e /dev/fuse ] || stop "there is no /dev/fuse"
[ -x "$lodestone" ] || stop "$lodestone is missing; build it by \`cargo build -p lodestone-cli --bin lodestone\`"

work=$(mktemp -d) || exit 2
pid=
others=()
finish() {
  cd /
  local one
  for one in $pid "${others[@]}"; do kill "$one" 2> /dev/null; wait "$one" 2> /dev/null; done
  umount -l "$work/mnt" "$work/mnt1" "$work/mnt2" 2> /dev/null
  rm -rf "$work"
}
trap finish EXIT
chmod 755 "$work"
mkdir "$work/mnt" "$work/beside"

# Starts a program that says in a line that it is ready, and waits for that. LOG TEXT PROGRAM ...
start() {
  local log="$work/$1.log" text=$2 one
  shift 2
  "$@" > "$log" 2>&1 &
  one=$!
  others+=("$one")
  for _ in $(seq 300); do
    grep -q "$text" "$log" && return
    kill -0 "$one" 2> /dev/null || break
    sleep 0.1
  done
  cat "$log" >&2
  stop "$1 does not start"
}

# Ends what was started after the first so many.
end_others() {
  local one
  for one in "${others[@]:$1}"; do kill "$one" && wait "$one"; done
  others=("${others[@]:0:$1}")
}

mount_volume() {
  # An older mount's line would be taken for this one's.
  : > "$work/mount.log"
  "$lodestone" fs mount "$work/a.vol" "$work/mnt" --domain "$domain" > "$work/mount.log" 2>&1 &
  pid=$!
  for _ in $(seq 300); do
    grep -q "is mounted at" "$work/mount.log" && return
    kill -0 "$pid" 2> /dev/null || break
    sleep 0.1
  done
  cat "$work/mount.log" >&2
  stop "the volume cannot be mounted"
}

unmount_volume() {
  cd /
  kill "$pid" && wait "$pid"
  pid=
}

# The Rust suite by its authors, from the registry. Two users are needed: nobody, and one with a group of its own.
judge_pjdfstest() {
  [ -x "$tools/bin/pjdfstest" ] || cargo install pjdfstest --version 0.2.2 --root "$tools" || stop "cargo install failed"
  local second=${LODESTONE_JUDGE_USER:-tests}
  id "$second" > /dev/null 2>&1 || stop "a second user is needed: \`groupadd $second && useradd -g $second $second\`"
  cat > "$work/pjd.toml" << TOML
[features]
posix_fallocate = {}
rename_ctime = {}
utimensat = {}
utime_now = {}
[settings]
naptime = 0.002
allow_remount = false
[dummy_auth]
entries = [["nobody", "$(id -gn nobody)"], ["$second", "$(id -gn "$second")"]]
TOML
  "$tools/bin/pjdfstest" -c "$work/pjd.toml" -p "$work/mnt" -s "$work/beside" > "$work/log" 2>&1
  local code=$?
  grep -E "FAILED|^Summary" "$work/log"
  return $code
}

# The first suite, of shell scripts: 8,798 cases, about four minutes of an idle processor.
judge_pjdfstest_sh() {
  have gcc "apt-get install gcc"
  have prove "apt-get install perl"
  local suite="$tools/pjdfstest-sh" name
  [ -d "$suite" ] || git clone -q https://github.com/pjd/pjdfstest "$suite" || stop "git clone failed"
  # What its configure script would find here.
  for name in FACCESSAT FCHMODAT FCHOWNAT FSTATAT LCHOWN LINKAT MKDIRAT MKFIFOAT MKNODAT OPENAT POSIX_FALLOCATE \
    READLINKAT RENAMEAT SYMLINKAT UNLINKAT UTIMENSAT STRUCT_STAT_ST_ATIM STRUCT_STAT_ST_CTIM STRUCT_STAT_ST_MTIM \
    SYS_SYSMACROS_H; do
    echo "#define HAVE_$name 1"
  done > "$suite/config.h"
  (cd "$suite" && gcc -D_GNU_SOURCE -DHAVE_CONFIG_H -I. -o pjdfstest pjdfstest.c) || stop "the suite does not compile"
  (cd "$work/mnt" && prove -r "$suite/tests") > "$work/log" 2>&1
  local code=$?
  grep -E "Failed|not ok|^Files=|^All" "$work/log"
  return $code
}

# Random operations on one file, compared with memory.
judge_fsx() {
  [ -x "$tools/bin/fsx" ] || cargo install fsx --version 0.3.2 --root "$tools" || stop "cargo install failed"
  local seed
  for seed in 1 2 3; do
    "$tools/bin/fsx" -N "${LODESTONE_JUDGE_OPERATIONS:-20000}" -S "$seed" "$work/mnt/fsx" > "$work/log" 2>&1 ||
      { tail -20 "$work/log"; return 1; }
    echo "seed $seed: ${LODESTONE_JUDGE_OPERATIONS:-20000} operations"
  done
}

# A volume on three machines, which are three processes here, is mounted at mnt1 and mnt2 with this consistency.
mount_two() {
  [ -e "$work/two.vol" ] || {
    local port=${LODESTONE_JUDGE_PORT:-17470} machine
    start keeper "keeper 1 of 1" "$lodestone" fabric keep --new --plain-network --dir "$work/k1" --id 1 \
      --keepers "1=127.0.0.1:$port"
    "$lodestone" fs format "$work/two.vol" --size 256MiB --plain-network --keepers "1=127.0.0.1:$port" \
      --machines "1=127.0.0.1:$((port + 3)),2=127.0.0.1:$((port + 6)),3=127.0.0.1:$((port + 9))" > /dev/null || exit 2
    for machine in 1 2 3; do
      start "machine$machine" "machine $machine of volume" "$lodestone" fs serve "$work/two.vol" --new --plain-network \
        --dir "$work/m$machine" --machine "$machine" --domain "$domain"
    done
    mkdir "$work/mnt1" "$work/mnt2"
  }
  local folder
  for folder in mnt1 mnt2; do
    start "$folder" "is mounted at" "$lodestone" fs mount "$work/two.vol" "$work/$folder" --plain-network \
      --consistency "$1"
  done
}

# The same on a file that is now on one mount of a volume, now on another: at each of its many opens it is the one to
# which a symbolic link points at that moment.
judge_fsx_two() {
  [ -x "$tools/bin/fsx" ] || cargo install fsx --version 0.3.2 --root "$tools" || stop "cargo install failed"
  local count=${LODESTONE_JUDGE_OPERATIONS:-5000} consistency seed flips code
  cat > "$work/fsx.toml" << TOML
[weights]
close_open = 20.0
punch_hole = 5.0
posix_fallocate = 5.0
copy_file_range = 5.0
sendfile = 5.0
fsync = 1.0
TOML
  for consistency in close-to-open strong; do
    mount_two "$consistency"
    for seed in 1 2 3; do
      # A new name: a kernel keeps an old one for a second.
      ln -sfn "$work/mnt1/fsx-$consistency-$seed" "$work/link"
      flip_link "fsx-$consistency-$seed" &
      flips=$!
      "$tools/bin/fsx" -f "$work/fsx.toml" -N "$count" -S "$seed" "$work/link" > "$work/log" 2>&1
      code=$?
      kill "$flips"
      wait "$flips" 2> /dev/null
      [ "$code" = 0 ] || { tail -20 "$work/log"; echo "two mounts, $consistency, seed $seed: a difference"; return 1; }
      echo "two mounts, $consistency, seed $seed: $count operations"
    done
    end_others 4
  done
  "$lodestone" fs fsck "$work/two.vol" --plain-network
}

flip_link() {
  local folder
  while :; do
    for folder in mnt1 mnt2; do
      ln -sfn "$work/$folder/$1" "$work/next" && mv -T "$work/next" "$work/link"
      sleep 0.003
    done
  done
}

judge_fio() {
  have fio "apt-get install fio"
  # It leaves files where it runs.
  (cd "$work" && fio --name=verify --directory="$work/mnt" --rw=randwrite --bs=4k --size=32m --numjobs=2 --fsync=16 \
    --verify=crc32c --do_verify=1 --verify_fatal=1 --minimal) > "$work/log" 2>&1 || { tail "$work/log"; return 1; }
  echo "2 jobs of 32 MiB in random blocks verify"
}

judge_sqlite() {
  have sqlite3 "apt-get install sqlite3"
  local db="$work/mnt/a.db" mode found
  for mode in delete wal; do
    rm -f "$db"*
    {
      echo "pragma journal_mode = $mode; pragma synchronous = full; create table t (k integer primary key, v blob);"
      for number in $(seq 200); do echo "insert into t values ($number, randomblob(3000));"; done
      echo "delete from t where k % 3 = 0; vacuum;"
    } | sqlite3 "$db" > /dev/null || return 1
    # The mount dies in the middle of a life of the database.
    kill -9 "$pid"; wait "$pid" 2> /dev/null
    umount -l "$work/mnt"
    mount_volume
    found=$(sqlite3 "$db" "pragma integrity_check; select count(*) from t")
    [ "$found" = $'ok\n134' ] || { echo "$mode: $found"; return 1; }
    echo "journal mode $mode: intact after a kill of the mount"
  done
}

judge_git() {
  have git "apt-get install git"
  local repo="$work/mnt/repo"
  git clone -q "file://$root" "$repo" || return 1
  git -C "$repo" gc -q --prune=now && git -C "$repo" fsck --full --strict > "$work/log" 2>&1 ||
    { tail "$work/log"; return 1; }
  [ -z "$(git -C "$repo" status --porcelain)" ] || return 1
  unmount_volume
  mount_volume
  git -C "$repo" fsck --full > "$work/log" 2>&1 || { tail "$work/log"; return 1; }
  [ -z "$(git -C "$repo" status --porcelain)" ] || return 1
  echo "a clone of this repository, packed anew, is intact after a new mount"
}

# Redis acknowledges a write when it is synced: what it acknowledged is there after a kill of the mount.
judge_redis() {
  have redis-server "apt-get install redis-server"
  have redis-benchmark "apt-get install redis-tools"
  local socket="$work/redis.sock" count=2000 found
  mkdir "$work/mnt/redis"
  start_redis
  redis-benchmark -s "$socket" -t set -n "$count" -c 4 -d 512 --csv 2> /dev/null | tail -1
  for number in $(seq "$count"); do echo "SET key:$number value-$number"; done | redis-cli -s "$socket" > "$work/log"
  [ "$(grep -c OK "$work/log")" = "$count" ] || { tail "$work/log"; return 1; }
  # Both end in the middle of their lives.
  kill -9 "$pid" "${others[@]}"
  wait "$pid" "${others[@]}" 2> /dev/null
  others=()
  umount -l "$work/mnt"
  mount_volume
  start_redis
  found=$(for number in $(seq "$count"); do echo "GET key:$number"; done | redis-cli -s "$socket" | grep -c '^value-')
  end_others 0
  [ "$found" = "$count" ] || { echo "$found of $count acknowledged values are there"; return 1; }
  redis-check-aof "$(ls "$work"/mnt/redis/appendonlydir/*.incr.aof)" > "$work/log" 2>&1 || { tail "$work/log"; return 1; }
  echo "append-only file, synced always: all $count acknowledged values are there after a kill of the mount"
}

start_redis() {
  start redis "eady to accept connections" redis-server --port 0 --unixsocket "$work/redis.sock" --save "" \
    --dir "$work/mnt/redis" --appendonly yes --appendfsync always
}

# The build of a package with dependencies: many processes, small files, links, renames and memory maps. A test that
# it made runs, and after a new mount nothing has to be built again.
judge_cargo() {
  have cargo "rustup, https://rustup.rs"
  local place="$work/mnt/package" package=${LODESTONE_JUDGE_PACKAGE:-lodestone-fabric}
  mkdir "$place"
  git -C "$root" archive HEAD | tar x -C "$place" || return 1
  in_package build -p "$package" && in_package test -p lodestone-width || { tail -20 "$work/log"; return 1; }
  grep -q "test result: ok" "$work/log" || { tail -20 "$work/log"; return 1; }
  unmount_volume
  mount_volume
  in_package build -v -p "$package" || { tail -20 "$work/log"; return 1; }
  if ! grep -q Fresh "$work/log" || grep -q "Dirty\|Compiling" "$work/log"; then
    tail -20 "$work/log"
    return 1
  fi
  echo "$package and its dependencies: $(grep -c Fresh "$work/log") packages, all fresh after a new mount"
}

in_package() {
  (cd "$place" && CARGO_TARGET_DIR="$place/target" cargo "$@") > "$work/log" 2>&1
}

judges="pjdfstest|pjdfstest-sh|fsx|fsx-two|fio|sqlite|git|redis|cargo"
[[ "|$judges|" == *"|$judge|"* && -n $judge ]] || stop "usage: tools/judge/fs.sh $judges [DOMAIN]"

size=512MiB
[ "$judge" != cargo ] || size=2GiB
"$lodestone" fs format "$work/a.vol" --size "${LODESTONE_JUDGE_SIZE:-$size}" --domain "$domain" > /dev/null || exit 2
mount_volume
verdict=passed
"judge_${judge//-/_}" || verdict=failed
unmount_volume
"$lodestone" fs fsck "$work/a.vol" --domain "$domain" || verdict=failed
echo "JUDGE: $judge $verdict"
[ "$verdict" = passed ]
