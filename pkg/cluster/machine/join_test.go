package machine

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"podium/pkg/client/bootstraptoken"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/cluster/containerd"
	"podium/pkg/cluster/machine/join"
	"podium/pkg/cluster/pki"
)

// fakeCluster is a fake apiserver for joining machines.
type fakeCluster struct {
	*httptest.Server
	t      *testing.T
	token  bootstraptoken.Token
	ca     []byte
	nodes  map[string]*corev1.Node
	objs   map[string]runtime.Object // by path
	skewed time.Duration             // by how much its clock is ahead
	now    func() time.Time
}

func newCluster(t *testing.T, now func() time.Time) *fakeCluster {
	t.Helper()
	dir := t.TempDir()
	c := &fakeCluster{t: t, now: now, token: bootstraptoken.Token{ID: "abcdef", Secret: "0123456789abcdef"}, nodes: map[string]*corev1.Node{}}
	ca, err := pki.OpenAuthority(dir, "ca", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.Issue(dir, "server", pki.Identity{Name: "kube-apiserver", Hosts: []string{"127.0.0.1"}}); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(pki.Files(dir, "server"))
	if err != nil {
		t.Fatal(err)
	}
	c.Server = httptest.NewUnstartedServer(c)
	c.Server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	c.StartTLS()
	t.Cleanup(c.Close)
	info := clusterInfo(t, dir, c.URL, c.token)
	cluster, err := join.ParseInfo(info.Data[bootstraptoken.InfoKey])
	if err != nil {
		t.Fatal(err)
	}
	c.ca = cluster.CertificateAuthorityData
	c.objs = map[string]runtime.Object{
		"/api/v1/namespaces/kube-public/configmaps/cluster-info": info,
		"/api/v1/namespaces/kube-system/configmaps/podium-config": &corev1.ConfigMap{Data: map[string]string{setupKey: "clusterName: blue\ncontrolPlaneEndpoint: " +
			strings.TrimPrefix(c.URL, "https://") + "\npodSubnet: 10.1.0.0/16\nserviceSubnet: 10.2.0.0/16\ndnsDomain: blue.local\npodNetwork: vxlan\n"}},
		"/api/v1/namespaces/kube-system/secrets/kube-proxy-token": &corev1.Secret{Data: map[string][]byte{corev1.ServiceAccountTokenKey: []byte("proxy's token")}},
	}
	return c
}

func (c *fakeCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Date", c.now().Add(c.skewed).UTC().Format(http.TimeFormat))
	w.Header().Set("Content-Type", "application/json")
	obj := c.objs[r.URL.Path]
	open := strings.Contains(r.URL.Path, "kube-public")
	if name, ok := strings.CutPrefix(r.URL.Path, "/api/v1/nodes/"); ok && c.nodes[name] != nil {
		obj = c.nodes[name]
	}
	switch auth := r.Header.Get("Authorization"); {
	case !open && auth != "Bearer "+c.token.String() && auth != "Bearer node's token":
		status(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized)
	case obj == nil:
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	default:
		obj.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(strings.TrimPrefix(kindOf(obj), "*v1.")))
		if err := json.NewEncoder(w).Encode(obj); err != nil {
			c.t.Error(err)
		}
	}
}

func kindOf(obj runtime.Object) string {
	switch obj.(type) {
	case *corev1.ConfigMap:
		return "ConfigMap"
	case *corev1.Secret:
		return "Secret"
	}
	return "Node"
}

func status(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: reason, Code: int32(code)})
}

// bringUp does what the kubelet does after its start: it gets a certificate and
// registers the node.
func (c *fakeCluster) bringUp(cfg Config, name string) func(string) {
	return func(line string) {
		if !strings.HasPrefix(line, "systemctl start ") || !strings.Contains(line, "kubelet.service") {
			return
		}
		cluster := kubeconfig.Cluster{Server: c.URL, CertificateAuthorityData: c.ca}
		if err := kubeconfig.New("x", cluster, kubeconfig.User{Token: "node's token"}).Write(cfg.at(kubeletConf), 0o600); err != nil {
			c.t.Error(err)
		}
		c.certify(cfg, "kubelet-client-current")
		c.nodes[name] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		}}
	}
}

