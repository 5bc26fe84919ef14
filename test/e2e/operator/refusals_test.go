package operator

import (
	"fmt"
	"regexp"
	"strings"

	"podium/test/e2e/page"
)

// listening returns a script that occupies a port as long as the script after it runs.
func listening(port int) string {
	return fmt.Sprintf("systemd-socket-activate -l %d /bin/cat & trap \"kill $!\" EXIT; until ss -ltn | grep -q :%[1]d; do sleep 0.1; done\n", port)
}

// without returns a script that moves a program away as long as the script after it runs.
func without(program string) string {
	return fmt.Sprintf("mv %s /moved; trap 'mv /moved %[1]s' EXIT\n", program)
}

// mistakes are refused with the problem and its solution, and change nothing.
func mistakes(first, worker *page.Operator, join string) {
	token := regexp.MustCompile(`^echo \S+`)
	hash := regexp.MustCompile(`sha256:\S+`)
	_, typed, _ := strings.Cut(join, " | ")
	own := strings.TrimPrefix(token.FindString(join), "echo ")
	ended := strings.TrimSpace(first.Run("podium token create --ttl 1s --print-join-command; sleep 1"))
	for _, row := range []struct {
		script string
		says   []string
	}{
		{token.ReplaceAllString(join, "echo zzzzzz.0123456789abcdef"), []string{"has no token with the ID zzzzzz", "podium token create"}},
		{token.ReplaceAllString(join, "echo "+own[:7]+"0000000000000000"), []string{"the secret of token " + own[:6] + " is wrong"}},
		{token.ReplaceAllString(join, "echo nonsense"), []string{"a token is six"}},
		{"echo nonsense | script -qec '" + typed + "' /dev/null", []string{"token: ", "a token is six"}}, // at a terminal
		{ended, []string{"token", "has ended", "podium token create --print-join-command"}},
		{hash.ReplaceAllString(join, "sha256:"+strings.Repeat("0", 64)), []string{"another cluster"}},
		{hash.ReplaceAllString(join, "sha256:12"), []string{"64 hexadecimal digits"}},
		{strings.Replace(join, ":6443", ":6444", 1), []string{"connection refused", "reachable from here?"}},
		{join + " --node-name first", []string{"has a node first already", "--node-name"}},
		{without("/usr/sbin/runc") + join, []string{"not installed: runc", "apt-get install"}},
		{without("/usr/bin/kubelet") + join, []string{"not installed: kubelet", "install Podium's package"}},
		{listening(10250) + join, []string{"[ports]", "10250 (kubelet)", "ss -ltnp"}},
		{"mkdir /var/lib/podium; mount -t tmpfs -o size=64m small /var/lib/podium; trap 'umount /var/lib/podium; rmdir /var/lib/podium' EXIT\n" + join, []string{"[disk]", "64 MiB are free for /var/lib/podium", "free space"}},
		{"sysctl -qw net.ipv4.ip_forward=0; trap 'sysctl -qw net.ipv4.ip_forward=1' EXIT\n" + join, []string{"[forwarding]", "sysctl -w"}},
		// All at once.
		{without("/usr/bin/kubelet") + "sysctl -qw net.ipv4.ip_forward=0\n" + join, []string{"not installed: kubelet", "[forwarding]", "nothing was changed"}},
		{"sysctl -qw net.ipv4.ip_forward=1; podium certs renew", []string{"podium join"}},
	} {
		worker.Refused(row.script, row.says...)
		worker.Run("test ! -e /etc/podium/pki; test ! -e /etc/podium/kubelet.yaml; never systemctl is-active kubelet podium-certs.timer")
	}
	first.Run("podium init --wait 60s --upload-certs | grep -e '--control-plane --certificate-key-file -'") // running it twice is allowed
	first.Refused("podium backup /etc/podium/admin.conf", "exists")
}

// planeMistakes change nothing on a machine that is to become a control plane; a run that fails
// half way leaves a learner in etcd.
func planeMistakes(s *page.Story) {
	const key = " --control-plane --certificate-key-file -"
	plane := s.Planes[0]
	plane.Refused(strings.Replace(s.JoinPlane, " |", "zz |", 1), "the certificate key is 64")
	plane.Refused(strings.Replace(s.Join, " |", " "+strings.Repeat("0", 64)+" |", 1)+key, "podium certs upload")
	plane.Refused(s.Join+key, "a word for --token and one for --certificate-key")
	plane.Refused(listening(6443)+s.JoinPlane, "[control-plane-ports]", "6443 (kube-apiserver)", "ss -ltnp")
	plane.Run("test ! -e /etc/podium/pki")
	// Its member is added and cannot reach the first one.
	const cut = "OUTPUT -p tcp --dport 2380 -j DROP"
	plane.Refused("iptables -I "+cut+"; trap 'iptables -D "+cut+"' EXIT; "+s.JoinPlane+" --wait 5s", "member of etcd")
	s.First.Run("podium etcd list | grep learner")
}
