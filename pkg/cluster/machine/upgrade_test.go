package machine

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/cluster/machine/etcd"
	"podium/pkg/cluster/machine/upgrade"
	"podium/pkg/version"
)

const before = "v1.36.5+podium"

// killed is the panic value that simulates the process's death.
type killed struct{}

// ground is a fake machine and cluster for upgrades. A daemon runs the content
// that its file had when it was started; one whose file contains "broken"
// fails.
type ground struct {
	*fakeHost
	cfg         Config
	node        *corev1.Node
	running     map[string]string
	bundle      map[string]string // path → content
	done        []string          // the calls of the host and the cluster
	killAt      int               // number of the call at which the process dies; 0: never
	calls       int
	broken      func(call string) error
	wanted      string // a package that apt would install in addition
	unmovedNode string // result of unmoved
	weak        int    // restart counter of a daemon that became ready
}

func newGround(t *testing.T, plane bool) *ground {
	t.Helper()
	host, cfg := newHost(t)
	cfg.Out = io.Discard
	cfg.Runtime = "unix:///run/crio.sock" // other tests cover containerd
	g := &ground{fakeHost: host, cfg: cfg, running: map[string]string{}, bundle: map[string]string{
		"/usr/lib/systemd/system/kubelet.service": "new unit", "/usr/share/podium/images/new.tar": "image", "/usr/bin/podium": "new podium", "/etc/default/kubelet": "new default", "/usr/share/man/man1/podium.1.gz": "manual",
	}}
	host.onRun = nil
	units := nodeUnits
	if plane {
		units = uncloudedUnits()
	}
	for _, name := range uncloudedUnits() {
		g.bundle["/usr/bin/"+name] = "new " + name
	}
	m, err := newMachine(cfg, host)
	if err != nil {
		t.Fatal(err)
	}
	write(t, cfg.at("/usr/lib/systemd/system/kubelet.service"), "old unit")
	write(t, cfg.at("/usr/bin/podium"), "old podium")
	write(t, cfg.at("/etc/default/kubelet"), "the operator's")
	for _, name := range units {
		write(t, cfg.at("/usr/bin/"+name), "old "+name)
		write(t, cfg.at(configDir, name+".yaml"), "old settings")
		g.running[name] = "old " + name
		host.active = append(host.active, name+".service")
	}
	if err := m.saveConfig(); err != nil {
		t.Fatal(err)
	}
	if plane {
		if err := m.identities(); err != nil {
			t.Fatal(err)
		}
	}
	g.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "alpha", Labels: map[string]string{}}}
	if plane {
		g.node.Labels[controlPlaneLabel] = ""
	}
	g.node.Status.NodeInfo.KubeletVersion = before
	g.node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return g
}

// call records a call and dies at the killAt-th.
func (g *ground) call(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	g.calls++
	g.done = append(g.done, text)
	if g.calls == g.killAt {
		panic(killed{})
	}
	if g.broken != nil {
		return g.broken(text)
	}
	return nil
}

func (g *ground) Run(_ context.Context, program string, args ...string) (string, error) {
	line := strings.ReplaceAll(program+" "+strings.Join(args, " "), g.cfg.Root, "")
	if err := g.call("%s", line); err != nil {
		return "", err
	}
	last := strings.TrimSuffix(args[len(args)-1], ".service")
	switch {
	case program == "dpkg-deb":
		return "", g.unpack(args[2])
	case strings.HasPrefix(line, "systemctl stop "):
		delete(g.running, last)
		return "", nil
	case strings.HasPrefix(line, "systemctl restart "):
		return "", g.restart(last)
	case strings.HasPrefix(line, "systemctl show "):
		if g.running[last] != "weak" {
			return "0\n", nil
		}
		g.weak++
		return fmt.Sprintln(g.weak), nil
	case strings.HasPrefix(line, "systemctl is-active "):
		return "active\n", nil
	case program == "apt-get":
		return "Reading package lists...\nInst podium (1.36.6 local-deb)\n" + g.wanted, nil
	case program == "journalctl":
		return "its last words\n", nil
	}
	return "", nil
}

