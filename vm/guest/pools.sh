# Pools in each place: their domain, and the data they keep when a process or the whole guest is killed.
#
# The writer reports a line for every write that it starts, and a line "ack ..." for every write that was acknowledged
# as durable. Lines go to a file. For killed processes it is in the guest's memory, for killed guests on the host (9p,
# written through). A writer that finds records when it opens the pool reports them first. So each report is complete,
# and one pool can go through many lives.

lodestone=/share/bin/lodestone

# pool_path PLACE NAME: the path of the pool in this place. A device is one pool.
pool_path() { if [ "$1" = devdax ]; then echo "$devdax_path"; else echo "/mnt/$1/$2.pool"; fi; }

# new_pool PLACE NAME: replaces the file there by a new pool and prints the output of the command.
new_pool() {
  timeout 300 $lodestone pool create "$(pool_path "$1" "$2")" --size 64MiB --domain auto --overwrite 2>&1
}

# acknowledgements FILE: how many writes the report calls durable.
acknowledgements() { grep -c '^ack ' "$1"; }

# pool_domain PATH: the domain that pool info names.
pool_domain() {
  timeout 60 $lodestone pool info "$1" --json 2>/dev/null | tr -d ' \n' | sed -n 's/.*"domain":"\([a-z-]*\)".*/\1/p'
}

test_pool() {
  local place=$1 started=$SECONDS output path domain
  output=$(new_pool "$place" first) || {
    check pool-create "$place" fail - $((SECONDS - started)) "$output"
    return
  }
  path=$(pool_path "$place" first)
  domain=$(pool_domain "$path")
  if [ "$domain" = "$EXPECTED" ]; then
    check pool-domain "$place" pass "$domain" $((SECONDS - started)) "$output"
  else
    check pool-domain "$place" fail "${domain:-none}" $((SECONDS - started)) \
      "$path: expected $EXPECTED; $(timeout 60 $lodestone pool info "$path" --json 2>&1)"
  fi
  started=$SECONDS
  output=$(timeout 60 $lodestone kv put "$path" key 4711 2>&1 && timeout 60 $lodestone kv get "$path" key 2>&1)
  if grep -q 4711 <<<"$output"; then
    check kv-put-get "$place" pass "$domain" $((SECONDS - started)) "$output"
  else
    check kv-put-get "$place" fail "$domain" $((SECONDS - started)) "$output"
  fi
}

# One pool over both NUMA nodes: a part on each module, both in the platform's domain, each on its node.
test_parts() {
  local started=$SECONDS output info domain nodes
  output=$(timeout 300 $lodestone pool create /mnt/ext4/two.pool --part /mnt/xfs/two.pool.1 --size 16MiB --overwrite 2>&1) || {
    check pool-parts nodes fail - $((SECONDS - started)) "$output"
    return
  }
  info=$(timeout 60 $lodestone pool info /mnt/ext4/two.pool --json 2>&1)
  domain=$(pool_domain /mnt/ext4/two.pool)
  nodes=$(grep -o '"numa_node":[0-9a-z]*' <<<"$info" | sed 's/.*://' | xargs)
  if [ "$domain" = "$EXPECTED" ] && [ "$nodes" = "0 1" ]; then
    check pool-parts nodes pass "$domain" $((SECONDS - started)) "two parts on the nodes $nodes"
  else
    check pool-parts nodes fail "${domain:-none}" $((SECONDS - started)) "expected the nodes 0 1; $info"
  fi
}

# A writing process is killed without warning after growing numbers of acknowledgements, over and over on one pool.
test_process_kills() {
  local place=$1 started=$SECONDS path report=/run/report kill writer total=0 waited output
  [ "$KILLS" -gt 0 ] || return
  output=$(new_pool "$place" kill) || {
    check process-kill "$place" fail - $((SECONDS - started)) "$output"
    return
  }
  path=$(pool_path "$place" kill)
  for kill in $(seq "$KILLS"); do
    : >$report
    $lodestone torture writer "$path" --seed "$kill" >$report 2>/run/errors &
    writer=$! waited=0
    while [ "$(acknowledgements $report)" -lt $((kill * kill * 20)) ] && [ $waited -lt 600 ] && [ -d /proc/$writer ]; do
      sleep 0.1
      waited=$((waited + 1))
    done
    kill -KILL $writer
    wait $writer 2>/dev/null
    complete_lines $report
    total=$((total + $(acknowledgements $report)))
    output=$(timeout 300 $lodestone torture verify "$path" $report 2>&1) && grep -q '^ack ' $report || {
      check process-kill "$place" fail "$(pool_domain "$path")" $((SECONDS - started)) \
        "kill $kill after $(acknowledgements $report) acknowledgements: $output $(tail -n 3 /run/errors)"
      return
    }
  done
  check process-kill "$place" pass "$(pool_domain "$path")" $((SECONDS - started)) \
    "$KILLS kills, $total acknowledged writes, all there; last: $output"
}

# complete_lines FILE: cuts off a last line that was not finished when the writer was killed.
complete_lines() {
  [ -s "$1" ] && [ -n "$(tail -c 1 "$1")" ] || return 0
  sed -i '$ d' "$1"
}

# Writes until the host kills the whole guest. The report goes to the host. The pool of the previous round is used
# again.
start_writer() {
  local place=$1 report=/share/acks/$1 output
  # Before the event "loading": from then on the host counts these lines.
  : >"$report"
  [ "$ROUND" -gt 1 ] || output=$(new_pool "$place" load) || {
    check writer "$place" fail - 0 "$output"
    return
  }
  $lodestone torture writer "$(pool_path "$place" load)" --seed "$ROUND" >"$report" 2>"$report.errors" &
}

# The host has cut the last, unfinished line from the report.
verify_after_power_cut() {
  local place=$1 started=$SECONDS path report=/share/acks/$1 output domain
  path=$(pool_path "$place" load)
  output=$(timeout 600 $lodestone torture verify "$path" "$report" 2>&1) && grep -q '^ack ' "$report" || {
    check power-cut "$place" fail "$(pool_domain "$path")" $((SECONDS - started)) \
      "round $((ROUND - 1)), $(acknowledgements "$report") acknowledgements: $output"
    return
  }
  domain=$(pool_domain "$path")
  if [ "$domain" != "$EXPECTED" ]; then
    check power-cut "$place" fail "${domain:-none}" $((SECONDS - started)) "expected domain $EXPECTED"
    return
  fi
  check power-cut "$place" pass "$domain" $((SECONDS - started)) "round $((ROUND - 1)): $output"
  check_pool "$place" "$path" "$domain"
}

# check_pool PLACE PATH DOMAIN: the pool's own check of its metadata.
check_pool() {
  local started=$SECONDS output
  if output=$(timeout 300 $lodestone pool check "$2" 2>&1); then
    check pool-check "$1" pass "$3" $((SECONDS - started)) "$output"
  else
    check pool-check "$1" fail "$3" $((SECONDS - started)) "$output"
  fi
}

# At the end the file systems themselves must be clean.
check_file_systems() {
  local started=$SECONDS output
  output=$(release_places) && output=$(e2fsck -fn "$ext4_device" 2>&1 && xfs_repair -n "$xfs_device" 2>&1) || {
    check file-systems guest fail - $((SECONDS - started)) "$output"
    return
  }
  check file-systems guest pass - $((SECONDS - started)) "e2fsck and xfs_repair find nothing"
}
