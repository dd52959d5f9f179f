# A bottleneck in network namespaces: source this, then send from s1 to 10.0.2.2 in d.
#
#   s1 (10.0.1.2) -- r -- d (10.0.2.2)
#
# tbf on r's egress towards d is the bottleneck (RATE, LIMIT bytes of queue), the whole DELAY is
# netem on d's egress, that is, on the ACK path. GSO, TSO and GRO are off: tbf and netem see packets.
#
# While the guest waits for a file of a busy host, virtual time leaps to the next timer, such as a
# time-out minutes away: one every 5 ms keeps the leaps short.
python3 -c 'import time
while True: time.sleep(0.005)' &
: "${RATE:=10mbit}" "${LIMIT:=50000}" "${DELAY:=40ms}" "${CC:=bbr}"
modprobe -qa tcp_bbr sch_netem sch_tbf veth

for ns in s1 r d; do ip netns add $ns; ip -n $ns link set lo up; done
ip link add s1r netns s1 type veth peer name rs1 netns r
ip link add rd netns r type veth peer name dr netns d
ip -n s1 addr add 10.0.1.2/24 dev s1r; ip -n r addr add 10.0.1.1/24 dev rs1
ip -n r addr add 10.0.2.1/24 dev rd; ip -n d addr add 10.0.2.2/24 dev dr
ip -n s1 addr add fd00:1::2/64 dev s1r nodad; ip -n r addr add fd00:1::1/64 dev rs1 nodad
ip -n r addr add fd00:2::1/64 dev rd nodad; ip -n d addr add fd00:2::2/64 dev dr nodad
for at in s1:s1r r:rs1 r:rd d:dr; do
  ip -n "${at%:*}" link set "${at#*:}" up
  ip netns exec "${at%:*}" ethtool -K "${at#*:}" gso off tso off gro off
done
ip netns exec r sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
ip -n s1 route add default via 10.0.1.1; ip -n d route add default via 10.0.2.1
ip -n s1 route add default via fd00:1::1; ip -n d route add default via fd00:2::1
ip netns exec s1 sysctl -qw net.ipv4.tcp_congestion_control=$CC
ip netns exec r tc qdisc add dev rd root tbf rate $RATE burst 3028 limit $LIMIT
ip netns exec d tc qdisc add dev dr root netem delay $DELAY limit 100000