func (g *ground) unpack(dir string) error {
	for path, content := range g.bundle {
		file := filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o644)); err != nil {
			return err
		}
	}
	return nil
}

func (g *ground) restart(name string) error {
	data, err := os.ReadFile(g.cfg.at("/usr/bin", name))
	if err != nil {
		return err
	}
	delete(g.running, name)
	if string(data) == "broken" {
		return errors.New("the control process exited with error code")
	}
	g.running[name] = string(data)
	if name == "kubelet" {
		g.node.Status.NodeInfo.KubeletVersion = before
		if strings.HasPrefix(string(data), "new") {
			g.node.Status.NodeInfo.KubeletVersion = version.Podium
		}
	}
	return nil
}

func (g *ground) nodes(context.Context) ([]*corev1.Node, error) {
	return []*corev1.Node{g.node.DeepCopy()}, g.call("list nodes")
}
func (g *ground) pods(context.Context) ([]*corev1.Pod, error) { return nil, g.call("list pods") }
func (g *ground) servers(context.Context) ([]upgrade.Server, error) {
	own := before
	if g.running["kube-apiserver"] != "old kube-apiserver" {
		own = version.Podium
	}
	return []upgrade.Server{{Address: "https://192.0.2.10:6443", Version: own}}, g.call("ask servers")
}
func (g *ground) members(context.Context) ([]etcd.Member, error) {
	return []etcd.Member{{Name: "alpha", Role: "leader", State: "healthy"}}, g.call("ask etcd")
}
func (g *ground) free(context.Context, func(string)) error { return g.call("is it free") }
func (g *ground) turn(ctx context.Context, do func(context.Context) error) error {
	return errors.Join(g.call("take the turn"), do(ctx))
}
func (g *ground) cordon(_ context.Context, cordoned bool, note string) error {
	if err := g.call("cordon %t %q", cordoned, note); err != nil {
		return err
	}
	g.node.Spec.Unschedulable = cordoned
	g.node.Annotations = nil
	if note != "" {
		g.node.Annotations = map[string]string{upgrade.Note: note}
	}
	return nil
}
func (g *ground) drain(context.Context, func(string)) error     { return g.call("drain") }
func (g *ground) moveLeader(context.Context) error              { return g.call("hand etcd's lead over") }
func (g *ground) settings(context.Context, func(string)) error  { return g.call("settings") }
func (g *ground) apiserver(context.Context, func(string)) error { return g.call("ask for readiness") }
func (g *ground) unmoved(context.Context, []*corev1.Node, *x509.Certificate) string {
	return g.unmovedNode
}
func (g *ground) backup(_ context.Context, file string) error {
	return g.call("backup %s", strings.TrimPrefix(file, g.cfg.Root))
}

// apply runs ApplyUpgrade once; wasKilled reports whether the process died.
func (g *ground) apply(t *testing.T, o UpgradeOptions) (wasKilled bool, err error) {
	t.Helper()
	defer func() {
		if e := recover(); e != nil {
			if _, ok := e.(killed); !ok {
				panic(e)
			}
			wasKilled = true
		}
	}()
	return false, applyUpgrade(t.Context(), g.cfg, g, o, func(*machine, bool) (fleet, error) { return g, nil })
}

func (g *ground) options(t *testing.T) UpgradeOptions {
	t.Helper()
	file := filepath.Join(g.cfg.Root, "root", "podium.deb")
	write(t, file, fmt.Sprint(g.bundle))
	return UpgradeOptions{Package: file, Drain: true}
}

