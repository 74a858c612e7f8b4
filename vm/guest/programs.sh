# Test programs that were built on the host. /share/tests/list names them, one per line: program, package, arguments.

# The tests read their place from the environment. Outside a guest they skip, inside they must not.
in_place() {
  local place=$1 node=1
  shift
  [ "$place" != ext4 ] || node=0
  (
    export LODESTONE_EXPECT_DOMAIN=$EXPECTED LODESTONE_EXPECT_NODE=$node
    # The place "nodes" has its variable already: a folder for each node.
    if [ "$place" = nodes ]; then :; elif [ "$place" = devdax ]; then export LODESTONE_PM_DEVICE=$devdax_path; else export LODESTONE_PM_DIR=/mnt/$place; fi
    cd /tmp && exec timeout "${PROGRAM_SECONDS_MAX:-600}" "$@"
  )
}

test_programs() {
  local place=$1 program package arguments started output status results
  while IFS=$'\t' read -r program package arguments; do
    started=$SECONDS status=0
    # The list may hold several arguments for one program: split them.
    # shellcheck disable=SC2086
    output=$(in_place "$place" "/share/tests/$program" $arguments 2>&1 </dev/null) || status=$?
    results=$(sed -n 's/^test result: //p' <<<"$output" | tail -n 1)
    printf '%s\n' "$output" >"/share/logs/$place-$program.log"
    if [ $status -ne 0 ]; then
      check "tests-$package" "$place" fail "$EXPECTED" $((SECONDS - started)) \
        "$program: exit code $status; $results; $(grep -E '^test .*FAILED|panicked|skip' <<<"$output" | head -n 5)"
    elif grep -q 'ok\. 0 passed' <<<"$results"; then
      check "tests-$package" "$place" skip "$EXPECTED" $((SECONDS - started)) "$program: no test for this place"
    else
      check "tests-$package" "$place" pass "$EXPECTED" $((SECONDS - started)) "$program: $results"
    fi
  done <"/share/tests/list"
}
