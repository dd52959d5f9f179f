#!/bin/sh
# Record a BBR run bundle with bpftrace alone (and tcpdump, tc and ss if they are there).
#
#   sudo sh collect.sh -d 30 [-o BUNDLE] [-i DEV] [-r fentry|kprobe|tcp_probe] [-n]
#   sudo sh collect.sh [-o BUNDLE] [-i DEV] [-r RUNG] [-n] [-R] -- iperf3 -c 192.0.2.7
#
# Probes are attached first; then the command runs, or -d seconds pass, or you press Ctrl-C.
# The command runs as the user who called sudo; -R runs it as root. -n records no packets: of each
# the first 128 bytes are kept, which may hold some of what was sent. -r attaches in this way only.
# Take the bundle to where bbrscope is installed: bbrscope ingest BUNDLE
# Exit status: 0 complete, 1 something was lost or went wrong, 2 wrong usage, else the command's.
# Written by `bbrscope collect --print-script`.
set -u
export LC_ALL=C
mask=$(umask)
umask 077

fail() { echo "collect.sh: $1" >&2; [ $# -gt 1 ] && echo "  $2" >&2; exit 1; }
usage() { sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2; }

seconds= out="bbr-$(date +%Y%m%d-%H%M%S)" device= rungs="fentry kprobe tcp_probe" no_packets= as_root=
while [ $# -gt 0 ]; do
  case $1 in
    -d) [ $# -gt 1 ] || usage; seconds=$2; shift 2 ;;
    -o) [ $# -gt 1 ] || usage; out=$2; shift 2 ;;
    -i) [ $# -gt 1 ] || usage; device=$2; shift 2 ;;
    -r) [ $# -gt 1 ] || usage; rungs=$2; shift 2 ;;
    -n) no_packets=yes; shift ;;
    -R) as_root=yes; shift ;;
    --) shift; break ;;
    *) usage ;;
  esac
done
case $rungs in fentry | kprobe | tcp_probe | "fentry kprobe tcp_probe") ;; *) usage ;; esac
name=$(basename "$out" 2>/dev/null)
case $name in
  [A-Za-z0-9_.]*[!.]* | [A-Za-z0-9_]*) ;;
  *) fail "'$out' does not end in a name for the bundle" "choose another -o, not beginning with one of +@=-" ;;
esac
case $out in -* | *[!A-Za-z0-9_./+@=-]*) fail "the bundle's name may hold letters, digits and ._+@=-" ;; esac
[ ${#name} -le 100 ] || fail "the bundle's name may hold 100 letters" "choose a shorter -o"

[ "$(id -u)" = 0 ] || fail "BPF needs root" "run it with sudo"
# Where securityfs is not mounted, an attempt to open the kernel's memory tells: of those who hold
# CAP_SYS_RAWIO, only lockdown for confidentiality keeps anyone from it.
locked() {
  grep -q '\[confidentiality\]' /sys/kernel/security/lockdown 2>/dev/null && return
  held=0x$(sed -n 's/^CapEff:[^0-9a-f]*//p' /proc/self/status)
  [ -f /proc/kcore ] && [ $((held >> 17 & 1)) = 1 ] && ! (: < /proc/kcore) 2>/dev/null
}
locked && fail "the kernel is locked down (confidentiality): no program may read its memory" \
  "boot without lockdown=confidentiality; a level that is set cannot be taken back"
{ [ -e "$out" ] || [ -L "$out" ]; } && fail "$out exists" "choose another -o"
command -v bpftrace >/dev/null || fail "bpftrace is not installed" "apt-get install bpftrace"
btf=/sys/kernel/btf
[ -r $btf/vmlinux ] || fail "the kernel has no BTF ($btf/vmlinux)"
[ $# -gt 0 ] && { command -v "$1" >/dev/null || fail "cannot start $1: no such command"; }
# Whom COMMAND runs as: a root whom no other user made root is the caller. Hosts may have the
# variables of sudo without sudo (a container, a chroot).
as_caller=
choose_caller() {
  case ${SUDO_UID:-0} in 0) return ;; *[!0-9]*) fail "SUDO_UID is no user's number" "-R runs COMMAND as root" ;; esac
  as_caller="sudo -u #$SUDO_UID --"
  command -v sudo >/dev/null && return
  as_caller="setpriv --reuid=$SUDO_UID --regid=${SUDO_GID:-$SUDO_UID} --init-groups"
  $as_caller true 2>/dev/null || fail "cannot run COMMAND as user $SUDO_UID: no sudo, and setpriv does not do it" \
    "install sudo; -R runs COMMAND as root"
}
[ $# -eq 0 ] || [ -n "$as_root" ] || choose_caller

# Where SIGPIPE is ignored (systemd), tr complains of a reader that has seen enough.
names_in() { tr '\0' '\n' < "$1" 2>/dev/null; }
# Which BBR: where its main function is, and then the names of struct bbr's own fields.
found=
for candidate in vmlinux tcp_bbr tcp_bbr2; do
  [ -r $btf/$candidate ] || continue
  names_in $btf/$candidate | grep -qax 'bbr2\{0,1\}_main' && found="$found $candidate"
done
# Before Linux 5.11 modules have no types: what mainline's BBR had then is known.
untyped=
if [ -z "$found" ] && [ ! -r $btf/tcp_bbr ] && grep -q ' bbr_main[[:space:]]*\[tcp_bbr\]' /proc/kallsyms; then
  case $(uname -r) in 5.[1-9].* | 5.10.*) untyped=yes found=" tcp_bbr" ;; esac
fi
module=${found##* }
if [ "$found" != " $module" ]; then
  default=$(cat /proc/sys/net/ipv4/tcp_congestion_control)
  case "$default:$found" in
    bbr2:*" tcp_bbr2") module=tcp_bbr2 ;;
    bbr:*" tcp_bbr" | bbr:*" tcp_bbr "*) module=tcp_bbr ;;
    bbr:* | bbr2:*) module=vmlinux ;;
    *) fail "this kernel has no BBR, or more than one:$found" \
        "modprobe tcp_bbr, or sysctl net.ipv4.tcp_congestion_control=bbr (or bbr2) says which" ;;
  esac