// state returns everything that an upgrade changes and that must be right at
// its end.
func (g *ground) state(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, dir := range []string{"/usr", "/etc/default"} {
		for path, content := range tree(t, g.cfg.at(dir)) {
			out[dir+path] = content
		}
	}
	for _, unit := range uncloudedUnits() {
		if data, err := os.ReadFile(g.cfg.at(configDir, unit+".yaml")); err == nil {
			out["settings of "+unit] = string(data)
		}
	}
	for unit, content := range g.running {
		out["running "+unit] = content
	}
	out["node"] = fmt.Sprint(g.node.Spec.Unschedulable, g.node.Annotations, g.node.Status.NodeInfo.KubeletVersion)
	return out
}

// uncloudedUnits returns the units of a machine without a cloud provider, as in
// these tests.
func uncloudedUnits() []string {
	return slices.DeleteFunc(allUnits(), func(name string) bool { return name == cloudManager })
}

// TestUpgradeOfAControlPlane checks the steps of an upgrade and their order.
func TestUpgradeOfAControlPlane(t *testing.T) {
	g := newGround(t, true)
	o := g.options(t)
	if _, err := g.apply(t, o); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"dpkg-deb -x /root/podium.deb /var/lib/podium/upgrade/new",
		"is it free", "take the turn",
		"apt-get install --simulate --no-install-recommends /root/podium.deb", "list nodes", "ask servers", "list pods", "ask etcd",
		"backup /var/lib/podium/upgrade/before-20260301-120000.backup",
		`cordon true "` + version.Podium + `"`, "drain",
		"systemctl daemon-reload",
		"systemctl enable --quiet etcd.service kube-apiserver.service kube-controller-manager.service kube-scheduler.service kubelet.service kube-proxy.service",
	}
	for _, unit := range uncloudedUnits() {
		if unit == "etcd" {
			want = append(want, "hand etcd's lead over", "systemctl stop kube-apiserver.service")
		}
		want = append(want, "systemctl restart "+unit+".service", "systemctl show -p NRestarts --value "+unit+".service")
		if unit == "kube-apiserver" {
			want = append(want, "ask for readiness")
		}
	}
	want = append(want, "list nodes", "ask etcd")
	for _, unit := range uncloudedUnits() {
		want = append(want, "systemctl is-active "+unit+".service", "systemctl show -p NRestarts --value "+unit+".service")
	}
	want = append(want, `cordon false ""`, "systemctl cat podium-certs.timer", "systemctl enable --quiet --now podium-certs.timer", "settings",
		"env PODIUM_UPGRADE=1 DEBIAN_FRONTEND=noninteractive dpkg --force-confdef --force-confold --install /root/podium.deb")
	if diff := cmp.Diff(want, g.done); diff != "" {
		t.Errorf("what was done (-want +got):\n%s", diff)
	}
	got := g.state(t)
	for _, unit := range uncloudedUnits() {
		if got["running "+unit] != "new "+unit || got["settings of "+unit] == "old settings" {
			t.Errorf("%s runs %q with %q", unit, got["running "+unit], got["settings of "+unit])
		}
	}
	if got["/etc/default/kubelet"] != "the operator's" {
		t.Errorf("the operator's settings became %q", got["/etc/default/kubelet"])
	}
	g.done = nil
	if _, err := g.apply(t, o); err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(g.done, func(c string) bool { return strings.Contains(c, "restart") || strings.Contains(c, "cordon") }) {
		t.Errorf("a second time it did %q", g.done)
	}
}

// question reports whether a call only reads.
func question(call string) bool {
	return strings.HasPrefix(call, "systemctl is-active") || strings.HasPrefix(call, "systemctl show") || strings.HasPrefix(call, "list") || strings.HasPrefix(call, "ask")
}

