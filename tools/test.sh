#!/bin/bash
# Everything that must hold, in one list of steps (at the end of this file); "make test" runs it.
#
# usage: tools/test.sh [lint]     ("lint" stops after the steps that run no test)
#
# Every step runs, also after a failure, bounded by LODESTONE_STEP_SECONDS_MAX (default 1200 s). The last line is
# "N passed, N failed": the sum over cargo's result lines; a failed step without a failed test counts as one failure.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
export CARGO_TERM_COLOR=never
step_seconds_max=${LODESTONE_STEP_SECONDS_MAX:-1200}
only=${1:-all}
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
passed=0 failed=0 failed_steps=()

# step NAME COMMAND...: runs the command, shows its output, adds up its test results.
step() {
  local name=$1 started=$SECONDS status=0 step_passed step_failed
  shift
  echo "==> $name: $*"
  timeout --kill-after=10 "$step_seconds_max" "$@" 2>&1 | tee "$log" || status=$?
  read -r step_passed step_failed < <(awk '/^test result: / { p += $4; f += $6 } END { print p + 0, f + 0 }' "$log")
  if [ "$status" -ne 0 ]; then
    failed_steps+=("$name")
    [ "$step_failed" -gt 0 ] || step_failed=1
    [ "$status" -ne 124 ] || echo "    $name took longer than $step_seconds_max s and was stopped"
  fi
  passed=$((passed + step_passed)) failed=$((failed + step_failed))
  echo "<== $name: $([ "$status" -eq 0 ] && echo ok || echo "FAILED (exit code $status)"), $((SECONDS - started)) s"
}

finish() {
  echo
  [ ${#failed_steps[@]} -eq 0 ] || echo "failed steps: ${failed_steps[*]}"
  echo "total time: $SECONDS s"
  echo "$passed passed, $failed failed"
  [ "$failed" -eq 0 ] && [ ${#failed_steps[@]} -eq 0 ]
  exit
}

# The list. One line a step.
step format cargo fmt --all --check
step tidy cargo run --package xtask -- tidy
step clippy cargo clippy --workspace --all-targets -- -D warnings
[ "$only" != lint ] || finish
step workspace cargo test --workspace --no-fail-fast
# Bugs planted on request: the explorer must find each, and none where none is planted.
step planted cargo test --no-fail-fast -p lodestone-crash -p lodestone-heap -p lodestone-index -p lodestone-stm --test planted \
  --features lodestone-crash/planted-bugs,lodestone-heap/explore,lodestone-heap/planted-bugs,lodestone-index/planted-bugs,lodestone-stm/planted-bugs
step collections cargo test --no-fail-fast -p lodestone-collections --features explore --test explore
# Locks and threads of the deterministic scheduler; the planted race must be found.
step schedules-block cargo test --no-fail-fast -p lodestone-pmem --features shuttle,planted-bugs --lib schedules
schedules=lodestone-crash/shuttle,lodestone-heap/explore,lodestone-heap/shuttle,lodestone-index/shuttle,lodestone-stm/shuttle
step schedules cargo test --no-fail-fast -p lodestone-crash -p lodestone-heap -p lodestone-index -p lodestone-stm \
  --features "$schedules,lodestone-index/planted-bugs" --test schedules --test planted_schedules --test index_schedules \
  --test histories --test planted_histories --test acs_schedules --test acs_planted_schedules --test hybrid_schedules \
  --test hybrid_planted_schedules
# Weak memory order: every execution of the word protocols, and of each with a rule broken.
step weak-memory cargo test --no-fail-fast -p lodestone-txn --features loom --test weak_memory
step schedules-numa cargo test --no-fail-fast -p lodestone-numa --features shuttle,planted-bugs --test schedules --test planted_schedules
# Every flush and every fence, half of the floors beside the other half. (Every crash state of every structure is walked through by the
# command line's test `everything_is_explored_and_holds`.)
step crash-mutants bash -c '
  cargo build --quiet --package lodestone-cli || exit
  audit() { cargo run --quiet --package lodestone-cli -- crash mutants "$@"; }
  audit pool heap index & others=$!
  audit stm tl2 collections; status=$?
  wait "$others" && exit "$status"'
finish
