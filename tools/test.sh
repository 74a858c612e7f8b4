#!/bin/bash
# Everything that must hold, in one list of steps (at the end of this file); "make test" runs it.
#
# usage: tools/test.sh [lint]     ("lint" stops after the steps that run no test)
#
# Every step runs, also after a failure, bounded by LODESTONE_STEP_SECONDS_MAX (default 2400 s). The last line is
# "N passed, N failed": the sum over cargo's result lines; a failed step without a failed test counts as one failure.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
export CARGO_TERM_COLOR=never
step_seconds_max=${LODESTONE_STEP_SECONDS_MAX:-2400}
only=${1:-all}
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
passed=0 failed=0 failed_steps=()

# Seconds of processor time that the steps took so far.
processor_seconds() {
  awk -v ticks="$(getconf CLK_TCK)" '{ sub(/^.*\) /, ""); print int(($14 + $15) / ticks) }' "/proc/$$/stat"
}

# step NAME COMMAND...: runs the command, shows its output, adds up its test results.
step() {
  local name=$1 started=$SECONDS status=0 step_passed step_failed processor
  processor=$(processor_seconds)
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
  echo "<== $name: $([ "$status" -eq 0 ] && echo ok || echo "FAILED (exit code $status)"), $((SECONDS - started)) s, of a processor $(($(processor_seconds) - processor)) s"
}

finish() {
  echo
  [ ${#failed_steps[@]} -eq 0 ] || echo "failed steps: ${failed_steps[*]}"
  echo "total time: $SECONDS s, of a processor $(processor_seconds) s"
  echo "$passed passed, $failed failed"
  [ "$failed" -eq 0 ] && [ ${#failed_steps[@]} -eq 0 ]
  exit
}

# The list. One line a step.
step format cargo fmt --all --check
step tidy cargo run --package xtask -- tidy
step clippy cargo clippy --workspace --all-targets -- -D warnings
[ "$only" != lint ] || finish
# With the explorer's targets, and with bugs that can be planted on request (no test but `planted` asks for one): the explorer must find each,
# and none where none is planted. One build for all of it.
features=lodestone-crash/planted-bugs,lodestone-heap/explore,lodestone-heap/planted-bugs,lodestone-index/planted-bugs
features=$features,lodestone-store/planted-bugs,lodestone-stm/planted-bugs,lodestone-collections/planted-bugs,lodestone-cli/planted-bugs
step workspace cargo test --workspace --no-fail-fast --features "$features"
# Locks and threads of the deterministic scheduler; the planted race must be found.
step schedules-block cargo test --no-fail-fast -p lodestone-pmem --features shuttle,planted-bugs --lib schedules
step schedules-cache cargo test --no-fail-fast -p lodestone-index --features shuttle --lib schedules
schedules=lodestone-crash/shuttle,lodestone-heap/explore,lodestone-heap/shuttle,lodestone-index/shuttle,lodestone-numa/shuttle,lodestone-stm/shuttle
step schedules cargo test --no-fail-fast -p lodestone-crash -p lodestone-heap -p lodestone-index -p lodestone-numa -p lodestone-stm \
  --features "$schedules,lodestone-index/planted-bugs,lodestone-numa/planted-bugs" --test schedules --test planted_schedules \
  --test index_schedules --test histories --test planted_histories --test acs_schedules --test acs_planted_schedules \
  --test hybrid_schedules --test hybrid_planted_schedules --test fptree_schedules --test fptree_planted_schedules \
  --test cells_schedules --test cells_planted_schedules
# Weak memory order: every execution of the word protocols, and of each with a rule broken.
step weak-memory cargo test --no-fail-fast -p lodestone-txn --features loom --test weak_memory
finish