// An upgrade that is killed at any step reaches the same state when it is
// continued.
func TestAnInterruptedUpgradeIsGoneOnWith(t *testing.T) {
	for _, plane := range []bool{true, false} {
		t.Run(fmt.Sprintf("plane=%t", plane), func(t *testing.T) {
			whole := newGround(t, plane)
			if _, err := whole.apply(t, whole.options(t)); err != nil {
				t.Fatal(err)
			}
			want := whole.state(t)
			for n := range whole.calls {
				if question(whole.done[n]) {
					continue
				}
				g := newGround(t, plane)
				g.killAt = n + 1
				o := g.options(t)
				if k, err := g.apply(t, o); !k {
					t.Fatalf("%q was not its last: %v", whole.done[n], err)
				}
				if begun, err := upgrade.ReadJournal(g.cfg.at(journalFile)); err == nil && begun.Phase.Begun() {
					o.Package = "" // not needed to continue
				}
				if _, err := g.apply(t, o); err != nil {
					t.Errorf("killed at %q, then: %v", whole.done[n], err)
				}
				if diff := cmp.Diff(want, g.state(t)); diff != "" {
					t.Errorf("killed at %q (-want +got):\n%s", whole.done[n], diff)
				}
			}
		})
	}
}

// If a daemon does not come up, everything is rolled back, even if the
// roll-back is interrupted.
func TestABrokenUpgradeIsRolledBack(t *testing.T) {
	for _, unit := range []string{"etcd", "kube-apiserver", "kubelet", "kube-proxy"} {
		t.Run(unit, func(t *testing.T) {
			broken := func() *ground {
				g := newGround(t, true)
				g.node.Spec.Unschedulable = unit == "etcd" // an operator's cordon stays
				g.bundle["/usr/bin/"+unit] = "broken"
				return g
			}
			g := broken()
			want := g.state(t)
			_, err := g.apply(t, g.options(t))
			if err == nil || !strings.Contains(err.Error(), "rolled back") || !strings.Contains(err.Error(), "its last words") || !strings.Contains(err.Error(), unit+" restarted") {
				t.Fatalf("it says: %v", err)
			}
			if diff := cmp.Diff(want, g.state(t)); diff != "" {
				t.Errorf("after it (-want +got):\n%s", diff)
			}
			for n := range g.calls {
				if question(g.done[n]) || unit != "kubelet" || n < slices.Index(g.done, "systemctl restart kubelet.service") {
					continue // TestAnInterruptedUpgradeIsGoneOnWith covers the way there
				}
				k := broken()
				k.killAt = n + 1
				o := k.options(t)
				if was, _ := k.apply(t, o); !was {
					t.Fatalf("%q was not its last", g.done[n])
				}
				for range 2 { // a continued roll-back returns an error, and leaves it to us to try again
					if _, err := k.apply(t, o); err == nil {
						t.Errorf("killed at %q, then it worked", g.done[n])
					}
				}
				if diff := cmp.Diff(want, k.state(t)); diff != "" {
					t.Errorf("killed at %q (-want +got):\n%s", g.done[n], diff)
				}
			}
		})
	}
}

// A daemon that becomes ready and then exits causes a roll-back.
func TestADaemonThatDoesNotStay(t *testing.T) {
	g := newGround(t, true)
	g.bundle["/usr/bin/kube-scheduler"] = "weak"
	want := g.state(t)
	_, err := g.apply(t, g.options(t))
	if err == nil || !strings.Contains(err.Error(), "kube-scheduler became ready and exited again") || !strings.Contains(err.Error(), "rolled back") {
		t.Errorf("it says %v", err)
	}
	if diff := cmp.Diff(want, g.state(t)); diff != "" {
		t.Errorf("after it (-want +got):\n%s", diff)
	}
}