fi
# Not by way of echo: a backslash among a kernel's names would cut them short.
has() { names_in $btf/$module | grep -qax "$1"; }
if [ -n "$untyped" ]; then version=v1
elif has bbr2_main && has bbr_main; then fail "this kernel has two BBR versions" "use bbrscope collect"
elif has bbr2_main; then version=v2
elif has bbr_skb_marked_lost; then version=v3
elif has bbr_main && has lt_use_bw; then version=v1
else fail "no BBR that bbrscope knows in $btf/$module" "modprobe tcp_bbr"; fi

# How this bpftrace writes probes. The folder is ours alone: what is there already is not touched.
work=$out.partial
mkdir "$work" 2>/dev/null || fail "cannot make $work, or it is there" \
  "a killed recording may have left it: bbrscope ingest --salvage $work reads it, or remove it"
try() { bpftrace -e "BEGIN { $1 exit(); }" >/dev/null 2>&1; }
bpftrace --info > "$work/info" 2>&1
old=no; grep -q 'kfunc: ' "$work/info" && ! grep -q 'fentry: ' "$work/info" && old=yes
rm -f "$work/info"
rewrite="s/@MODULE@/$module/g"
if [ $old = yes ]; then
  rewrite="$rewrite;s/^fentry:/kfunc:/;s/^fexit:/kretfunc:/;s/args\./args->/g"
  # Its pid is the host's number everywhere.
  rewrite="$rewrite;s/((struct task_struct \*)curtask)->tgid/pid/"
  rewrite="$rewrite;s/((uint64)\$sk + offsetof(struct inet_connection_sock, icsk_ca_priv))/\$icsk->icsk_ca_priv/"
  rewrite="$rewrite;s/((uint64)\(a[a-z0-9>.-]*\) + offsetof(struct sk_buff, cb))/((struct sk_buff *)\1)->cb/"
fi
try '$x = nsecs(monotonic);' || rewrite="$rewrite;s/nsecs(monotonic)/nsecs/g"
if ! try '$x = jiffies;'; then
  # By name it would be looked for in all of kallsyms at each of its places.
  where=$(sed -n '/^0*[1-9a-f]/s/^\([0-9a-f]*\) . jiffies$/kptr(0x\1)/p' /proc/kallsyms)
  [ -n "$where" ] && try "\$x = *(uint64 *)$where;" || where='kaddr("jiffies")'
  rewrite="$rewrite;s/(uint32)jiffies/(uint32)*(uint64 *)$where/"
