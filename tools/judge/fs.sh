#!/bin/bash
# Judges from outside on a mounted volume. They are installed or fetched, never copied into this repository.
#
# usage: tools/judge/fs.sh pjdfstest|pjdfstest-sh|fsx|fio|sqlite|git [DOMAIN]
#
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
finish() {
  cd /
  [ -z "$pid" ] || { kill "$pid" 2> /dev/null; wait "$pid" 2> /dev/null; }
  umount -l "$work/mnt" 2> /dev/null
  rm -rf "$work"
}
trap finish EXIT
chmod 755 "$work"
mkdir "$work/mnt" "$work/beside"

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

judge_fio() {
  have fio "apt-get install fio"
  fio --name=verify --directory="$work/mnt" --rw=randwrite --bs=4k --size=32m --numjobs=2 --fsync=16 \
    --verify=crc32c --do_verify=1 --verify_fatal=1 --minimal > "$work/log" 2>&1 || { tail "$work/log"; return 1; }
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

case $judge in
  pjdfstest | pjdfstest-sh | fsx | fio | sqlite | git) ;;
  *) stop "usage: tools/judge/fs.sh pjdfstest|pjdfstest-sh|fsx|fio|sqlite|git [DOMAIN]" ;;
esac
"$lodestone" fs format "$work/a.vol" --size "${LODESTONE_JUDGE_SIZE:-512MiB}" --domain "$domain" > /dev/null || exit 2
mount_volume
verdict=passed
"judge_${judge//-/_}" || verdict=failed
unmount_volume
"$lodestone" fs fsck "$work/a.vol" --domain "$domain" || verdict=failed
echo "JUDGE: $judge $verdict"
[ "$verdict" = passed ]
