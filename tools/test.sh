#!/bin/bash
# What must hold, as lists of steps (at the end of this file).
#
# usage: tools/test.sh lint|test|prove|deny
#
#   lint   format, tidy, clippy, and the rules for crates of others if cargo-deny is installed
#   test   format, tidy, and every test of every crate but those marked "`make prove` runs it"   ("make test")
#   prove  lints, the marked tests (exhausted targets, audits, planted bugs), schedules, weak memory, links of the
#          documentation   ("make prove")
#   deny   the rules for crates of others (deny.toml), and their known faults, which needs the network   ("make deny")
#
# Every step runs, also after a failure. A step is stopped when it has used LODESTONE_STEP_PROCESSOR_SECONDS_MAX
# (default 6000) seconds of processor time, or none for LODESTONE_STEP_IDLE_SECONDS_MAX (default 300), or so many
# without a line of output as LODESTONE_STEP_SILENT_SECONDS_MAX says (default 900 in "test", where every test is short):
# a busy machine fails no step, a hang does, also one that spins. At the end stand the failed tests with their panics,
# and last "N passed, N failed": the sum over cargo's result lines; a failed step without a failed test counts as one
# failure.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
export CARGO_TERM_COLOR=never
# A gate builds once: what makes the next build of an edited crate quicker costs it time and disk. `cargo test` alone
# has it.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL-0}
# A panic tells its line without symbols.
export CARGO_PROFILE_DEV_DEBUG=${CARGO_PROFILE_DEV_DEBUG-0}
# The same code has the same result: tests of random cases begin with one seed. `cargo test` alone takes a new one each
# time, and so does PROPTEST_RNG_SEED= here; PROPTEST_CASES says how many.
export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED-20}
[ -n "$PROPTEST_RNG_SEED" ] || unset PROPTEST_RNG_SEED
processor_max=${LODESTONE_STEP_PROCESSOR_SECONDS_MAX:-6000}
idle_max=${LODESTONE_STEP_IDLE_SECONDS_MAX:-300}
list=${1:-}
silent_max=$processor_max
[ "$list" != test ] || silent_max=900
silent_max=${LODESTONE_STEP_SILENT_SECONDS_MAX:-$silent_max}
case $list in
  lint | test | prove | deny) ;;
  *) echo "usage: tools/test.sh lint|test|prove|deny (not '$list')" >&2; exit 2 ;;
esac
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
passed=0 failed=0 failed_steps=() failures=""
ticks=$(getconf CLK_TCK)

# Seconds of processor time that the steps took so far.
processor_seconds() {
  awk -v ticks="$ticks" '{ sub(/^.*\) /, ""); print int(($14 + $15) / ticks) }' "/proc/$$/stat"
}

# group_ticks GROUP: processor time of the processes of a group that live, and of their children that ended.
group_ticks() {
  cat /proc/[0-9]*/stat 2>/dev/null |
    awk -v group="$1" '{ sub(/^.*\) /, ""); if ($3 == group) sum += $12 + $13 + $14 + $15 } END { print sum + 0 }'
}

# watch GROUP: ends the group when it has used too much processor time, or none for too long, or told nothing.
watch() {
  local used last=-1 idle=0 size told=-1 told_at=0
  while sleep 5 && kill -0 -- "-$1" 2>/dev/null; do
    used=$(group_ticks "$1")
    if [ "$used" = "$last" ]; then idle=$((idle + 5)); else idle=0 last=$used; fi
    size=$(stat -c %s "$log")
    if [ "$size" != "$told" ]; then told=$size told_at=$used; fi
    if [ "$idle" -ge "$idle_max" ]; then
      echo "    stopped: no processor time used for $idle_max s" | tee -a "$log"
    elif [ "$used" -ge $((processor_max * ticks)) ]; then
      echo "    stopped: more than $processor_max s of processor time" | tee -a "$log"
    elif [ $((used - told_at)) -ge $((silent_max * ticks)) ]; then
      echo "    stopped: no line of output in $silent_max s of processor time" | tee -a "$log"
    else
      continue
    fi
    kill -TERM -- "-$1" 2>/dev/null
    sleep 10
    kill -KILL -- "-$1" 2>/dev/null
    return
  done
}

# step NAME COMMAND...: runs the command, shows its output, adds up its test results.
step() {
  local name=$1 started=$SECONDS status=0 step_passed step_failed processor group watcher
  processor=$(processor_seconds)
  shift
  echo "==> $name: $*"
  set -m
  ("$@" 2>&1 | tee "$log"; exit "${PIPESTATUS[0]}") &
  group=$!
  set +m
  watch "$group" &
  watcher=$!
  wait "$group" || status=$?
  kill "$watcher" 2>/dev/null
  wait "$watcher" 2>/dev/null
  read -r step_passed step_failed < <(awk '/^test result: / { p += $4; f += $6 } END { print p + 0, f + 0 }' "$log")
  if [ "$status" -ne 0 ]; then
    failed_steps+=("$name")
    [ "$step_failed" -gt 0 ] || step_failed=1
  fi
  [ "$status" -eq 0 ] || failures+="$name:"$'\n'"$(failures_in "$log")"$'\n'
  passed=$((passed + step_passed)) failed=$((failed + step_failed))
  echo "<== $name: $([ "$status" -eq 0 ] && echo ok || echo "FAILED (exit code $status)"), $((SECONDS - started)) s, of a processor $(($(processor_seconds) - processor)) s"
}