fi
# From 0.22 on programs would build long rows in a buffer that they share (probes/attach.py).
bpftrace -e 'config = { on_stack_limit=@STACK_LIMIT@ } BEGIN { exit(); }' >/dev/null 2>&1 &&
  rewrite="$rewrite;s/^BEGIN\$/config = { on_stack_limit=@STACK_LIMIT@ }\n&/"
# The time of day: strftime() came with bpftrace 0.12 or so. Before, date tells it.
by_date=
try 'printf("%s", strftime("%s", nsecs));' || { by_date=yes; rewrite="$rewrite;/+clock /d;/^  \$now = nsecs;$/d"; }
# bpftrace 0.11 takes texts of 64 bytes, and leaves BTF alone where a program has types of its own.
short= force=
try "printf(\"$(printf '%0180d' 0)\");" || short=-short
# It knows a type only where it is named.
bpftrace --help 2>&1 | grep -q 'force BTF' && force=-b &&
  rewrite="$rewrite;s/\$icsk->icsk_ca_ops->/((struct tcp_congestion_ops *)\$icsk->icsk_ca_ops)->/
    s/\$sk->__sk_common.skc_net.net->/((struct net *)\$sk->__sk_common.skc_net.net)->/
    s/\$sk->__sk_common.skc_prot->/((struct proto *)\$sk->__sk_common.skc_prot)->/"
# Since Linux 6.10 cong_control has ack and flag before the rate sample.
release=$(uname -r | sed 's/^\([0-9]*\)\.\([0-9]*\).*/\1 \2/')
set_release() { major=$1 minor=$2; }
set_release $release
{ [ "$major" -gt 6 ] || [ "$major.$minor" = 6.10 ] || { [ "$major" = 6 ] && [ "$minor" -gt 10 ]; }; } &&
  rewrite="$rewrite;s/(struct rate_sample \*)arg1/(struct rate_sample *)arg3/"
# Only x86 pushes a call's return address.
[ "$(uname -m)" = x86_64 ] || rewrite="$rewrite;s/reg(\"sp\") - 8/reg(\"sp\")/g"
# Linux 7.1 gave event 0 of cwnd_event a callback of its own: beside it, or instead of it.
callbacks=cwnd_event
if [ -z "$untyped" ] && has bbr_cwnd_event_tx_start; then
  callbacks=tx_start; has bbr_cwnd_event && callbacks=both
fi
cwnd_events() {
  awk -v callbacks=$callbacks '
    { text = text $0 "\n" }
    /^}$/ && text ~ /:bbr_cwnd_event\n/ && callbacks != "cwnd_event" {
      if (callbacks == "both") printf "%s", text
      sub(/bbr_cwnd_event/, "bbr_cwnd_event_tx_start", text)
      sub(/args(\.|->)event/, "0", text); sub(/, arg1, /, ", 0, ", text)
    }
    /^}$/ { printf "%s", text; text = "" }
    END { printf "%s", text }'
}

probe() {
case $rung-$version$short in
@PROBES@
esac
}

is_full() { [ "$(df -P "$work" | awk 'NR == 2 {print $4}')" = 0 ]; }
# What is on its way is printed before bpftrace is told to end: it would drop it. The program prints
# "+over" from when no more rows can come; after two of them all rows are there.
# On a full disk it cannot say so.
settle() {
  kill -URG "$tracer" 2>/dev/null || return
  tries=0
  while [ "$(tail -n 1000 "$work/raw" | grep -c '^+over')" -lt 2 ] && [ $tries -lt 60 ]; do
    kill -0 "$tracer" 2>/dev/null || return
    is_full && return
    tries=$((tries + 1)); sleep 1
  done
}
cleanup() {
  for job in ${watcher:-} ${tcpdump:-} ${sampler:-} ${queue:-}; do kill "$job" 2>/dev/null; done
  [ -n "${tracer:-}" ] && kill -INT "$tracer" 2>/dev/null
}
# Nothing was recorded: what we made goes.
give_up() { cleanup; rm -rf "$work"; fail "$@"; }
trap 'ended=signal' INT TERM HUP
trap cleanup EXIT
ended=

# tracefs is missing under `ip netns exec`, which mounts a new /sys: bpftrace gets one for itself.
# That of Debian 11 looks below debugfs alone.
enter=yes
for place in /sys/kernel/debug/tracing ${force:-/sys/kernel/tracing}; do
  [ -d "$place/events" ] && enter=
