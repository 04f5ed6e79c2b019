#!/bin/sh
# Gives a service of Docker Compose as many workers as /scale says. For cron:
#
#   * * * * * cd /srv/orders && ./scale.sh 'http://127.0.0.1:8222/scale/orders?per_worker=64' worker 20
#
# Without an answer it changes nothing and fails.
set -eu
url=${1:?usage: scale.sh URL SERVICE MAX} service=${2:?SERVICE is missing} max=${3:?MAX is missing}
answer=$(curl -fsS --max-time 5 "$url")
workers=$(printf '%s' "$answer" | sed -n 's/.*"workers":\([0-9][0-9]*\).*/\1/p')
: "${workers:?the answer of $url has no workers: $answer}"
if [ "$workers" -gt "$max" ]; then workers=$max; fi
exec docker compose up --detach --no-recreate --scale "$service=$workers" "$service"
