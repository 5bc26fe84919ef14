package operator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"podium/test/e2e/arguments"
	"podium/test/e2e/blank"
	"podium/test/e2e/page"
)

// TestPage follows the operator's page, word for word, from blank machines to a cluster, its
// backup, its loss and restore, to machines that are blank again. Between the commands it
// makes an operator's checks and typical mistakes.
func TestPage(t *testing.T) {
	image, deb := needs(t)
	net := blank.Network(t)
	first, worker := blank.Boot(t, image, net, "first"), blank.Boot(t, image, net, "worker")
	planes := []*page.Operator{blank.Boot(t, image, net, "second"), blank.Boot(t, image, net, "third")}
	for _, o := range append(planes, first, worker) {
		o.Put(deb, "/root/podium_test.deb")
	}
	s, seen := &page.Story{First: first, Planes: planes, Workers: []*page.Operator{worker}}, arguments.Start()
	s.Before = map[string]func(){
		"worker podium join":     func() { mistakes(first, worker, s.Join) },
		"plane podium join":      func() { planeMistakes(s) },
		"restore podium restore": func() { lose(first) },
	}
	s.After = map[string]func(){
		"worker podium join":        func() { pods(first); bounded(first) },
		"first podium certs upload": func() { first.Run("podium etcd list | grep -c ' healthy' | grep -qx 1") },
		"plane podium join":         func() { planes[0].Run(s.JoinPlane) }, // running it twice is allowed
		"restore podium restore":    func() { restored(first, planes[0]) },
	}
	s.Follow(t)
	worker.Run("test ! -e /usr/bin/kubelet; test ! -e /etc/podium; never 'iptables-save | grep KUBE'")
	first.Refused("podium get node worker --kubeconfig /etc/podium/admin.conf", "not found")
	unseen(t, seen, s.Join, s.JoinPlane)
}

// unseen checks that the secrets of join commands never appeared in the command lines of
// processes.
func unseen(t *testing.T, seen *arguments.Watch, joins ...string) {
	if len(seen.With("podium join ")) == 0 {
		t.Error("no machine was seen to join")
	}
	for _, join := range joins {
		echo, _, _ := strings.Cut(join, " | ")
		for _, secret := range strings.Fields(echo)[1:] {
			for _, command := range seen.With(secret) {
				t.Errorf("everybody has read a secret in the arguments of %s", command[:min(60, len(command))])
			}
		}
	}
}

// lose removes the first control plane, the last one that is left.
func lose(first *page.Operator) {
	first.Run("podium etcd list | grep -c . | grep -qx 2") // the heading and itself
	first.Run("podium reset")
}

// pods runs an app on the worker and sends requests to it from the control plane.
func pods(first *page.Operator) {
	first.Until(time.Minute, `export KUBECONFIG=/etc/podium/admin.conf
		podium create configmap kept --from-literal=a=1 2>/dev/null || podium get configmap kept`)
	first.Run(`export KUBECONFIG=/etc/podium/admin.conf
		podium rollout status deployment/cluster-dns -n kube-system --timeout 90s
		podium get pods -A -o wide`)
}

// bounded checks that systemd bounds the memory of each daemon, and that the daemon keeps
// its heap below that bound.
func bounded(o *page.Operator) {
	for _, unit := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"} {
		o.Run(fmt.Sprintf(`hard=$(systemctl show -P MemoryMax %[1]s)
			soft=$(journalctl -u %[1]s -o cat | sed -n 's/.*soft memory limit"\? bytes=\([0-9]*\) source=cgroup.*/\1/p' | tail -n 1)
			echo "%[1]s: MemoryMax=$hard, soft limit $soft"
			test "$soft" -gt 0 && test "$soft" -lt "$hard"`, unit))
	}
}

// restored checks for the objects that existed at the time of the backup. The control planes
// that have left since then join again.
func restored(first, second *page.Operator) {
	first.Run(`export KUBECONFIG=/etc/podium/admin.conf
		podium delete node second third
		podium get configmap kept
		podium wait node --all --for condition=Ready --timeout 90s
		podium create configmap after-the-restore --from-literal=a=1`)
	second.Run(strings.TrimSpace(first.Run("podium certs upload")))
	second.Run(`podium etcd list | grep -c ' healthy' | grep -qx 2
		podium get configmap after-the-restore --kubeconfig /etc/podium/admin.conf`)
}