done
# What is started here ends with this script, however that ends.
with_us=; setpriv --pdeathsig KILL true 2>/dev/null && with_us="setpriv --pdeathsig KILL"
start_tracer() {
  set -- bpftrace $force -B line "$work/probe.bt"
  [ -z "$enter" ] || set -- unshare -m sh -c \
    'mount -t tracefs tracefs /sys/kernel/tracing; mount -t debugfs debugfs /sys/kernel/debug 2> /dev/null
     exec "$@"' sh "$@"
  BPFTRACE_PERF_RB_PAGES=${BPFTRACE_PERF_RB_PAGES:-4096} BPFTRACE_MAP_KEYS_MAX=65536 \
  BPFTRACE_MAX_MAP_KEYS=65536 $with_us "$@" > "$work/raw" 2> "$work/said" &
  tracer=$!
}
# "+clock POINT BOOTTIME_NS MONOTONIC_NS REALTIME_US" without bpftrace. The reading with the least
# between its clocks is the one that was interrupted least: to start date takes a moment, bash 5
# knows the time itself.
read_once='
  while read -r word _ now _; do [ "$word" != now ] || break; done < /proc/timer_list
  real=${EPOCHREALTIME:-}; [ -n "$real" ] || real=$(($(date +%s%N) / 1000))
  read -r up _ < /proc/uptime
  case $real in *[.,]*) real=${real%[.,]*}${real#*[.,]} ;; esac
  echo "$real" "$now" "${up%.*}${up#*.}0000000"'
read_clock() {
  for _ in 1 2 3 4 5 6 7; do "$(command -v bash || echo sh)" -c "$read_once"; done |
    while read -r real now up; do echo "$((real * 1000 - now)) $real $now $up"; done | sort -n |
    { read -r _ real now up; suspended=$((up - now)); [ $suspended -gt 100000000 ] || suspended=0
      echo "+clock $1 $((now + suspended)) $now $real"; }
}
attached() { grep -q '^+first' "$work/raw" && grep -q '^+last' "$work/raw"; }
sample_queue() {
  echo "uptime_s,kind,sent_bytes,sent_pkts,dropped,overlimits,requeues,backlog_bytes,backlog_pkts"
  while kill -0 $$ && read -r up _ < /proc/uptime; do
    tc -s -j qdisc show dev "$device" | awk -v up="$up" -v RS='"kind":' '
      function n(k) { return match($0, "\"" k "\":[0-9]+") ? substr($0, RSTART + length(k) + 3, RLENGTH - length(k) - 3) : 0 }
      NR > 1 { split($0, word, "\"")
        print up "," word[2] "," n("bytes") "," n("packets") "," n("drops") "," n("overlimits") \
          "," n("requeues") "," n("backlog") "," n("qlen") }'
    sleep 0.2 2>/dev/null || sleep 1
  done
}
# Older kernels look a module's function up by its name alone, and find another module's.
check_places() {
  tracefs=/proc/$tracer/root/sys/kernel/tracing
  [ -r $tracefs/enabled_functions ] || tracefs=/sys/kernel/debug/tracing
  home=" \[$module\]"; [ $module = vmlinux ] && home=
  pick='[^:]*:\([a-z0-9_]*\)$/\1/p'
  for name in $(sed -n "s/^fentry:$pick;s/^kfunc:$pick" "$work/probe.bt"); do
    grep -q "^$name$home (" $tracefs/enabled_functions 2>/dev/null && continue
    give_up "the kernel attached to another $name, by name only, or $tracefs does not show which" \
      "unload the module of the other BBR:$found"
  done
}
# Old kernels' tcp_probe does not name the socket.
names_socket() {
  for place in /sys/kernel/tracing /sys/kernel/debug/tracing; do
    format=$place/events/tcp/tcp_probe/format
    [ ! -r $format ] || grep -q skaddr $format || return 1
  done
}
failed() {
  why=$1
  echo "  $rung failed: $why" >&2
  ladder="$ladder{\"rung\": \"$rung\", \"outcome\": \"failed\", \"reason\": \"$why\"}, "
}
# Another after each loading; none where BBR is built in.
instance() { ls -di "/sys/module/$module" 2>/dev/null | awk '{print $1}'; }
loaded=$(instance)
# What a replay needs to know of the host.
hz=$(cat "/boot/config-$(uname -r)" "/lib/modules/$(uname -r)/config" 2>/dev/null | sed -n 's/^CONFIG_HZ=//p' | head -1)
[ -n "$hz" ] || hz=$(zcat /proc/config.gz 2>/dev/null | sed -n 's/^CONFIG_HZ=//p')
gso=65536; names_in $btf/vmlinux | grep -qax tso_max_size && gso=524280
sysctls=$(for name in tcp_min_tso_segs tcp_plb_enabled tcp_plb_idle_rehash_rounds tcp_plb_rehash_rounds \
  tcp_plb_suspend_rto_sec tcp_plb_cong_thresh; do
  [ -r /proc/sys/net/ipv4/$name ] && echo "\"net.ipv4.$name\": $(cat /proc/sys/net/ipv4/$name)"
done | sed '$!s/$/,/')
params=$(for file in /sys/module/tcp_bbr2/parameters/*; do
  [ -r "$file" ] && echo "\"tcp_bbr2.$(basename "$file")\": \"$(cat "$file")\""
done | sed '$!s/$/,/')
known="\"kernel\": \"$(uname -r)\", \"sysctls\": {$sysctls}, \"module_params\": {$params},
 \"constants\": {\"HZ\": ${hz:-null}, \"GSO_MAX_SIZE\": $gso, \"GSO_LEGACY_MAX_SIZE\": 65536},"
# Whoever is killed leaves this, and the rows in "raw": ingest --salvage reads them. It is written
# before the first row, as rows may soon leave no room.
write_unfinished() {
  cat > "$work/manifest.json" <<EOF
{"format": "bbrscope-bundle", "version": 1, "name": "$(basename "$out")", "bbr": "$version",
 $known "rung": "$rung", "events": null, "unfinished": true}
EOF
}
ladder= tracer=
for rung in $rungs; do
  lacks=
  case $rung in
    fentry)
      [ -z "$short" ] || lacks="it needs a newer bpftrace"
      [ -z "$untyped" ] || lacks="the kernel has no types of its modules (Linux 5.11 and later do)" ;;
    kprobe) [ "$found" = " $module" ] || lacks="by name alone it could land in the other BBR:$found" ;;
    tcp_probe) names_socket || lacks="the tracepoint of this kernel does not name the socket" ;;
  esac
  [ -z "$lacks" ] || { failed "$lacks"; continue; }
  { probe | sed "$rewrite" | cwnd_events > "$work/probe.bt" && write_unfinished; } ||
    give_up "cannot write to $work: is there no room left?" "choose an -o elsewhere"
  echo "attaching to BBR $version ($module) by $rung" >&2
  : > "$work/raw"
  start_tracer
  until attached; do
    [ -z "$ended" ] || give_up "stopped while bpftrace was attaching; nothing was recorded"
    ! is_full || give_up "$work has no room left; nothing was recorded" "choose an -o elsewhere"
    if ! kill -0 $tracer 2>/dev/null; then tracer=; break; fi
    sleep 1
  done
  [ -n "$tracer" ] && break
  failed "$(grep -v RLIMIT_MEMLOCK "$work/said" | head -5 | tr '\n' ' ' | tr -d '\000-\037"\\')"
done
[ -n "$tracer" ] || give_up "bpftrace did not attach: $why"
ladder="$ladder{\"rung\": \"$rung\", \"outcome\": \"used\", \"reason\": \"the first that attached\"}"
[ $rung != fentry ] || [ "$found" = " $module" ] || check_places

[ -n "$device" ] || device=$(ip route show default 2>/dev/null | sed -n 's/.* dev \([^ ]*\).*/\1/p' | head -1)
packets=null notes=
if [ -n "$device" ] && [ -z "$no_packets" ] && command -v tcpdump >/dev/null; then
  : > "$work/tcpdump"
  tcpdump -i "$device" -n -U -s 128 -w "$work/packets.pcap" tcp 2> "$work/tcpdump" &
  tcpdump=$!
  # It becomes a user of its own, and what --pdeathsig says is void.
  (while kill -0 $$; do sleep 1; done; kill $tcpdump) 2>/dev/null &
  watcher=$!
  until grep -q 'listening on' "$work/tcpdump" || ! kill -0 $tcpdump 2>/dev/null; do
    sleep 0.2 2>/dev/null || sleep 1
  done
  if kill -0 $tcpdump 2>/dev/null; then
    packets="{\"where\": \"tcpdump on $device of the host that ran BBR\", \"snaplen\": 128, \"payload\": true"
  else
    notes="\"no packets: $(tail -n 1 "$work/tcpdump" | tr -d '\000-\037"\\')\""
    echo "  $notes" | tr -d '"' >&2
    tcpdump=
    rm -f "$work/packets.pcap"
  fi
fi
if command -v ss >/dev/null; then
  while kill -0 $$; do read -r up _ < /proc/uptime; echo "# uptime_s $up"; ss -tienOH | grep bbr; sleep 1; done > "$work/ss.txt" 2>/dev/null &
  sampler=$!
fi
if [ -n "$device" ] && command -v tc >/dev/null; then
  sample_queue > "$work/queue.csv" 2>/dev/null &
  queue=$!
fi

[ -z "$by_date" ] || read_clock start >> "$work/clock"
echo "recording" >&2
run() {
  umask "$mask"
  exec $as_caller "$@"
}
status=0
if [ $# -gt 0 ]; then run "$@" & child=$!
elif [ -n "$seconds" ]; then sleep "$seconds" & child=$!
else child=; fi
while [ -z "$ended" ]; do
  kill -0 $tracer 2>/dev/null || { ended="bpftrace ended by itself"; break; }
  if [ -n "$child" ] && ! kill -0 "$child" 2>/dev/null; then
    ended="command or duration"; wait "$child"; status=$?; break
  fi
  sleep 0.2 2>/dev/null || sleep 1
done
# With what COMMAND started and waits for.
family() { for kid in $(cat /proc/"$1"/task/*/children 2>/dev/null); do echo "$kid"; family "$kid"; done; }
[ -n "$child" ] && kill "$child" $(family "$child") 2>/dev/null
# A device that went, or whoever killed it: later packets are missing.
packets_ended=
if [ -n "${tcpdump:-}" ] && ! kill -0 "$tcpdump" 2>/dev/null; then
  # Ctrl-C reaches it, too: it ends with status 0 then.
  wait "$tcpdump" 2>/dev/null || packets_ended="status $?"
fi
[ -z "$by_date" ] || read_clock end >> "$work/clock"
settle
cleanup
# bpftrace 0.17 overlooks a SIGINT that comes while it is not waiting for rows: send it again, as long
# as it is caught (the last digit of SigCgt has bit 2); one that comes during the last words would kill.
while sleep 1; do
  state=$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$tracer/status" 2>/dev/null)
  case $state in ''|Z) break ;; esac
  case $(sed -n 's/^SigCgt:.*\(.\)$/\1/p' "/proc/$tracer/status" 2>/dev/null) in
    [2367abefABEF]) kill -INT "$tracer" 2>/dev/null ;;
  esac
done
wait $tracer 2>/dev/null
tracer=

# Without room for the bundle, what was recorded stays as a killed script leaves it.
no_room() {
  trap - EXIT
  fail "cannot write the bundle: is there no room left for $work?" \
    "bbrscope ingest --salvage $work reads what was recorded"
}
# Rows to the event stream, in order of time, as bpftrace prints those of several CPUs in any;
# counters and complaints to the account.
{
  grep -E '^#[A-Z]+[0-9]?,' "$work/raw"
  grep -E '^[A-Z]+[0-9]?,' "$work/raw" | TMPDIR=$work LC_ALL=C sort -s -n -t, -k2,2
} > "$work/events.csv" || { rm -f "$work/events.csv"; no_room; }
told=$(cat "$work/raw" "$work/said" | sed -n 's/.*Lost \([0-9]*\) events.*/\1/p' | awk '{n += $1} END {print n + 0}')
counts=$(grep -v '^#' "$work/events.csv" | cut -d, -f1 | sort | uniq -c | awk '{printf "%s\"%s\": %d", s, $2, $1; s = ", "}')
attempted=$(sed -n 's/^@attempted_\([A-Z]*\): \([0-9]*\)$/\1 \2/p' "$work/raw")
# An event's rows are TAG, or TAG0, TAG1 and so on: each counts, the first of them as recorded.
account=$(echo "$attempted" | while read -r tag tried; do
  [ -n "$tag" ] || continue
  rows=$(sed -n "s/^#\(${tag}[0-9]*\),.*/\1/p" "$work/events.csv" | sort -u)
  missing=0
  for row in $rows; do
    missing=$((missing + tried - $(grep -c "^$row," "$work/events.csv")))
  done
  echo "$tag $tried $(grep -c -E "^${tag}0?," "$work/events.csv") $missing"
done)
lost=$(echo "$account" | awk '$4 > 0 {n += $4} END {print n + 0}')
# Every call of main() and init() has its exit row.
number() { grep -c -E "^${1}0?," "$work/events.csv"; }
no_exit=$(($(number M) - $(number X) + $(number I) - $(number IX)))
[ "$told" -gt "$lost" ] && lost=$told
probes=$(echo "$account" | awk 'NF {
  printf "%s\"%s\": {\"attempted\": %d, \"recorded\": %d, \"cut\": 0, \"lost\": %d, \"lost_rows\": %d}", s, $1, $2, $3, $2 - $3, $4
  s = ", " }')
unloaded=
[ "$(instance)" = "$loaded" ] || unloaded="module $module was unloaded during the recording"
[ -z "$unloaded" ] || notes="${notes:+$notes, }\"$unloaded\""
if [ -n "$packets_ended" ]; then
  packets="$packets, \"ended\": \"$packets_ended\"}"
elif [ "$packets" != null ]; then packets="$packets}"; fi
complete=true; [ -n "$probes" ] && [ "$ended" != "bpftrace ended by itself" ] || complete=false
[ -z "$by_date" ] || cat "$work/clock" >> "$work/raw"
# "+clock POINT BOOTTIME_NS MONOTONIC_NS REALTIME_US": bpftrace read them together.
clock() {
  sed -n "s/^+clock $1 \([0-9]*\) \([0-9]*\) \([0-9]*\)$/{\"boottime_ns\": \1, \"monotonic_ns\": \2, \"realtime_ns\": \3000}/p" "$work/raw"
}
start=$(clock start) end=$(clock end)
cat > "$work/finished" <<EOF || { rm -f "$work/events.csv" "$work/finished"; no_room; }
{"format": "bbrscope-bundle", "version": 1, "name": "$(basename "$out")", "bbr": "$version",
 "scenario": {"id": "live", "description": "recorded with the shell script"},
 $known
 "clocks": {"start": ${start:-null}, "end": ${end:-${start:-null}}, "drift_measured": false},
 "accounting": {"probes": {$probes}, "lost": $lost, "reported_lost_rows": $told, "complete": $complete},
 "events": {$counts}, "events_lost": $lost, "packets": $packets, "rung": "$rung",
 "ladder": [$ladder], "command_status": $status,
 "notes": [$notes],
 "ended": "$ended", "bpftrace": "$(bpftrace --version | sed 's/bpftrace v//')"}
EOF
if command -v zstd >/dev/null; then pack="zstd -q --rm" suffix=.zst; else pack="gzip" suffix=.gz; fi
rm -f "$work/raw" "$work/tcpdump" "$work/clock"
for file in events.csv packets.pcap ss.txt queue.csv; do
  [ ! -e "$work/$file" ] || $pack "$work/$file" ||
    { [ $file != events.csv ] || mv "$work/events.csv" "$work/raw"; no_room; }
done
mv "$work/finished" "$work/manifest.json"
{ [ ! -e "$out" ] && mv "$work" "$out"; } || fail "cannot name the bundle $out" "it is $work"
chown -R "${SUDO_UID:-0}:${SUDO_GID:-0}" "$out"  # tcpdump wrote as a user of its own
trap - EXIT
echo "$out: $(echo "$counts" | tr -d '"')" >&2
[ $suffix = .zst ] || echo "  zstd is missing here: gunzip the files and zstd them before bbrscope ingest" >&2
[ "$ended" = "bpftrace ended by itself" ] && fail "$(grep -v RLIMIT_MEMLOCK "$out/said" | head -3)"
[ -z "$unloaded" ] || fail "$unloaded; the bundle is kept"
[ "$lost" -gt 0 ] && fail "$lost rows were lost; the bundle is kept" "BPFTRACE_PERF_RB_PAGES=16384 loses less"
[ -z "$packets_ended" ] || fail "tcpdump ended by itself ($packets_ended): later packets are missing; the bundle is kept"
[ "$no_exit" -gt 0 ] && fail "$no_exit calls have no exit row; the bundle is kept"
[ -n "$probes" ] || fail "bpftrace's counters are missing, so that rows may be; the bundle is kept"
[ -n "$counts" ] || fail "no socket had BBR while it was recorded; the bundle is kept"
echo "  next: bbrscope ingest $out" >&2
exit $status