# failures_in LOG: the failed tests, then what they printed, which cargo shows between the names of tests and a list of
# them. Without a failed test: the end of the log.
failures_in() {
  local failed_tests='(^|: )test .* \.\.\. FAILED$'
  if grep -qE "$failed_tests" "$1"; then
    grep -E "$failed_tests" "$1"
    grep -E -A 12 '(^|: )---- .* ----$' "$1" | head -n 60
  else
    tail -n 20 "$1"
  fi | cut -c 1-400 | sed 's/^/    /'
}

finish() {
  echo
  [ -z "$failures" ] || echo "failures in $failures"
  [ ${#failed_steps[@]} -eq 0 ] || echo "failed steps: ${failed_steps[*]}"
  echo "total time: $SECONDS s, of a processor $(processor_seconds) s"
  echo "$passed passed, $failed failed"
  [ "$failed" -eq 0 ] && [ ${#failed_steps[@]} -eq 0 ]
  exit
}

# packages_with_feature FEATURE: the crates that have it, as options for cargo.
packages_with_feature() {
  local manifest
  for manifest in crates/*/Cargo.toml; do
    grep -q "^$1 = " "$manifest" && sed -n '0,/^name = /s/^name = "\(.*\)"/-p \1/p' "$manifest"
  done
}
# as_features FEATURE: turns such options into a list of features.
as_features() { sed "s/^-p \(.*\)/\1\/$1/" | paste -sd, -; }
# features_of FEATURE: the feature of every crate that has it.
features_of() { packages_with_feature "$1" | as_features "$1"; }

# planted_of PACKAGE...: planted bugs as features of those of the packages ("-p NAME") that have any.
planted_of() { packages_with_feature planted-bugs | grep -Fxf <(printf "%s\n" "$@") | as_features planted-bugs; }

# marked_tests: the test programs with tests that are marked "`make prove` runs it": package, then program.
marked_tests() {
  local file package
  grep -rlF "\`make prove\` runs it" crates/*/tests --include='*.rs' | while read -r file; do
    package=$(sed -n '0,/^name = /s/^name = "\(.*\)"/\1/p' "${file%%/tests/*}/Cargo.toml")
    file=${file#crates/*/tests/}
    echo "$package $(basename "${file%%/*}" .rs)"
  done | sort -u
}

# programs ARGUMENT...: as `cargo test`, with several test programs at a time. Not for tests in documents.
programs() { cargo run --quiet --package xtask -- test-programs "$@"; }

lint() {
  step format cargo fmt --all --check
  step tidy cargo run --package xtask -- tidy
}

# deny NAME CHECK...: some of the rules of deny.toml. An exception that nothing needs fails, too.
deny() {
  local name=$1
  shift
  step "$name" cargo deny check --hide-inclusion-graph -D unnecessary-skip -D unmatched-skip -D unmatched-skip-root "$@"
}

clippy() {
  step clippy cargo clippy --workspace --all-targets -- -D warnings
  # Not every machine has it. `make deny` installs it.
  if cargo deny --version >/dev/null 2>&1; then deny crates-of-others licenses bans sources; fi
}

# The lists. One line a step; which crates take part follows from their features and from the names of their tests.
# Bugs can be planted on request in all of it (no test but the planted ones asks for one), so one build serves both.
case $list in
  lint)
    lint
    clippy
    ;;
  deny)
    deny crates-of-others licenses bans sources
    deny known-faults advisories
    ;;
  test)
    lint
    planted=$(features_of planted-bugs)
    step tests programs --workspace --features "$planted"
    step examples cargo test --workspace --no-fail-fast --features "$planted" --doc
    ;;
  prove)
    # Only the programs with marked tests, as they are built once more, for speed.
    mapfile -t packages < <(marked_tests | sed 's/^\(.*\) .*/-p \1/' | sort -u)
    mapfile -t tests < <(marked_tests | sed 's/.* /--test /' | sort -u)
    # shellcheck disable=SC2068
    step proofs programs --profile prove ${packages[@]} --features "$(planted_of "${packages[@]}")" ${tests[@]} -- --ignored
    # Locks and threads of the deterministic scheduler; planted races must be found.
    mapfile -t packages < <(packages_with_feature shuttle)
    # shellcheck disable=SC2068
    step schedules programs --profile prove ${packages[@]} --features "$(features_of shuttle),$(planted_of "${packages[@]}")" \
      --test '*schedules' --test '*histories'
    # Those inside of crates: one build for all.
    mapfile -t packages < <(grep -rlE "^mod schedules" crates/*/src | cut -d/ -f2 | sort -u |
      while read -r folder; do sed -n '0,/^name = /s/^name = "\(.*\)"/-p \1/p' "crates/$folder/Cargo.toml"; done)
    shuttle=$(packages_with_feature shuttle | grep -Fxf <(printf "%s\n" "${packages[@]}") | as_features shuttle)
    # shellcheck disable=SC2068
    step schedules-inside cargo test --profile prove --no-fail-fast ${packages[@]} \
      --features "$shuttle,$(planted_of "${packages[@]}")" --lib schedules
    # Weak memory order: every execution of the word protocols, and of each with a rule broken.
    step weak-memory cargo test --profile prove --no-fail-fast -p lodestone-txn --features loom --test weak_memory
    clippy
    step documents env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
    ;;
esac
finish
