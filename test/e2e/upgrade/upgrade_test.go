package upgrade

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/scheme"
	"podium/test/e2e/blank"
	"podium/test/e2e/page"
	"podium/test/e2e/traffic"
)

// mostOutage is the maximum time without a successful write to the API.
const mostOutage = 5 * time.Second

// The pods tolerate the control planes: those of a machine that is upgraded must be able to move.
const web = `podium apply -n default -f - <<'END'
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      tolerations: [{key: node-role.kubernetes.io/control-plane, operator: Exists}]
      containers:
      - name: web
        image: localhost/podium/web:v1
        ports: [{name: http, containerPort: 8080}]
        readinessProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: http, nodePort: 30080}]}
END
podium rollout status -n default deployment/web --timeout 1m`

// cluster has three control planes and a worker.
type cluster struct {
	*testing.T
	planes   []*page.Operator
	worker   *page.Operator
	machines []*page.Operator // all, in the order of the page
	servers  []string
	admin    *kubeconfig.Config
}

// TestUpgrade: no request to a Service fails, no acknowledged write is lost, the API is never
// unavailable for long, and a broken package leaves no trace.
func TestUpgrade(t *testing.T) {
	image := blank.Image(t)
	next := blank.Package(t, "../../../_deb/*.deb", "make deb")
	previous := blank.Package(t, "../../../_deb/previous/*/*.deb", "hack/previous")
	c := newCluster(t, installed(t, image, previous), next)
	old := c.versions()

	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	w, l := &traffic.Writer{}, &traffic.Load{}
	api := c.client(c.servers...)
	running.Go(func() { w.Run(ctx, client.For[*corev1.ConfigMap](api).In("default")) })
	running.Go(func() { l.Run(ctx, "http://"+strings.TrimSpace(c.worker.Ask("hostname -i"))+":30080/") })

	c.worker.Refused("podium upgrade plan --package /root/podium_next.deb", "upgrade control planes first")
	c.rolledBack(broken(t, next), old)
	c.report("after the roll back", w)
	for i, m := range c.machines {
		c.upgrade(m, i == len(c.machines)-1)
		c.report(m.Name, w)
	}
	cancel()
	running.Wait()

	c.arrived(next, old)
	c.kubeletsHaveTheirOwnCA()
	c.nothingLost(w)
	requests, slowest, err := l.Result()
	if err != nil || requests < 500 {
		t.Errorf("%d requests to the Service; failed:\n%v", requests, err)
	}
	t.Logf("%d writes acknowledged, none lost; %d requests to the Service, the slowest took %v", len(w.Acked()), requests, slowest.Round(time.Millisecond))
}

// report logs and checks how long nothing could be written.
func (c *cluster) report(what string, w *traffic.Writer) {
	c.Helper()
	outage := w.Outage()
	c.Logf("%s: the longest time without an acknowledged write was %v", what, outage.Round(time.Millisecond))
	if outage > mostOutage {
		c.Errorf("%s: nothing could be written for %v: want less than %v", what, outage, mostOutage)
	}
	w.Reset()
}

// installed returns an image of a machine on which a package is installed.
func installed(t *testing.T, image, deb string) string {
	t.Helper()
	name := fmt.Sprintf("podium-upgrade-%d", os.Getpid())
	blank.Docker(t, "create", "--name", name, "--entrypoint", "dpkg", image, "-i", "/podium.deb")
	t.Cleanup(func() { blank.Docker(t, "rm", "--force", "--volumes", name) })
	blank.Docker(t, "cp", deb, name+":/podium.deb")
	blank.Docker(t, "start", "--attach", name)
	tag := "localhost/podium/upgrade-from:" + fmt.Sprint(os.Getpid())
	blank.Docker(t, "commit", name, tag)
	t.Cleanup(func() { blank.Docker(t, "image", "rm", "--force", tag) })
	return tag
}

