#!/usr/bin/env bash
# Publishes messages to a queue of fila from plain bash, and waits for the
# confirmation of each.
#
#   producer.sh QUEUE [COUNT [TODO]]
#
# NATS_URL is the address of NATS. It survives restarts of fila and NATS: whatever is
# not confirmed is published again with the same Nats-Msg-Id, so that it is
# stored once.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=nats.sh
source "$(dirname "${BASH_SOURCE[0]}")/nats.sh"

# Tells the example consumers what to show with a message.
todo=(ack fail later busy slow hopeless)
tenants=(acme globex)

queue=${1:?usage: producer.sh QUEUE [COUNT [TODO]]}
count=${2:-${#todo[@]}}
[[ -z ${3:-} ]] || todo=("$3")

# publish NUMBER returns when the message is on disk, or ends the script when it
# never can be.
publish() {
  local text="message $1" code ms rc
  while :; do
    rc=0
    nats_request 2 "fila.enqueue.$queue" "$text" \
      "tenant: ${tenants[$1 % 2]}" "Nats-Msg-Id: shell-$1" "todo: ${todo[$1 % ${#todo[@]}]}" || rc=$?
    if [[ $rc -eq 2 ]]; then # the connection is lost
      until nats_connect; do sleep 0.1; done
      continue
    fi
    if [[ $rc -ne 0 || $(nats_header Status) == 503 ]]; then
      echo "$text: nobody is there, or no reply; again" >&2
      sleep 0.25
      continue
    fi
    code=$(nats_header Nats-Service-Error-Code)
    case $code in
      '')
        id=${msg_data#*'"id":"'}
        echo "stored $text as ${id%%'"'*}"
        return
        ;;
      429 | 500 | 503) # full; perhaps stored; stopping
        ms=$(nats_header Fila-Retry-After-Ms)
        [[ ${ms:-0} -ge 100 ]] || ms=100
        echo "refused $text with $code, again in $ms ms"
        sleep "$(printf '%d.%03d' $((ms / 1000)) $((ms % 1000)))"
        ;;
      *)
        echo "$text: refused: $msg_data" >&2
        exit 1
        ;;
    esac
  done
}

until nats_connect; do sleep 0.1; done
for ((i = 0; i < count; i++)); do publish "$i"; done