// A failure before a file is changed leaves the node as it was; a failure after
// the daemons work is not rolled back.
func TestWhatFailsAtTheEdges(t *testing.T) {
	for name, row := range map[string]struct {
		fails, says string
		runs        string
		phase       upgrade.Phase
	}{
		"Drain":    {"drain", "nothing was changed", "old kubelet", upgrade.Undone},
		"Backup":   {"backup", "backup", "old kubelet", ""},
		"Register": {"env ", "the daemons run " + version.Podium, "new kubelet", upgrade.Finishing},
		"Reload":   {"systemctl daemon-reload", "the roll-back to", "old kubelet", upgrade.Undoing},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGround(t, true)
			g.broken = func(call string) error {
				if strings.HasPrefix(call, row.fails) {
					return errors.New("no")
				}
				return nil
			}
			_, err := g.apply(t, g.options(t))
			if err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("it says %v, not %q", err, row.says)
			}
			j, err := upgrade.ReadJournal(g.cfg.at(journalFile))
			if err != nil || j.Phase != row.phase || g.running["kubelet"] != row.runs {
				t.Errorf("it is at %q and runs %q, %v", j.Phase, g.running["kubelet"], err)
			}
			g.broken = nil
			_, err = g.apply(t, g.options(t))
			if name == "Reload" {
				_, err = g.apply(t, g.options(t))
			}
			if err != nil || g.running["kubelet"] != "new kubelet" || g.node.Spec.Unschedulable {
				t.Errorf("then it says %v and runs %q", err, g.running["kubelet"])
			}
		})
	}
}

// A package with a missing dependency is not installed in part.
func TestWhatThePackageNeeds(t *testing.T) {
	g := newGround(t, false)
	g.wanted = "Inst conntrack (1.4)\nConf conntrack (1.4)\n"
	if _, err := g.apply(t, g.options(t)); err == nil || !strings.Contains(err.Error(), "[package] the package needs conntrack") {
		t.Errorf("it says %v", err)
	}
	if slices.ContainsFunc(g.done, func(c string) bool { return strings.Contains(c, "cordon") }) {
		t.Errorf("it did %q", g.done)
	}
}

// An interrupted upgrade is continued before another package is accepted.
func TestAnotherPackageWaits(t *testing.T) {
	g := newGround(t, false)
	g.broken = func(call string) error {
		if strings.HasPrefix(call, "env ") {
			return errors.New("no")
		}
		return nil
	}
	if _, err := g.apply(t, g.options(t)); err == nil {
		t.Fatal("it worked")
	}
	g.broken = nil
	g.bundle["/usr/bin/kubelet"] = "another kubelet"
	if _, err := g.apply(t, g.options(t)); err == nil || !strings.Contains(err.Error(), "without --package") {
		t.Errorf("it says %v", err)
	}
	if _, err := g.apply(t, UpgradeOptions{}); err != nil || g.running["kubelet"] != "new kubelet" {
		t.Errorf("it says %v, and runs %q", err, g.running["kubelet"])
	}
	if _, err := g.apply(t, UpgradeOptions{}); err == nil || !strings.Contains(err.Error(), "--package") {
		t.Errorf("with nothing to do it says %v", err)
	}
}

// Findings are errors; ignored ones and warnings are only printed.
func TestRefuse(t *testing.T) {
	g := newGround(t, false)
	m, err := newMachine(g.cfg, g)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	m.Out = &out
	u := &upgrading{machine: m}
	s := &upgrade.Survey{Node: "alpha", To: version.Podium, Nodes: []*corev1.Node{g.node}, Drained: true}
	g.node.Status.Conditions[0].Status = corev1.ConditionUnknown
	s.Pods.Lost = []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"}}}
	err = u.refuse(s)
	if err == nil || !strings.Contains(err.Error(), "[nodes]") || !strings.Contains(err.Error(), "[pods]") || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("it says %v", err)
	}
	u.Ignore = []string{"pods", "nodes"}
	if err := u.validate(); err != nil {
		t.Error(err)
	}
	if err := u.refuse(s); err != nil || strings.Count(out.String(), "warning") != 2 {
		t.Errorf("it says %v and\n%s", err, out.String())
	}
	if err := (UpgradeOptions{Ignore: []string{"everything"}}).validate(); err == nil || !strings.Contains(err.Error(), "there are all, certificates") {
		t.Errorf("of a check that is none it says %v", err)
	}
}