// broken returns the package with a kubelet that exits at once.
func broken(t *testing.T, deb string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "broken.deb")
	script := `dpkg-deb -R "$1" x && cp /bin/false x/usr/bin/kubelet && dpkg-deb --root-owner-group -Znone -b x "$2" >/dev/null`
	full, err := filepath.Abs(deb)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "-e", "-c", script, "bash", full, to)
	cmd.Dir = t.TempDir()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("repack: %v\n%s", err, out)
	}
	return to
}

// newCluster follows the operator's page on machines with the old package.
func newCluster(t *testing.T, image, next string) *cluster {
	t.Helper()
	net := blank.Network(t)
	c := &cluster{T: t}
	for _, name := range []string{"first", "second", "third", "worker"} {
		m := blank.Boot(t, image, net, name)
		m.Put(next, "/root/podium_next.deb")
		m.Put("../../../_images/web.tar", "/root/web.tar")
		c.machines = append(c.machines, m)
	}
	c.planes, c.worker = c.machines[:3], c.machines[3]
	first := c.planes[0]
	first.Run("podium init")
	for _, m := range c.planes[1:] {
		m.Run(strings.TrimSpace(first.Ask("podium certs upload")))
	}
	c.worker.Run(strings.TrimSpace(first.Ask("podium token create --print-join-command")))
	for _, m := range c.machines {
		m.Ask("ctr -n k8s.io images import /root/web.tar")
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(first.Ask("cat /etc/podium/admin.conf")), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if c.admin, err = kubeconfig.Load(file); err != nil {
		t.Fatal(err)
	}
	for _, m := range c.planes {
		c.servers = append(c.servers, "https://"+strings.TrimSpace(m.Ask("hostname -i"))+":6443")
	}
	first.Run("export KUBECONFIG=/etc/podium/admin.conf\n" + web)
	return c
}

// client returns a client of these servers with the administrator's credentials.
func (c *cluster) client(servers ...string) *client.Client {
	c.Helper()
	cfg, _, err := c.admin.Client("")
	if err != nil {
		c.Fatal(err)
	}
	cfg.Servers = servers
	api, err := client.New(scheme.New(), cfg)
	if err != nil {
		c.Fatal(err)
	}
	return api
}

// versions returns the versions of the kubelets and the API servers, by node name.
func (c *cluster) versions() map[string]string {
	c.Helper()
	out := map[string]string{}
	nodes, err := client.For[*corev1.Node](c.client(c.servers...)).List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	for _, n := range nodes.Items {
		out[n.Name] = n.Status.NodeInfo.KubeletVersion
		if n.Spec.Unschedulable || len(n.Annotations["podium.dev/upgrading-to"]) > 0 {
			c.Errorf("%s takes no pods: %v", n.Name, n.Annotations)
		}
	}
	for i, server := range c.servers {
		body, _, err := c.client(server).Do(c.Context(), client.Request{Path: "/version"})
		if err != nil {
			c.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(body), `"gitVersion":`)
		out["the apiserver of "+c.planes[i].Name] = strings.Split(rest, `"`)[1]
	}
	return out
}

// rolledBack tries a broken package, and checks that everything is unchanged afterwards.
func (c *cluster) rolledBack(deb string, old map[string]string) {
	c.Helper()
	m := c.planes[2]
	m.Put(deb, "/root/broken.deb")
	const files = "sha256sum /usr/bin/kube* /usr/bin/etcd* /usr/bin/podium /usr/lib/systemd/system/kube* /etc/podium/*.yaml; dpkg-query -W podium"
	before := m.Ask(files)
	m.Refused("podium upgrade apply --package /root/broken.deb", "rolled back", "kubelet.service", "journalctl -u kubelet says")
	if after := m.Ask(files); after != before {
		c.Errorf("files differ after the roll back:\nbefore:\n%s\nafter:\n%s", before, after)
	}
	for who, version := range c.versions() {
		if version != old[who] {
			c.Errorf("%s is %s after the roll back: want %s", who, version, old[who])
		}
	}
	m.Ask("systemctl is-active etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy")
}

// upgrade runs the page's commands; if interrupted is set, the upgrade is killed half way first.
func (c *cluster) upgrade(m *page.Operator, interrupted bool) {
	c.Helper()
	if interrupted {
		m.Run(`podium upgrade apply --package /root/podium_next.deb >/root/said 2>&1 & pid=$!
			until grep -q 'new files installed' /root/said; do kill -0 $pid; sleep 0.05; done
			kill -9 $pid; cat /root/said`)
		c.planes[0].Refused("podium upgrade plan --package /root/podium_next.deb", "the upgrade of worker to", "was interrupted")
		if said := m.Run("podium upgrade apply"); !strings.Contains(said, "continuing the upgrade") {
			c.Error("it did not go on with what was begun")
		}
		return
	}
	commands, err := page.Read("../../../deploy/README.md")
	if err != nil {
		c.Fatal(err)
	}
	typed := 0
	for _, command := range commands {
		if command.On == "upgrade" {
			typed++
			m.Run("cd /root\n" + command.Script)
		}
	}
	if typed != 2 {
		c.Errorf("the page has %d commands for upgrades: want plan and apply", typed)
	}
}

// arrived checks that every daemon and the package manager have the new version, and that another
// upgrade has nothing to do.
func (c *cluster) arrived(deb string, old map[string]string) {
	c.Helper()
	out, err := exec.Command("dpkg-deb", "-f", deb, "Version").Output()
	if err != nil {
		c.Fatal(err)
	}
	want := strings.TrimSpace(c.machines[0].Ask(`podium version --client | sed 's/.*: //'`))
	for who, version := range c.versions() {
		if version != want || version == old[who] {
			c.Errorf("%s is %s, was %s: want %s", who, version, old[who], want)
		}
	}
	for _, m := range c.machines {
		if have := m.Ask("dpkg-query -W -f '${Status} ${Version}' podium"); have != "install ok installed "+strings.TrimSpace(string(out)) {
			c.Errorf("%s: the package manager has %q, not %s", m.Name, have, out)
		}
	}
	if said := c.planes[0].Run("podium upgrade apply --package /root/podium_next.deb"); !strings.Contains(said, "already") {
		c.Error("a second time it did something")
	}
	c.planes[0].Run("test -s /var/lib/podium/upgrade/before-*.backup; podium etcd list | grep -c ' healthy' | grep -qx 3")
}

// kubeletsHaveTheirOwnCA checks that the timer's daily service makes every API server trust
// kubelets by their own CA only, and that it can reach all of them.
func (c *cluster) kubeletsHaveTheirOwnCA() {
	c.Helper()
	for range 2 { // the first round moves the kubelets of control planes
		for _, m := range c.planes {
			m.Run("podium certs renew --expiring")
		}
	}
	for _, m := range c.planes {
		if n := m.Ask("grep -c 'BEGIN CERTIFICATE' /etc/podium/pki/kubelet-ca-bundle.pem"); strings.TrimSpace(n) != "1" {
			c.Errorf("%s: the API server trusts kubelets by %s CAs", m.Name, n)
		}
	}
	for _, server := range c.servers {
		for _, m := range c.machines {
			path := "/api/v1/nodes/" + m.Name + "/proxy/healthz"
			if _, _, err := c.client(server).Do(c.Context(), client.Request{Path: path}); err != nil {
				c.Errorf("%s does not reach the kubelet of %s: %v", server, m.Name, err)
			}
		}
	}
}

// nothingLost checks all acknowledged writes on all servers.
func (c *cluster) nothingLost(w *traffic.Writer) {
	c.Helper()
	if n := len(w.Acked()); n < 500 {
		c.Errorf("only %d writes were acknowledged", n)
	}
	for _, server := range c.servers {
		missing, err := w.Missing(c.Context(), client.For[*corev1.ConfigMap](c.client(server)).In("default"))
		if err != nil || len(missing) > 0 {
			c.Errorf("%s does not know what was acknowledged: %v, %v", server, missing, err)
		}
	}
}
