package vm

import (
	"slices"
	"time"

	"podium/test/e2e/page"
)

func (c *cluster) all() []*page.Operator { return slices.Concat([]*page.Operator{c.First}, c.Planes) }

// ground checks what distinguishes the machines from node containers.
func (c *cluster) ground() {
	c.First.Run(`uname -r | grep cloud-amd64
		stat -f -c %T /sys/fs/cgroup | grep -x cgroup2fs
		grep CapBnd /proc/self/status; cat /proc/sys/kernel/cap_last_cap
		test $((0x$(sed -n 's/^CapBnd:\t//p' /proc/self/status))) = $(((1 << ($(cat /proc/sys/kernel/cap_last_cap) + 1)) - 1))
		grep -E 'SystemdCgroup = true' /etc/podium/containerd.toml
		grep -E 'restrict_oom_score_adj = false' /etc/podium/containerd.toml
		grep -E 'cgroupDriver: "?systemd' /etc/podium/kubelet.yaml
		systemctl list-units --no-legend --plain 'kubepods*' | grep kubepods.slice`)
}

// skewed: a machine whose clock is an hour ahead cannot join. (A node container has no clock of its
// own.)
func (c *cluster) skewed() {
	second := c.Planes[0]
	second.Refused("date -s '+1 hour'; trap \"date -s '-1 hour'\" EXIT\n"+c.JoinPlane, "apart: set them right", "run this again")
	second.Run("test ! -e /etc/podium/pki; never systemctl is-active kubelet etcd")
}

// heard sends many requests to a Service from a machine, and prints which pods answered.
const heard = `for i in $(seq 24); do
	exec 3<>/dev/tcp/10.96.0.80/80; printf 'GET / HTTP/1.0\r\n\r\n' >&3; sed '1,/^\r$/d' <&3; echo; exec 3>&-
done | grep hello- | sort -u`

// apps run on all machines, resolve each other's names, and are reachable from all machines.
func (c *cluster) apps() {
	c.First.Put("testdata/apps.yaml", "/root/apps.yaml")
	c.First.Until(2*time.Minute, asAdmin+"podium apply -f /root/apps.yaml")
	c.First.Until(5*time.Minute, asAdmin+`podium rollout status deployment/hello --timeout 60s
		podium rollout status deployment/cluster-dns -n kube-system --timeout 60s`)
	_, _ = c.First.Try(asAdmin + "podium get pods -o wide")
	for _, o := range c.all() {
		o.Until(time.Minute, heard+" | grep -c . | grep -x 3")
	}
	c.First.Run(asAdmin + "podium get pods -l app=hello -o wide | grep -oE ' (first|second|third) ' | sort -u | grep -c . | grep -E '^(2|3)$'")
	c.names()
}

// names checks that pods can resolve names.
func (c *cluster) names() {
	c.First.Until(time.Minute, asAdmin+"podium exec limited -- nslookup hello.default.svc.cluster.local | grep 10.96.0.80")
}

// limits checks limits in cgroup v2; a pod that exceeds its memory limit is killed, and
// reports why.
func (c *cluster) limits() {
	c.First.Until(3*time.Minute, asAdmin+"podium wait pod limited --for condition=Ready --timeout 60s")
	c.First.Run(asAdmin + `id=$(podium get pod limited -o 'jsonpath={.status.containerStatuses[0].containerID}')
		scope=$(find /sys/fs/cgroup/kubepods.slice -name "cri-containerd-${id#containerd://}.scope"); echo "$scope"
		grep -x 33554432 $scope/memory.max
		grep -x '20000 100000' $scope/cpu.max`)
	c.First.Until(3*time.Minute, asAdmin+`podium get pod glutton -o 'jsonpath={.status.containerStatuses[0].state.terminated.reason} {.status.containerStatuses[0].state.terminated.exitCode}' | grep 'OOMKilled 137'`)
}

// powerLoss cuts one machine's power, and restores it. The others keep working without it, and it
// recovers by itself.
func (c *cluster) powerLoss() {
	c.First.Logf("third: power off")
	lost := time.Now()
	c.third.powerOff()
	c.write("at-once")
	c.First.Logf("a write went through %.1f s after the loss", time.Since(lost).Seconds())
	for _, name := range []string{"one", "two", "three", "four", "five"} {
		c.write(name)
	}
	c.First.Until(3*time.Minute, asAdmin+"podium get node third | grep NotReady")
	c.First.Until(3*time.Minute, asAdmin+"podium get pods -l app=hello -o wide | grep Running | grep -cE ' (first|second) ' | grep -x 3")
	c.First.Until(3*time.Minute, asAdmin+"podium rollout status deployment/hello --timeout 60s")
	for _, o := range c.all()[:2] {
		o.Until(time.Minute, heard+" | grep -c . | grep -x 3")
	}
	c.names()

	c.First.Logf("third: power on, %.0f s after the loss", time.Since(lost).Seconds())
	back := time.Now()
	third := c.all()[2]
	c.third.powerOn()
	c.third.booted(third)
	c.First.Until(5*time.Minute, asAdmin+"podium wait node --all --for condition=Ready --timeout 60s")
	c.First.Until(2*time.Minute, "podium etcd list | grep -c ' healthy' | grep -x 3")
	c.First.Logf("third: is one of three again %.0f s after power on", time.Since(back).Seconds())
	third.Until(2*time.Minute, heard+" | grep -c . | grep -x 3")
	third.Until(time.Minute, asAdmin+"podium get configmaps at-once five")
	_, _ = third.Try(asAdmin + "podium get pods -A -o wide")
}

// write stores a ConfigMap of that name, with retries.
func (c *cluster) write(name string) {
	c.First.Until(time.Minute, asAdmin+"podium create configmap "+name+" --from-literal=a=1 || podium get configmap "+name)
}

// restored checks the cluster of the backup, on the only machine that was restored.
func (c *cluster) restored() {
	c.First.Run(asAdmin + "podium delete node second third; podium get configmap five")
	c.First.Until(5*time.Minute, asAdmin+"podium wait node --all --for condition=Ready --timeout 60s")
	c.write("after-the-restore")
}
