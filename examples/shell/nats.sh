# shellcheck shell=bash
# A NATS client in plain bash, to be sourced: enough of the protocol for text
# messages (no NUL bytes, no TLS, no login). NATS_URL is the address of NATS.
#
# nats_next leaves the message in msg_subject, msg_reply, msg_headers and
# msg_data. Its status, and that of nats_request, is 0, or 1 when the time is
# over, or 2 when the connection is lost: then nats_connect again.

LC_ALL=C     # lengths in bytes
trap '' PIPE # a lost connection is a status, not the end

nats_inbox=_INBOX.bash.$$.$RANDOM$RANDOM
nats_requests=0
nats_fd=
nats_later=() # messages that came while a request waited for its reply

nats_connect() {
  nats_close
  local where=${NATS_URL#*://} line
  { exec {nats_fd}<>"/dev/tcp/${where%:*}/${where##*:}"; } 2>/dev/null || { nats_fd=; return 2; }
  read -r -t 5 -u "$nats_fd" line || return 2 # INFO
  nats_write 'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"lang":"bash","version":"1"}\r\n' || return 2
  nats_sub "$nats_inbox.*" inbox
}

nats_close() {
  [[ -z $nats_fd ]] || exec {nats_fd}>&- || true
  nats_fd=
}

# nats_write FORMAT ARG...
nats_write() {
  # shellcheck disable=SC2059 # the format is ours
  { printf "$@" >&"$nats_fd"; } 2>/dev/null
}

# nats_sub SUBJECT ID
nats_sub() { nats_write 'SUB %s %s\r\n' "$1" "$2"; }

# nats_pub SUBJECT REPLY PAYLOAD [HEADER: VALUE]...
nats_pub() {
  local subject=$1 reply=$2 payload=$3 block='' header
  shift 3
  if [[ $# -eq 0 ]]; then
    nats_write 'PUB %s %s %d\r\n%s\r\n' "$subject" "$reply" ${#payload} "$payload"
    return
  fi
  block=$'NATS/1.0\r\n'
  for header in "$@"; do block+=$header$'\r\n'; done
  block+=$'\r\n'
  nats_write 'HPUB %s %s %d %d\r\n%s%s\r\n' "$subject" "$reply" ${#block} $((${#block} + ${#payload})) "$block" "$payload"
}

# nats_next SECONDS
nats_next() {
  if [[ ${#nats_later[@]} -gt 0 ]]; then
    nats_unpack "${nats_later[0]}"
    nats_later=("${nats_later[@]:1}")
    return 0
  fi
  nats_read "$1"
}

nats_read() {
  local line rc
  while :; do
    rc=0
    IFS= read -r -t "$1" -u "$nats_fd" line 2>/dev/null || rc=$?
    [[ $rc -le 128 ]] || return 1
    [[ $rc -eq 0 ]] || return 2
    case $line in
      PING*) nats_write 'PONG\r\n' || return 2 ;;
      MSG\ * | HMSG\ *) nats_body "${line%$'\r'}"; return ;;
      -ERR*) echo "nats: $line" >&2 ;;
    esac
  done
}

# nats_body reads what follows the line
#   MSG subject id [reply] bytes   or   HMSG subject id [reply] bytes-of-headers bytes
nats_body() {
  local field all
  read -r -a field <<<"$1"
  local last=$((${#field[@]} - 1)) head=0
  IFS= read -r -N "${field[last]}" -t 5 -u "$nats_fd" all || [[ ${field[last]} -eq 0 ]] || return 2
  IFS= read -r -t 5 -u "$nats_fd" _ || return 2
  if [[ ${field[0]} == HMSG ]]; then
    last=$((last - 1))
    head=${field[last]}
  fi
  msg_subject=${field[1]} msg_reply=
  [[ $last -lt 4 ]] || msg_reply=${field[3]}
  msg_headers=${all:0:head} msg_data=${all:head}
}

# Messages that wait are kept as words that the shell can read back.
nats_pack() { printf '%q ' "$msg_subject" "$msg_reply" "$msg_headers" "$msg_data"; }
nats_unpack() {
  local -a part
  eval "part=($1)"
  msg_subject=${part[0]} msg_reply=${part[1]} msg_headers=${part[2]} msg_data=${part[3]}
}

# nats_request SECONDS SUBJECT PAYLOAD [HEADER: VALUE]... leaves the reply in the
# variables of nats_next.
nats_request() {
  local seconds=$1 subject=$2 until=$((SECONDS + $1)) inbox
  shift 2
  nats_requests=$((nats_requests + 1))
  inbox=$nats_inbox.$nats_requests
  nats_pub "$subject" "$inbox" "$@" || return 2
  while [[ $SECONDS -le $until ]]; do
    nats_read "$seconds" || return
    if [[ $msg_subject == "$inbox" ]]; then return 0; fi
    [[ $msg_subject == "$nats_inbox".* ]] || nats_later+=("$(nats_pack)") # else a late reply
  done
  return 1
}

# nats_header NAME prints the value of a header of the message. The status of a
# NATS message is in its first line; it is printed for the name Status.
nats_header() {
  local line
  while IFS= read -r line; do
    line=${line%$'\r'}
    case ${line,,} in
      "${1,,}":*) line=${line#*:}; printf '%s' "${line# }"; return ;;
      nats/1.0\ *) [[ $1 != Status ]] || { printf '%s' "${line:9:3}"; return; } ;;
    esac
  done <<<"$msg_headers"
}
