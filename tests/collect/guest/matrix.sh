# The situations of the matrix in one guest: source this, then say `round RUNG OTHER` for each rung.
#
# A round is two recorders at once over flows of every kind (many_flows.py, and one of a namespace):
# that by OTHER is killed by SIGKILL, that by RUNG goes on to its end, but its module is unloaded, if
# the kernel lets it go. In /out: RUNG and RUNG-killed.partial, the bundles; RUNG.json, which flows
# were made; RUNG.said, RUNG.status, RUNG-killed.said; RUNG.rmmod, what rmmod said and its status;
# RUNG.left, which recorders still ran. COLLECTOR=script: by the script without Python. BBR is what
# this kernel calls its BBR.
export BBR=${BBR:-bbr}
. /opt/bbrscope/tests/collect/guest/bottleneck.sh
# A default congestion control holds its module.
ip netns exec s1 sysctl -qw net.ipv4.tcp_congestion_control=cubic
ip netns exec d iperf3 -s -D
uname -r > /out/kernel; nproc > /out/cpus; bpftrace --version > /out/bpftrace

cat > /tmp/flows.sh <<'END'
rung=$1 killed=$2 rows=$3
python3 /opt/bbrscope/tests/collect/guest/many_flows.py /out/$rung.json ${LONG:-50} ${SHORT:-300} $BBR
ip netns exec s1 iperf3 -c 10.0.2.2 -C $BBR -n 1M
if [ "$killed" ]; then
  # Its rows wait up to 5 s for others to come before them (collect/record/output/stream.py); and an
  # old bpftrace may print for many seconds what came within one.
  still=0 size=
  for second in $(seq 120); do
    [ $still -lt 8 ] || break
    sleep 1; was=$size; size=$(wc -c 2> /dev/null < /tmp/$rung-killed.partial/$rows)
    [ "$size" = "$was" ] && still=$((still + 1)) || still=0
  done
  kill -9 $killed
  for n in $(seq 50); do [ "$(pgrep -cx bpftrace)" -gt 1 ] || break; sleep 0.2; done
fi
# A socket of iperf3 may be closing still.
sleep 2; rmmod tcp_bbr 2> /out/$rung.rmmod; gone=$?; echo $gone >> /out/$rung.rmmod
if [ $gone = 0 ]; then modprobe tcp_bbr; fi
END

# RUNG NAME ...: record into /tmp/NAME in place of this shell
record() {
  rung=$1 name=$2; shift 2
  if [ "${COLLECTOR:-}" = script ]; then
    exec sh /out/collect.sh -r $rung -n -o /tmp/$name "$@"
  fi
  exec bbrscope collect -q --no-packets --rung $rung -o /tmp/$name "$@"
}
round() {
  rung=$1 other=$2 killed=
  [ "${COLLECTOR:-}" = script ] && rows=raw || rows=events.csv.zst
  if [ "$other" ]; then
    record $other $rung-killed > /dev/null 2> /out/$rung-killed.said & killed=$!
    until grep -qs '^recording' /out/$rung-killed.said; do
      kill -0 $killed 2> /dev/null || break
      sleep 0.2
    done
  fi
  (record $rung $rung -- sh /tmp/flows.sh $rung "$killed" $rows) > /dev/null 2> /out/$rung.said
  echo $? > /out/$rung.status
  for n in $(seq 50); do pgrep -x bpftrace > /out/$rung.left || break; sleep 0.2; done
  for name in $rung $rung-killed.partial; do [ -d /tmp/$name ] && cp -r /tmp/$name /out/; done
  read -r up idle < /proc/uptime; echo "$up $rung" >> /out/times
}
