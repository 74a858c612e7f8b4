# MODE=engine: a database with a part on the NVDIMM of each node, and one on a devdax device. Both work on TPC-C until
# the host kills the guest. Each round first judges them by the reports of all rounds before, which are on the host.

engine_places="nodes devdax"

# engine_pool PLACE: the path of the pool, then the arguments that name its other parts.
engine_pool() {
  local node
  if [ "$1" = devdax ]; then
    echo "$devdax_path"
    return
  fi
  echo /mnt/node0/tpcc.pool
  for node in $(seq $((NODES - 1))); do echo "--part /mnt/node$node/tpcc.pool.$node"; done
}

start_engine() {
  local place=$1 report=/share/acks/$1 pool output load=()
  # The words are arguments.
  # shellcheck disable=SC2207
  pool=($(engine_pool "$place"))
  if [ "$ROUND" = 1 ]; then
    : >"$report"
    output=$(timeout 300 $lodestone pool create "${pool[@]}" --size 64MiB --domain auto --overwrite 2>&1) || {
      check worker "$place" fail - 0 "$output"
      return 1
    }
    load=(--load)
    # There also transactions over several placements.
    [ "$place" != devdax ] || load+=(--dual)
  fi
  $lodestone torture tpcc-worker "${pool[0]}" "${load[@]}" --life "$ROUND" --threads "$THREADS" >>"$report" 2>"/share/logs/$place.errors" &
}

# The host has cut the last, unfinished line from the report.
verify_engine() {
  local place=$1 started=$SECONDS report=/share/acks/$1 path output
  path=$(engine_pool "$place" | head -n 1)
  output=$(timeout 900 $lodestone torture tpcc-verify "$path" "$report" --life "$ROUND" 2>&1) && grep -q '^ack ' "$report" || {
    check power-cut "$place" fail - $((SECONDS - started)) \
      "round $((ROUND - 1)), $(acknowledgements "$report") acknowledgements: $output $(tail -n 3 "/share/logs/$place.errors")"
    return
  }
  judge power-cut "$place" "$started" 'grep -qF "($EXPECTED domain)" <<<"$output"' "round $((ROUND - 1)): $output"
  started=$SECONDS
  if output=$(timeout 600 $lodestone db check "$path" 2>&1); then
    check db-check "$place" pass "$EXPECTED" $((SECONDS - started)) "$output"
  else
    check db-check "$place" fail "$EXPECTED" $((SECONDS - started)) "$output"
  fi
}

# A table moves to each node, and the database says that it is there.
test_moves() {
  local started=$SECONDS output tables node
  for node in $(seq 0 $((NODES - 1))); do
    started=$SECONDS
    output=$(timeout 300 $lodestone db move /mnt/node0/tpcc.pool stock "$node" 2>&1)
    tables=$(timeout 300 $lodestone db tables /mnt/node0/tpcc.pool --json 2>&1 | grep '"table":"stock"')
    judge db-move "node$node" "$started" 'grep -q "\"part\":$node,\"node\":$node[,}]" <<<"$tables"' "$output; $tables"
  done
}

run_engine() {
  local place node
  prepare_nodes || return 1
  if [ "$ROUND" -gt 1 ]; then
    for place in $engine_places; do verify_engine "$place"; done
  fi
  if [ "$LAST" = 0 ]; then
    for place in $engine_places; do start_engine "$place" || return 1; done
    event loading "$ROUND"
    wait
    event writers-ended "round $ROUND: the databases ended before the guest was killed: $(tail -n 2 /share/logs/*.errors)"
    return
  fi
  test_moves
  for node in $(seq 0 $((NODES - 1))); do umount "/mnt/node$node"; done
}