// certify writes a client certificate for the kubelet.
func (c *fakeCluster) certify(cfg Config, name string) {
	ca, err := pki.OpenAuthority(c.t.TempDir(), "ca", cfg.Now)
	if err != nil {
		c.t.Fatal(err)
	}
	dir := cfg.at(kubeletCerts)
	if err := ca.Issue(dir, name, pki.Identity{Name: "system:node:" + name}); err != nil {
		c.t.Fatal(err)
	}
	certFile, _ := pki.Files(dir, name)
	if err := os.Rename(certFile, strings.TrimSuffix(certFile, ".crt")+".pem"); err != nil {
		c.t.Fatal(err)
	}
}

// TestAMachineThatWasOffForTooLongJoinsAgain checks that the kubelet uses the
// token again only if its certificate has expired.
func TestAMachineThatWasOffForTooLongJoinsAgain(t *testing.T) {
	host, cfg := newHost(t)
	now := cfg.Now()
	cfg.Now = func() time.Time { return now }
	cluster := newCluster(t, cfg.Now)
	hash, err := join.HashCA(cluster.ca)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Endpoint, cfg.Wait, host.have = strings.TrimPrefix(cluster.URL, "https://"), 5*time.Second, containerd.SandboxImage+"\n"
	tokens := 0
	up := cluster.bringUp(cfg, "alpha")
	host.onRun = func(line string) {
		up(line)
		if _, err := os.Stat(cfg.at(bootstrapConf)); err == nil && strings.HasPrefix(line, "systemctl start ") && strings.Contains(line, "kubelet") {
			tokens++
		}
	}
	for i, row := range []struct {
		later time.Duration
		want  int // number of times that the kubelet was started with a token
	}{{0, 1}, {100 * 24 * time.Hour, 1}, {500 * 24 * time.Hour, 2}} {
		now = now.Add(row.later)
		if err := Join(t.Context(), cfg, host, JoinOptions{Token: cluster.token.String(), Hashes: []string{hash}}); err != nil {
			t.Fatal(err)
		}
		if tokens != row.want {
			t.Errorf("join %d: the kubelet was started %d times with a token, want %d", i+1, tokens, row.want)
		}
		if _, err := os.Stat(cfg.at(bootstrapConf)); err == nil {
			t.Errorf("join %d: the token is left behind", i+1)
		}
	}
}

