package operator

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"podium/test/e2e/blank"
	"podium/test/e2e/page"
)

// TestPackage installs the package on a blank machine, changes a configuration file, upgrades,
// removes and purges it.
func TestPackage(t *testing.T) {
	image, deb := needs(t)
	m := blank.Boot(t, image, blank.Network(t), "blank")
	before := files(m)
	m.Put(deb, "/podium.deb")
	m.Run(`dpkg -i /podium.deb`)
	m.Run(`for program in podium etcd etcdutl kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy; do $program --help >/dev/null 2>&1 || $program version >/dev/null; done
		podium version --client
		test -s /usr/share/bash-completion/completions/podium
		dpkg -L podium | grep -q /usr/share/man/man1/podium-init.1.gz
		systemctl start kubelet
		never systemctl is-active kubelet`) // its condition is not met
	m.Refused(`podium certs check`, "in no cluster")

	// The next version, with a configuration file that the operator has changed.
	next := filepath.Join(t.TempDir(), "next.deb")
	repack(t, deb, next)
	m.Put(next, "/next.deb")
	m.Run(`sed -i 's/^ARGS=.*/ARGS="-v=4"/' /etc/default/kubelet
		echo 'quota-backend-bytes: 123456789' >>/etc/default/etcd.yaml
		podium init --control-plane-placement shared
		before=$(systemctl show -p MainPID --value kubelet)
		dpkg -i /next.deb
		grep -q 'ARGS="-v=4"' /etc/default/kubelet
		exec 3<>/dev/tcp/127.0.0.1/2381; printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3; grep 'etcd_server_quota_backend_bytes 1.23456789e+08' <&3
		test "$before" != "$(systemctl show -p MainPID --value kubelet)"
		export KUBECONFIG=/etc/podium/admin.conf
		podium wait node --all --for condition=Ready --timeout 60s
		systemctl is-active podium-certs.timer
		dpkg-query -W -f '${Version}' podium | grep -q '+next$'`)
	m.Run(`dpkg -r podium; test -e /etc/default/kubelet; test -e /etc/podium/pki/ca.key
		never pgrep -x etcd; never pgrep -x kubelet; never pgrep -x kube-proxy; never systemctl is-active podium-certs.timer`)
	m.Run(`dpkg -P podium; test ! -e /etc/podium; test ! -e /var/lib/podium; test ! -e /etc/default/kubelet; test ! -e /etc/default/etcd.yaml
		never 'iptables-save | grep KUBE'; never "ls /etc/systemd/system/*.wants | grep -E 'kube|etcd|podium'"`)
	if left := strings.ReplaceAll(diff(before, files(m)), "/podium.deb\n", ""); strings.ReplaceAll(left, "/next.deb\n", "") != "" {
		t.Errorf("purging leaves behind:\n%s", left)
	}
}

// files lists the files in places where packages and programs could leave permanent files.
func files(m *page.Operator) string {
	return m.Ask(`find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /var/lib -o -path /var/log -o -path /var/cache \) -prune -o -type f -print | sort`)
}

// diff returns the lines of b that are not in a.
func diff(a, b string) string {
	have := map[string]bool{}
	for line := range strings.Lines(a) {
		have[line] = true
	}
	var out strings.Builder
	for line := range strings.Lines(b) {
		if !have[line] {
			out.WriteString(line)
		}
	}
	return out.String()
}

// repack builds a package that differs only in its version.
func repack(t *testing.T, from, to string) {
	t.Helper()
	script := `dpkg-deb -R "$1" x && sed -i '/^Version:/s/$/+next/' x/DEBIAN/control && dpkg-deb --root-owner-group -Zzstd -z3 -b x "$2"`
	cmd := exec.Command("bash", "-e", "-c", script, "bash", abs(t, from), to)
	cmd.Dir = t.TempDir()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("repack: %v\n%s", err, out)
	}
}

func abs(t *testing.T, path string) string {
	t.Helper()
	full, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return full
}
