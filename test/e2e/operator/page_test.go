package operator

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// block is a command of the page: the machine that the fence names, and what
// to type there.
type block struct{ on, script string }

var fence = regexp.MustCompile("(?ms)^```sh (\\w+)\n(.*?)^```$")

// page reads the commands of deploy/README.md, in their order.
func page(t *testing.T) (blocks []block) {
	t.Helper()
	text, err := os.ReadFile("../../../deploy/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, block{on: m[1], script: m[2]})
	}
	if len(blocks) < 10 {
		t.Fatalf("only %d commands are found on the page", len(blocks))
	}
	return blocks
}

// TestPage follows the operator's page, word for word, from blank machines to a
// cluster, its backup, its loss and restore, to machines that are blank again.
// Between its commands it looks at what an operator would, and makes the
// mistakes that one makes.
func TestPage(t *testing.T) {
	image, deb := needs(t)
	net := network(t)
	first, worker := boot(t, image, net, "first"), boot(t, image, net, "worker")
	planes := []*machine{boot(t, image, net, "second"), boot(t, image, net, "third")}
	every := append(planes, first, worker)
	for _, m := range every {
		m.put(deb, "/root/podium_test.deb")
	}
	join, joinPlane := "", ""
	for _, b := range page(t) {
		script := "cd /root\n" + strings.ReplaceAll(b.script, "WORKER", "worker")
		switch {
		case b.on == "every":
			for _, m := range every {
				m.run(script)
			}
		case b.on == "plane" && strings.HasPrefix(b.script, "podium join "):
			planes[0].refused(joinPlane[:len(joinPlane)-2]+"zz", "--certificate-key is 64")
			planes[0].refused(join+" --control-plane --certificate-key "+strings.Repeat("0", 64), "podium certs upload")
			planes[0].run("test ! -e /etc/podium/pki")
			// A run that ends half way: its member is added and cannot reach the first.
			const cut = "OUTPUT -p tcp --dport 2380 -j DROP"
			planes[0].refused("iptables -I "+cut+"; trap 'iptables -D "+cut+"' EXIT; "+joinPlane+" --wait 5s", "member of etcd")
			first.run("podium etcd list | grep learner")
			for _, m := range planes {
				m.run(joinPlane)
			}
			planes[0].run(joinPlane) // twice is fine
		case b.on == "plane":
			for _, m := range planes {
				m.run(script)
			}
		case strings.HasPrefix(b.script, "podium join "):
			mistakes(first, worker, join)
			worker.run(join)
			pods(first)
		case strings.Contains(b.script, "--print-join-command"):
			join = strings.TrimSpace(first.run(script))
		case strings.Contains(b.script, "certs upload"):
			joinPlane = strings.TrimSpace(first.run(script))
			first.run("podium etcd list | grep -c ' healthy' | grep -qx 1")
		case b.on == "restore":
			first.run("podium etcd list | grep -c . | grep -qx 2") // the head and itself
			first.run("podium reset")
			first.run(script)
			restored(first, planes[0])
		case b.on == "first":
			first.run(script)
		case b.on == "worker":
			worker.run(script)
		default:
			t.Errorf("the page has a command for %q: which machine is that?", b.on)
		}
	}
	worker.run("test ! -e /usr/bin/kubelet; test ! -e /etc/podium; never 'iptables-save | grep KUBE'")
	first.refused("podium get node worker --kubeconfig /etc/podium/admin.conf", "not found")
}

// mistakes are refused with what is wrong and what to do, and leave nothing.
func mistakes(first, worker *machine, join string) {
	token := regexp.MustCompile(`--token \S+`)
	hash := regexp.MustCompile(`sha256:\S+`)
	own := strings.TrimSpace(strings.Split(token.FindString(join), " ")[1])
	for _, row := range []struct {
		script string
		says   []string
	}{
		{token.ReplaceAllString(join, "--token zzzzzz.0123456789abcdef"), []string{"knows no token with the ID zzzzzz", "podium token create"}},
		{token.ReplaceAllString(join, "--token "+own[:7]+"0000000000000000"), []string{"the secret of token " + own[:6] + " is wrong"}},
		{token.ReplaceAllString(join, "--token nonsense"), []string{"a token is six"}},
		{hash.ReplaceAllString(join, "sha256:"+strings.Repeat("0", 64)), []string{"another cluster"}},
		{hash.ReplaceAllString(join, "sha256:12"), []string{"64 hexadecimal digits"}},
		{join + " --node-name first", []string{"has a node first already", "--node-name"}},
		{"mv /usr/sbin/runc /runc; trap 'mv /runc /usr/sbin/runc' EXIT; " + join, []string{"not installed: runc", "apt-get install"}},
		{"sysctl -qw net.ipv4.ip_forward=0; trap 'sysctl -qw net.ipv4.ip_forward=1' EXIT; " + join, []string{"[forwarding]", "sysctl -w"}},
		{"podium certs renew", []string{"podium join"}},
	} {
		worker.refused(row.script, row.says...)
		worker.run("test ! -e /etc/podium/pki; test ! -e /etc/podium/kubelet.yaml; never systemctl is-active kubelet")
	}
	first.run("podium init --wait 60s --upload-certs | grep -e '--control-plane --certificate-key'") // twice is fine
	first.refused("podium backup /etc/podium/admin.conf", "exists")
}

// pods runs an app on the worker and asks it from the control plane.
func pods(first *machine) {
	first.until(time.Minute, `export KUBECONFIG=/etc/podium/admin.conf
		podium create configmap kept --from-literal=a=1 2>/dev/null || podium get configmap kept`)
	first.run(`export KUBECONFIG=/etc/podium/admin.conf
		podium rollout status deployment/cluster-dns -n kube-system --timeout 90s
		podium get pods -A -o wide`)
}

// restored looks for what was there when the backup was made. The control
// planes that left since join again.
func restored(first, second *machine) {
	first.run(`export KUBECONFIG=/etc/podium/admin.conf
		podium delete node second third
		podium get configmap kept
		podium wait node --all --for condition=Ready --timeout 90s
		podium create configmap after-the-restore --from-literal=a=1`)
	second.run(strings.TrimSpace(first.run("podium certs upload")))
	second.run(`podium etcd list | grep -c ' healthy' | grep -qx 2
		podium get configmap after-the-restore --kubeconfig /etc/podium/admin.conf`)
}
