# The guest's messages to the host: lines on the second serial port, with tabs between the fields. The first serial port
# is the kernel's console, so no other output mixes with this stream.
#
#   @check <tab> name <tab> place <tab> pass|fail|skip <tab> domain or - <tab> seconds <tab> detail
#   @event <tab> name <tab> detail

one_line() { tr '\n\t' '; ' <<<"$*" | sed 's/[; ]*$//' | cut -c 1-400; }

# check NAME PLACE OUTCOME DOMAIN SECONDS DETAIL...
check() {
  local name=$1 place=$2 outcome=$3 domain=$4 seconds=$5
  shift 5
  printf '@check\t%s\t%s\t%s\t%s\t%s\t%s\n' "$name" "$place" "$outcome" "$domain" "$seconds" "$(one_line "$@")" >/dev/ttyS1
}

# event NAME DETAIL...
event() {
  local name=$1
  shift
  printf '@event\t%s\t%s\n' "$name" "$(one_line "$@")" >/dev/ttyS1
}
