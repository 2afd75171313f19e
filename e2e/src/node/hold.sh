# Process 1 in namespaces of a node's own: network, mounts, processes. Makes them a place for kubelet and containerd, says
# so by creating the file $1, and holds them until it is killed, and all other processes in them with it.
#   $2  address of the node on the bridge, with its prefix length
#   $3  addresses of Services
set -eu

# What is mounted for a container has to be seen by the container's own mount namespace.
mount --make-rshared /
# The fixed places where kubelet, containerd and CNI leave things.
for place in /run /var/lib /var/log; do mount -t tmpfs tmpfs "$place"; done
# Not bound to any namespace, and not for a test to change. The kubelet writes them where they are not as it wants them: so
# it is shown files that are.
for setting in vm/overcommit_memory=1 kernel/panic=10 kernel/panic_on_oops=1; do
    shown=/run/$(basename "${setting%=*}")
    echo "${setting#*=}" >"$shown"
    mount --bind "$shown" "/proc/sys/${setting%=*}"
done

ip link set lo up
ip link add cni0 type bridge
ip address add "$2" dev cni0
ip link set cni0 up
# A route is looked up before the rules of kube-proxy change the address.
ip route add "$3" dev cni0
echo 1 >/proc/sys/net/ipv4/ip_forward

: >"$1"
# To wait is also to reap the processes whose parents have ended.
sleep infinity &
wait
