# Pools in each place: which domain they get, what they keep when a process or the whole guest is killed.
#
# An acknowledged write is a line "ack KEY HASH" of the writer. Lines go to a file: of the guest's memory for killed
# processes, of the host (9p, written through) for killed guests.

lodestone=/share/bin/lodestone

# pool_path PLACE NAME: where the place keeps its pool; a device is one pool.
pool_path() { if [ "$1" = devdax ]; then echo "$devdax_path"; else echo "/mnt/$1/$2.pool"; fi; }

# A device keeps its contents when nobody wipes it, and only a block device can be wiped: change its mode, write
# zeros over both ends, where pools have their headers, and change it back.
wipe_devdax() {
  local name=devdax namespace block megabytes
  namespace=$(namespace_field region1 $name dev)
  ndctl create-namespace -f -e "$namespace" -n $name -m fsdax -M mem >/dev/null 2>&1 || return 1
  block=/dev/$(namespace_field region1 $name blockdev)
  megabytes=$(($(blockdev --getsize64 "$block") >> 20))
  dd if=/dev/zero of="$block" bs=1M count=96 oflag=direct status=none
  dd if=/dev/zero of="$block" bs=1M count=32 seek=$((megabytes - 32)) oflag=direct status=none
  ndctl create-namespace -f -e "$namespace" -n $name -m devdax -M mem >/dev/null 2>&1 || return 1
  devdax_path=/dev/$(namespace_field region1 $name chardev)
  [ -c "$devdax_path" ]
}

# new_pool PLACE NAME: removes what is there and creates a pool; prints what went wrong.
new_pool() {
  if [ "$1" = devdax ]; then wipe_devdax || return 1; else rm -f "$(pool_path "$1" "$2")"; fi
  timeout 120 $lodestone pool create "$(pool_path "$1" "$2")" --size 64MiB --domain auto 2>&1
}

# pool_domain PATH: the domain that pool info names.
pool_domain() {
  timeout 60 $lodestone pool info "$1" --json 2>/dev/null | tr -d ' \n' | sed -n 's/.*"domain":"\([a-z-]*\)".*/\1/p'
}

test_pool() {
  local place=$1 started=$SECONDS output path domain
  # Not in a subshell: wiping the device may give it another path.
  new_pool "$place" first >/run/output || {
    check pool-create "$place" fail - $((SECONDS - started)) "$(cat /run/output)"
    return
  }
  path=$(pool_path "$place" first)
  domain=$(pool_domain "$path")
  if [ "$domain" = "$EXPECTED" ]; then
    check pool-domain "$place" pass "$domain" $((SECONDS - started)) "$path"
  else
    check pool-domain "$place" fail "${domain:-none}" $((SECONDS - started)) \
      "$path: expected $EXPECTED; $(timeout 60 $lodestone pool info "$path" --json 2>&1)"
  fi
  started=$SECONDS
  output=$(timeout 60 $lodestone kv put "$path" 1 4711 2>&1 && timeout 60 $lodestone kv get "$path" 1 2>&1)
  if grep -q 4711 <<<"$output"; then
    check kv-put-get "$place" pass "$domain" $((SECONDS - started)) "$output"
  else
    check kv-put-get "$place" fail "$domain" $((SECONDS - started)) "$output"
  fi
}

# A writing process is killed without warning, at once and after growing numbers of acknowledgements.
test_process_kills() {
  local place=$1 started=$SECONDS path acks=/run/acks kill writer total=0 waited output
  for kill in $(seq "$KILLS"); do
    new_pool "$place" kill >/run/output || {
      check process-kill "$place" fail - $((SECONDS - started)) "$(cat /run/output)"
      return
    }
    path=$(pool_path "$place" kill)
    : >$acks
    $lodestone torture writer "$path" --seed "$kill" >$acks 2>/run/errors &
    writer=$! waited=0
    while [ "$(wc -l <$acks)" -lt $((kill * kill * 20)) ] && [ $waited -lt 300 ] && [ -d /proc/$writer ]; do
      sleep 0.1
      waited=$((waited + 1))
    done
    kill -KILL $writer
    wait $writer 2>/dev/null
    complete_lines $acks
    total=$((total + $(wc -l <$acks)))
    output=$(timeout 120 $lodestone torture verify "$path" $acks 2>&1) && [ -s $acks ] || {
      check process-kill "$place" fail "$(pool_domain "$path")" $((SECONDS - started)) \
        "kill $kill after $(wc -l <$acks) acknowledgements: $output $(tail -n 3 /run/errors)"
      return
    }
  done
  check process-kill "$place" pass "$(pool_domain "$path")" $((SECONDS - started)) \
    "$KILLS kills, $total acknowledged writes, all there"
}

# complete_lines FILE: cuts off a last line that was not finished when the writer was killed.
complete_lines() {
  [ -s "$1" ] && [ -n "$(tail -c 1 "$1")" ] || return 0
  sed -i '$ d' "$1"
}

# Writes until the host kills the whole guest; the acknowledgements go to the host.
start_writer() {
  local place=$1
  # Before the event "loading": from then on the host counts these lines.
  : >"/share/acks/$place"
  new_pool "$place" load >/run/output || {
    check writer "$place" fail - 0 "$(cat /run/output)"
    return
  }
  $lodestone torture writer "$(pool_path "$place" load)" --seed "$ROUND" >"/share/acks/$place" 2>"/share/acks/$place.errors" &
}

# The host has cut the last, unfinished line from the file.
verify_after_power_cut() {
  local place=$1 started=$SECONDS path acks=/share/acks/$1 output domain
  path=$(pool_path "$place" load)
  output=$(timeout 300 $lodestone torture verify "$path" "$acks" 2>&1) && [ -s "$acks" ] || {
    check power-cut "$place" fail "$(pool_domain "$path")" $((SECONDS - started)) \
      "round $((ROUND - 1)), $(wc -l <"$acks") acknowledgements: $output"
    return
  }
  output=$(timeout 300 $lodestone pool check "$path" 2>&1) || {
    check power-cut "$place" fail "$(pool_domain "$path")" $((SECONDS - started)) "pool check: $output"
    return
  }
  domain=$(pool_domain "$path")
  if [ "$domain" = "$EXPECTED" ]; then
    check power-cut "$place" pass "$domain" $((SECONDS - started)) \
      "round $((ROUND - 1)): $(wc -l <"$acks") acknowledged writes, all there; pool check clean"
  else
    check power-cut "$place" fail "${domain:-none}" $((SECONDS - started)) "expected domain $EXPECTED"
  fi
}

# After everything: the file systems themselves must be clean.
check_file_systems() {
  local started=$SECONDS output
  output=$(release_places) && output=$(e2fsck -fn "$ext4_device" 2>&1 && xfs_repair -n "$xfs_device" 2>&1) || {
    check file-systems guest fail - $((SECONDS - started)) "$output"
    return
  }
  check file-systems guest pass - $((SECONDS - started)) "e2fsck and xfs_repair find nothing"
}
