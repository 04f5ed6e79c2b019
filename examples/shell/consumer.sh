#!/usr/bin/env bash
# Works on the messages of a queue of fila from plain bash, one at a time.
#
#   consumer.sh QUEUE
#
# NATS_URL is the address of NATS. An interrupt stops it gracefully. It survives
# restarts of fila and NATS: it registers again, and repeats an ack until it is
# answered.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=nats.sh
source "$(dirname "${BASH_SOURCE[0]}")/nats.sh"

readonly name=shell-1 ttl_ms=30000
queue=${1:?usage: consumer.sh QUEUE}
lease_ms= # the visibility timeout
renew_at=0
stop=
trap 'stop=1' INT TERM

# join connects, subscribes, and then registers: a delivery without a subscriber ends a
# registration.
join() {
  until nats_connect && nats_sub "fila.deliver.$name.$queue" work && register; do
    [[ -z $stop ]] || return 1
    sleep 0.2
  done
}

register() {
  nats_request 5 "fila.consumer.$name.$queue" "{\"max_in_flight\":1,\"ttl_ms\":$ttl_ms}" || return
  if [[ $(nats_header Status) == 503 || -n $(nats_header Nats-Service-Error-Code) ]]; then
    echo "register: ${msg_data:-nobody is there}" >&2
    return 1
  fi
  lease_ms=${msg_data#*'"visibility_timeout_ms":'}
  lease_ms=${lease_ms%%[!0-9]*}
  renew_at=$((SECONDS + ttl_ms / 3000))
}

# handle shows the ways in which a message can end.
handle() {
  local attempt reply=$msg_reply text=$msg_data todo
  attempt=$(nats_header Fila-Attempt) todo=$(nats_header todo)
  case $todo-$attempt in
    hopeless-*)
      echo "terminated $text, attempt $attempt"
      nats_pub "$reply" '' '+TERM nothing will help' || true # to the dead letter queue
      ;;
    fail-1) # with an error, for on_failure and for people: the nack subject takes it as it is
      echo "nacked $text, attempt $attempt: with an error"
      nats_pub "${reply/#fila.ack./fila.nack.}" '' 'no luck today' 'Fila-Error-Code: luck' || true
      ;;
    later-1)
      echo "nacked $text, attempt $attempt: with a delay"
      nats_pub "$reply" '' '-NAK 300ms' || true
      ;;
    busy-1) # the provider said Retry-After: tell fila, which keeps others away too
      echo "nacked $text, attempt $attempt: with Retry-After"
      nats_pub "$reply" '' '-NAK {"error":"provider is busy","code":"429","delay":"300ms","retry_after_ms":300}' || true
      ;;
    slow-*)
      slowly "$reply"
      ack "$reply" "$text" "$attempt"
      ;;
    *) ack "$reply" "$text" "$attempt" ;;
  esac
}

# slowly REPLY works longer than the visibility timeout and extends the lease.
slowly() {
  local step=$((lease_ms / 3))
  for _ in 1 2 3 4 5 6; do
    sleep "$(printf '%d.%03d' $((step / 1000)) $((step % 1000)))"
    nats_pub "$1" '' '+WPI' || true
  done
}

# ack REPLY TEXT ATTEMPT finishes a message for good: it repeats the ack until
# fila has answered. (nats_pub "$reply" '' +ACK is enough where a message may come
# again now and then.)
ack() {
  local rc code
  while :; do
    rc=0
    nats_request 2 "$1" '' || rc=$?
    code=$(nats_header Nats-Service-Error-Code)
    if [[ $rc -eq 2 ]]; then
      join || return 0
    elif [[ $rc -ne 0 || $(nats_header Status) == 503 || $code == 500 || $code == 503 ]]; then
      sleep 0.1 # fila or NATS is away
    elif [[ -n $code ]]; then # 409: the lease is lost, or an earlier try arrived
      echo "refused ack of $2: $msg_data"
      return
    else
      echo "acked $2, attempt $3"
      return
    fi
  done
}

join || exit 0
echo "registered $name"
while [[ -z $stop ]]; do
  if [[ $SECONDS -ge $renew_at ]]; then register || join || break; fi
  rc=0
  nats_next 1 || rc=$?
  if [[ $rc -eq 2 ]]; then
    join || break
  elif [[ $rc -eq 0 && $msg_subject == fila.deliver.* ]]; then
    handle
  fi
done

# Leave, so that no more deliveries come; finish the received ones.
nats_request 5 "fila.consumer.$name.$queue" '{"leave":true}' || true
while [[ ${#nats_later[@]} -gt 0 ]]; do
  nats_next 0
  handle
done
