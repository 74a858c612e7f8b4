# MODE=figures: paper 4's loads with and without placement, over the NVDIMMs of all nodes. The lines are judged and shown
# by the host.

# figures LOAD: all cases of one load. A line of JSON for each goes to the host.
figures() {
  local load=$1 started=$SECONDS folders status=0 lines=/share/logs/figures-$NODES-$1.json
  folders=$(seq -s , -f '/mnt/node%g' 0 $((NODES - 1)))
  timeout "$FIGURES_SECONDS_MAX" $lodestone bench nodes --folders "$folders" --loads "$load" --threads "$THREADS" \
    --operations "$OPERATIONS" --records 4000 --cache 512KiB --part-bytes 48MiB --tpcc 1,200,20 \
    --changes-per-round 200 --json >"$lines" 2>/run/errors || status=$?
  judge "figures-$load" guest "$started" '[ $status = 0 ] && [ "$(wc -l <"$lines")" = 4 ]' \
    "exit code $status, $(wc -l <"$lines") cases; $(tail -n 2 /run/errors)"
}

run_figures() {
  local load node
  prepare_nodes || return 1
  for load in select update insert tpcc; do figures "$load"; done
  for node in $(seq 0 $((NODES - 1))); do umount "/mnt/node$node"; done
}
