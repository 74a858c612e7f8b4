#!/bin/bash
# The work of one boot of the guest. The host writes /share/job.env before it boots the guest:
#
#   MODE=test    pools, process kills and test programs in every place
#   MODE=round   verify the writes acknowledged before the guest was killed, then write until it is killed again
#   MODE=rdma    the fabric over a card of soft-RoCE, in one guest and across GUESTS of them, RECORDS records
#   MODE=numa    nodes, parts, placement, agents and the probe on NODES nodes
#   MODE=engine  TPC-C in databases over NODES nodes and on devdax, by THREADS threads each, until the guest is killed
#   MODE=figures paper 4's loads over NODES nodes, by THREADS threads on each, of OPERATIONS transactions
#   EXPECTED     the domain that every pool must have (dax or eadr)
#   ROUND, LAST  number of this round; LAST=1 verifies and ends
#   KILLS        how often MODE=test kills a writing process in each place
. /share/protocol.sh
. /share/job.env
. /share/places.sh
. /share/pools.sh
. /share/programs.sh
. /share/numa.sh
. /share/engine.sh
. /share/figures.sh
. /share/rdma.sh

if [ "$MODE" = numa ]; then
  run_numa
  exit
fi
if [ "$MODE" = engine ]; then
  run_engine
  exit
fi
if [ "$MODE" = figures ]; then
  run_figures
  exit
fi
if [ "$MODE" = rdma ]; then
  run_rdma
  exit
fi
prepare_places || exit 1
case $MODE in
  test)
    for place in ext4 xfs devdax; do
      test_pool "$place"
      test_process_kills "$place"
      test_programs "$place"
    done
    test_parts
    ;;
  round)
    [ "$ROUND" -eq 1 ] || for place in ext4 xfs devdax; do verify_after_power_cut "$place"; done
    if [ "$LAST" = 0 ]; then
      for place in ext4 xfs devdax; do start_writer "$place"; done
      event loading "$ROUND"
      wait
      event writers-ended "round $ROUND: the writers ended before the guest was killed"
    fi
    ;;
  *) check job guest fail - 0 "unknown MODE $MODE" ;;
esac
[ "$MODE" = round ] && [ "$LAST" = 0 ] || check_file_systems
