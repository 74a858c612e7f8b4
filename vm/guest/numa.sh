# MODE=numa: one DAX file system on each node's NVDIMM (and a devdax device on the last one), and how lodestone sees
# them.
#
#   /mnt/nodeN       ext4 on the NVDIMM of node N, whatever number its region has
#   devdax_path      a small devdax device on the last node
#
# NODES is the number of nodes that the machine was given. The kernel must report the same number.

# region_of NODE: the region on that node. Regions are numbered in the order of the firmware, not by node.
region_of() {
  local region
  for region in /sys/bus/nd/devices/region*; do
    [ "$(cat "$region/numa_node")" = "$1" ] && basename "$region" && return
  done
}

# judge NAME PLACE STARTED CONDITION DETAIL: passes when the condition, a command in quotes, holds.
judge() {
  local name=$1 place=$2 started=$3 condition=$4
  shift 4
  if eval "$condition"; then
    check "$name" "$place" pass "$EXPECTED" $((SECONDS - started)) "$@"
  else
    check "$name" "$place" fail "$EXPECTED" $((SECONDS - started)) "$@"
  fi
}

prepare_nodes() {
  local started=$SECONDS node region device output
  output=$(ensure_labels 2>&1)
  for node in $(seq 0 $((NODES - 1))); do
    region=$(region_of "$node")
    output+=$(ensure_namespace "$region" "node$node" fsdax 256M 2>&1)
    device=/dev/$(namespace_field "$region" "node$node" blockdev)
    output+=$(mount_place "node$node" "$device" ext4 mkfs.ext4 -q -F -b 4096 2>&1) || {
      check nodes guest fail - $((SECONDS - started)) "node $node: $output $(ndctl list -RN 2>&1)"
      return 1
    }
  done
  ensure_namespace "$region" devdax devdax 128M >/dev/null 2>&1
  devdax_path=/dev/$(namespace_field "$region" devdax chardev)
  judge nodes guest "$started" '[ "$(grep -c "/mnt/node.*dax=always" /proc/mounts)" = "$NODES" ] && [ -c "$devdax_path" ]' \
    "$NODES file systems, $devdax_path: $(grep -o '/dev/pmem[^ ]* /mnt/node.' /proc/mounts | tr '\n' ' ')"
}

# The topology command reports the same as the kernel: nodes, processors, distances.
test_topology() {
  local started=$SECONDS output node cpus distances wanted
  output=$(timeout 60 $lodestone topology --json 2>&1)
  for node in $(seq 0 $((NODES - 1))); do
    cpus=$(grep -c "\"node\":$node," <<<"$output")
    distances=$(grep "\"node\":$node," <<<"$output" | sed 's/.*"distances":\[\([0-9,]*\)\].*/\1/')
    wanted=$(tr ' ' ',' </sys/devices/system/node/node$node/distance)
    judge topology "node$node" "$started" '[ "$cpus" = 1 ] && [ "$distances" = "$wanted" ]' \
      "distances $distances, kernel $wanted; $(grep -o "\"cpus\":\[[0-9,]*\]" <<<"$output" | xargs)"
  done
}

# nodes_of POOL: node and origin of each part, as pool info reports them.
nodes_of() {
  timeout 60 $lodestone pool info "$1" --json 2>&1 | grep -o '"node":[0-9a-z]*,"node_origin":"[a-z]*"' |
    sed 's/"node"://; s/,"node_origin":"/ /; s/"//' | xargs
}

# One part on each node, made in ascending and in descending order of nodes. The parts' nodes are those of their
# devices.
test_part_nodes() {
  local started=$SECONDS order node first parts expected found
  for order in "$(seq 0 $((NODES - 1)))" "$(seq $((NODES - 1)) -1 0)"; do
    parts=() expected="" first=""
    for node in $order; do
      if [ -z "$first" ]; then first=/mnt/node$node/wide.pool; else parts+=(--part "/mnt/node$node/part.pool"); fi
      expected+="$node detected "
    done
    timeout 300 $lodestone pool create "$first" "${parts[@]}" --size 16MiB --overwrite >/run/output 2>&1
    found=$(nodes_of "$first")
    judge part-nodes "$(basename "$(dirname "$first")")" "$started" \
      '[ "$found" = "${expected% }" ] && [ "$(pool_domain "$first")" = "$EXPECTED" ]' "$found $(cat /run/output)"
  done
  started=$SECONDS
  timeout 300 $lodestone pool create "$devdax_path" --size 16MiB --overwrite >/run/output 2>&1
  found=$(nodes_of "$devdax_path")
  judge part-nodes devdax "$started" '[ "$found" = "$((NODES - 1)) detected" ]' "$found $(cat /run/output)"
}

# A map in a pool over all nodes, used by a process that is confined to one node at a time.
test_confined_processes() {
  local node started last=$((NODES - 1)) output
  for node in 0 $last; do
    started=$SECONDS
    output=$(taskset -c "$(cat /sys/devices/system/node/node$node/cpulist)" \
      timeout 120 $lodestone kv put "/mnt/node$last/wide.pool" "key$node" "value$node" 2>&1 &&
      timeout 60 $lodestone kv get "/mnt/node$last/wide.pool" "key$node" 2>&1)
    judge confined "node$node" "$started" 'grep -q "value$node" <<<"$output"' "$output"
  done
}

# The probe from the near and from the far node. It must run and print figures, but under TCG they mean nothing.
test_probe() {
  local started=$SECONDS output status=0
  $lodestone media probe --help >/dev/null 2>&1 || {
    check probe guest skip - 0 "this lodestone has no media probe"
    return
  }
  output=$(timeout "$PROBE_SECONDS_MAX" $lodestone media probe /mnt/node0 --quick --size 16MiB --sections nodes \
    --threads 1 --repetition-ms 5 --json 2>/run/errors) || status=$?
  if [ $status = 124 ]; then
    check probe guest skip "$EXPECTED" $((SECONDS - started)) "stopped after $PROBE_SECONDS_MAX s: this machine is too slow for it"
    return
  fi
  printf '%s\n' "$output" >"/share/logs/probe-$NODES.json"
  judge probe guest "$started" '[ $status = 0 ] && grep -q far <<<"$output"' \
    "exit code $status, $(wc -l <<<"$output") lines; $(tail -n 1 /run/errors)"
}

run_numa() {
  local node
  prepare_nodes || return 1
  test_topology
  test_part_nodes
  test_confined_processes
  LODESTONE_PM_NODES=$(for node in $(seq 0 $((NODES - 1))); do printf '/mnt/node%s ' "$node"; done)
  export LODESTONE_PM_NODES
  PROGRAM_SECONDS_MAX=300 test_programs nodes
  test_probe
  for node in $(seq 0 $((NODES - 1))); do umount "/mnt/node$node"; done
}
