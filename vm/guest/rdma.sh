# MODE=rdma: the fabric over an RDMA card that the kernel makes of this guest's network interface.
#
# Guest 1 runs the test programs over its own card, and then sends to members in the other guests, which wait for it.
# Guests meet by files in /share.

guest=$(tr ' ' '\n' </proc/cmdline | sed -n 's/^guest=//p')
fabric=/share/bin/fabric-node

# meet NAME COUNT: waits until so many guests are here.
meet() {
  local name=$1 count=$2 tries=0
  touch "/share/acks/$name.$guest"
  until [ "$(ls /share/acks | grep -c "^$name\.")" -ge "$count" ]; do
    sleep 0.5
    tries=$((tries + 1))
    [ $tries -lt 1200 ] || return 1
  done
}

prepare_card() {
  local started=$SECONDS module interface output=""
  for module in virtio_net rdma_rxe ib_uverbs; do
    output+=$(modprobe -d /kernel "$module" 2>&1)
  done
  for _ in $(seq 50); do
    interface=$(ls /sys/class/net | grep -v '^lo$' | head -n 1)
    [ -z "$interface" ] || break
    sleep 0.1
  done
  # An MTU of 4,300 gives datagrams of 4,096 bytes.
  output+=$({
    ip link set lo up
    ip addr add "10.77.70.$guest/24" dev "$interface"
    ip link set "$interface" mtu 4300 up
    ip route add 224.0.0.0/4 dev "$interface"
    rdma link add rxe0 type rxe netdev "$interface"
  } 2>&1)
  for _ in $(seq 50); do
    [ -e /dev/infiniband/uverbs0 ] && break
    sleep 0.1
  done
  if [ -e /dev/infiniband/uverbs0 ]; then
    check card "guest$guest" pass - $((SECONDS - started)) "$(rdma link)"
  else
    check card "guest$guest" fail - $((SECONDS - started)) "no card: $output $(rdma link 2>&1)"
    return 1
  fi
}

# The tests of all transports, over this guest's card.
test_over_card() {
  local program package arguments started output status results
  export LODESTONE_RDMA_DEVICE=rxe0 LODESTONE_RDMA_ADDRESS=10.77.70.$guest
  while IFS=$'\t' read -r program package arguments; do
    started=$SECONDS status=0
    # The list may hold several arguments for one program: split them.
    # shellcheck disable=SC2086
    output=$(cd /tmp && timeout "$PROGRAM_SECONDS_MAX" "/share/tests/$program" $arguments --nocapture verbs:: 2>&1 </dev/null) || status=$?
    printf '%s\n' "$output" >"/share/logs/$program.log"
    results=$(sed -n 's/^test result: //p' <<<"$output" | tail -n 1)
    if [ $status -eq 0 ] && grep -q 'the transport is verbs' <<<"$output"; then
      check "tests-$package" "guest$guest" pass - $((SECONDS - started)) \
        "$(grep -o 'the transport is verbs.*' <<<"$output" | sort | uniq -c | xargs); $results"
    else
      check "tests-$package" "guest$guest" fail - $((SECONDS - started)) \
        "$program: exit code $status; $results; $(grep -E '^test .*FAILED|panicked|Error|error' -A 2 <<<"$output" | head -n 8)"
    fi
  done <"/share/tests/list"
}

# common: the arguments of every node of the group.
common() {
  local member members="" peers="100=10.77.70.1:47301"
  for member in $(seq 1 $((GUESTS - 1))); do
    members+=${members:+,}$member
    peers+=",$member=10.77.70.$((member + 1)):47301"
  done
  echo "--transport verbs --device rxe0 --datagram 4096 --group 239.77.70.1:47302 --members $members --peers $peers"
}

# A group across the guests: this one sends, or is a member until the sender is done.
test_group() {
  local started=$SECONDS output status=0 member
  if [ "$guest" != 1 ]; then
    # shellcheck disable=SC2046
    sleep 100000 | $fabric member --node $((guest - 1)) --pool /dev/shm/member.pool --domain dax-emulated $(common) >"/share/logs/member-$guest.log" 2>&1 &
    member=$!
    sleep 1
    meet members "$GUESTS"
    meet "done" "$GUESTS"
    if kill -0 $member 2>/dev/null; then
      check member "guest$guest" pass - $((SECONDS - started)) "$(head -n 1 "/share/logs/member-$guest.log")"
    else
      check member "guest$guest" fail - $((SECONDS - started)) "it ended: $(tail -n 3 "/share/logs/member-$guest.log")"
    fi
    return
  fi
  meet members "$GUESTS"
  # shellcheck disable=SC2046
  output=$(timeout "$PROGRAM_SECONDS_MAX" $fabric drive --node 100 --records "$RECORDS" --folder /dev/shm $(common) 2>&1) || status=$?
  if [ $status -eq 0 ]; then
    check group "guest$guest" pass - $((SECONDS - started)) "$output"
  else
    check group "guest$guest" fail - $((SECONDS - started)) "exit code $status: $output"
  fi
  meet "done" "$GUESTS"
}

run_rdma() {
  prepare_card || { touch "/share/acks/members.$guest" "/share/acks/done.$guest"; return 1; }
  [ "$guest" != 1 ] || test_over_card
  [ "$GUESTS" = 1 ] || test_group
}