// TestJoin checks that a machine joins the right cluster, or reports what is
// wrong and changes nothing.
func TestJoin(t *testing.T) {
	for name, row := range map[string]struct {
		reason string
		spoil  func(c *fakeCluster, h *fakeHost, cfg *Config, o *JoinOptions)
		want   []string // parts of the error; empty: the machine joins
	}{
		"Joins": {reason: "all is well", spoil: func(*fakeCluster, *fakeHost, *Config, *JoinOptions) {}},
		"WrongHash": {
			reason: "another cluster",
			spoil: func(_ *fakeCluster, _ *fakeHost, _ *Config, o *JoinOptions) {
				o.Hashes = []string{"sha256:" + strings.Repeat("0", 64)}
			},
			want: []string{"this is another cluster"},
		},
		"NoHash": {
			reason: "no other server may impersonate the control plane",
			spoil:  func(_ *fakeCluster, _ *fakeHost, _ *Config, o *JoinOptions) { o.Hashes = nil },
			want:   []string{"set --discovery-token-ca-cert-hash"},
		},
		"WrongSecret": {
			reason: "mistyped",
			spoil:  func(_ *fakeCluster, _ *fakeHost, _ *Config, o *JoinOptions) { o.Token = "abcdef.fedcba9876543210" },
			want:   []string{"the secret of token abcdef is wrong"},
		},
		"EndedToken": {
			reason: "it is still signed for, but lets nobody in",
			spoil:  func(c *fakeCluster, _ *fakeHost, _ *Config, _ *JoinOptions) { c.token.Secret = "fedcba9876543210" },
			want:   []string{"the token abcdef has ended", "podium token create --print-join-command"},
		},
		"BadEndpoint": {
			reason: "a URL instead of HOST:PORT",
			spoil:  func(_ *fakeCluster, _ *fakeHost, cfg *Config, _ *JoinOptions) { cfg.Endpoint = "https://x" },
			want:   []string{"is not HOST:PORT"},
		},
		"Nobody": {
			reason: "nothing listens there",
			spoil:  func(c *fakeCluster, _ *fakeHost, _ *Config, _ *JoinOptions) { c.Close() },
			want:   []string{"connection refused", "reachable from here?"},
		},
		"ClocksApart": {
			reason: "certificates would not be good yet",
			spoil:  func(c *fakeCluster, _ *fakeHost, _ *Config, _ *JoinOptions) { c.skewed = time.Hour },
			want:   []string{"1h0m0s apart"},
		},
		"NameClash": {
			reason: "two kubelets of one name would fight",
			spoil: func(c *fakeCluster, _ *fakeHost, _ *Config, _ *JoinOptions) {
				c.nodes["alpha"] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "alpha"}}
			},
			want: []string{"has a node alpha already (it is not Ready)", "--node-name", "podium delete node alpha"},
		},
		"PortInUse": {
			reason: "another kubelet runs here",
			spoil:  func(_ *fakeCluster, h *fakeHost, _ *Config, _ *JoinOptions) { h.taken = []int{10250} },
			want:   []string{"port 10250 (kubelet)"},
		},
		"FullDisk": {
			reason: "images need room",
			spoil:  func(_ *fakeCluster, h *fakeHost, _ *Config, _ *JoinOptions) { h.free = 1 << 20 },
			want:   []string{"[disk]"},
		},
		"NotSetUpByUs": {
			reason: "a cluster without our settings",
			spoil: func(c *fakeCluster, _ *fakeHost, _ *Config, _ *JoinOptions) {
				delete(c.objs, "/api/v1/namespaces/kube-system/configmaps/podium-config")
			},
			want: []string{"read how the cluster is set up"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			host, cfg := newHost(t)
			cluster := newCluster(t, cfg.Now)
			hash, err := join.HashCA(cluster.ca)
			if err != nil {
				t.Fatal(err)
			}
			cfg.Endpoint, cfg.Wait = strings.TrimPrefix(cluster.URL, "https://"), 5*time.Second
			o := JoinOptions{Token: cluster.token.String(), Hashes: []string{hash}}
			host.have = containerd.SandboxImage + "\n"
			host.onRun = cluster.bringUp(cfg, "alpha")
			row.spoil(cluster, host, &cfg, &o)
			before := tree(t, cfg.Root)
			err = Join(t.Context(), cfg, host, o)
			if len(row.want) == 0 {
				if err != nil {
					t.Fatal(err)
				}
				joined(t, host, cfg, cluster)
				return
			}
			if err == nil {
				t.Fatalf("%s: it joined", row.reason)
			}
			for _, part := range row.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: %q does not say %q", row.reason, err, part)
				}
			}
			if strings.Contains(err.Error(), "0123456789abcdef") {
				t.Error("the complaint shows the token's secret")
			}
			if diff := cmp.Diff(before, tree(t, cfg.Root)); diff != "" {
				t.Errorf("files changed:\n%s", diff)
			}
			if slices.ContainsFunc(host.ran, func(line string) bool { return strings.HasPrefix(line, "systemctl start") }) {
				t.Errorf("units were started: %v", host.ran)
			}
		})
	}
}

// joined checks the files of a machine that has joined, and that a second join
// changes nothing.
func joined(t *testing.T, host *fakeHost, cfg Config, c *fakeCluster) {
	t.Helper()
	files := tree(t, cfg.at(configDir))
	if files["/pki/ca.crt"] != string(c.ca) || files["/kube-proxy.token"] != "proxy's token" {
		t.Error("the authority or kube-proxy's token is not there")
	}
	for file, parts := range map[string][]string{
		"/kubelet.yaml":    {"bootstrapKubeconfig: /etc/podium/bootstrap-kubelet.conf", "rotateServerCertificates: true", "10.2.0.10", "blue.local"},
		"/kube-proxy.yaml": {"clusterCidr: 10.1.0.0/16", "podNetwork: vxlan"},
	} {
		for _, part := range parts {
			if !strings.Contains(files[file], part) {
				t.Errorf("%s does not say %q:\n%s", file, part, files[file])
			}
		}
	}
	for name, content := range files {
		if strings.Contains(content, c.token.Secret) {
			t.Errorf("the token is still in %s", name)
		}
		if strings.Contains(name, ".key") {
			t.Errorf("a worker has the key %s", name)
		}
	}
	if info, err := os.Stat(cfg.at(proxyToken)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("kube-proxy's token: %v, %v", info, err)
	}
	host.ran, host.onRun = nil, nil
	hash, err := join.HashCA(c.ca)
	if err != nil {
		t.Fatal(err)
	}
	if err := Join(t.Context(), cfg, host, JoinOptions{Token: c.token.String(), Hashes: []string{hash}}); err != nil {
		t.Fatalf("again: %v", err)
	}
	if slices.ContainsFunc(host.ran, func(line string) bool { return strings.HasPrefix(line, "systemctl restart") }) {
		t.Errorf("joining again restarts units: %v", host.ran)
	}
}
