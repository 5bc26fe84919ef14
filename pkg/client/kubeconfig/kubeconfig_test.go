package kubeconfig_test

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"podium/pkg/client/kubeconfig"
)

const sample = `
apiVersion: v1
kind: Config
current-context: main
clusters:
- name: c
  cluster:
    server: https://one:6443
    insecure-skip-tls-verify: true
    extensions:
    - name: podium.dev/servers
      extension: {servers: ["https://one:6443", "https://two:6443"]}
users:
- name: u
  user: {token: secret}
- name: plugin
  user:
    exec: {apiVersion: client.authentication.k8s.io/v1, command: get-token}
contexts:
- name: main
  context: {cluster: c, user: u, namespace: work}
- name: plain
  context: {cluster: c, user: ""}
- name: plugin
  context: {cluster: c, user: plugin}
- name: lost
  context: {cluster: gone, user: u}
`

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestClient(t *testing.T) {
	c, err := kubeconfig.Load(file(t, sample))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ context, namespace, token, err string }{
		{"", "work", "secret", ""},
		{"plain", "default", "", ""},
		{"plugin", "", "", "an exec credential plugin is not supported"},
		{"lost", "", "", `names cluster "gone", which does not exist`},
		{"nobody", "", "", `context "nobody" does not exist`},
	} {
		t.Run(test.context, func(t *testing.T) {
			cfg, ns, err := c.Client(test.context)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want %s", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			token := ""
			if cfg.Token != nil {
				token, err = cfg.Token()
			}
			if err != nil || token != test.token || ns != test.namespace {
				t.Errorf("token %q (%v), namespace %q", token, err, ns)
			}
			if diff := cmp.Diff([]string{"https://one:6443", "https://two:6443"}, cfg.Servers); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTheFirstFileCounts(t *testing.T) {
	first := file(t, strings.ReplaceAll(strings.ReplaceAll(sample, "secret", "other"), "current-context: main", ""))
	t.Setenv("KUBECONFIG", strings.Join([]string{first, "/does/not/exist", file(t, sample)}, string(os.PathListSeparator)))
	c, err := kubeconfig.Load()
	if err != nil {
		t.Fatal(err)
	}
	if c.CurrentContext != "main" || c.User("u").Token != "other" || len(c.Contexts) != 4 {
		t.Errorf("%+v", c)
	}
	if _, err := kubeconfig.Load("/does/not/exist"); err == nil {
		t.Error("a file that was named may be missing")
	}
}

func TestWriteAndRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "sub", "config")
	want := kubeconfig.New("x", kubeconfig.Cluster{Server: "https://h:1", CertificateAuthorityData: []byte("pem")}, kubeconfig.User{ClientKey: "key.pem"})
	if err := want.Write(path, 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	got, err := kubeconfig.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	want.Users[0].Value.ClientKey = filepath.Join(dir, "sub", "key.pem") // relative to the file
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("left behind: %v %v", entries, err)
	}
}

// A symbolic link stays, also one that refers to nothing yet.
func TestWriteFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	link, target := filepath.Join(dir, "link"), filepath.Join(dir, "target")
	if err := os.Symlink("target", link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"first", "second"} {
		if err := kubeconfig.New(name, kubeconfig.Cluster{}, kubeconfig.User{}).Write(link, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := kubeconfig.Load(target); err != nil || got.CurrentContext != name {
			t.Errorf("the target has %v, %v; want %s", got, err, name)
		}
		if to, err := os.Readlink(link); to != "target" {
			t.Errorf("the link is %q, %v", to, err)
		}
	}
	if err := os.Remove(target); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("link", target); err != nil {
		t.Fatal(err)
	}
	if err := kubeconfig.New("x", kubeconfig.Cluster{}, kubeconfig.User{}).Write(link, 0o600); err == nil {
		t.Error("links that refer to each other are no error")
	}
}

func TestATokenFileIsReadAgain(t *testing.T) {
	token := file(t, "one\n")
	synctest.Test(t, func(t *testing.T) {
		c := kubeconfig.New("x", kubeconfig.Cluster{Server: "https://h:1"}, kubeconfig.User{TokenFile: token})
		cfg, _, err := c.Client("")
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"one", "twotwo"} {
			if err := os.WriteFile(token, []byte(want), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			if got, err := cfg.Token(); got != want {
				t.Errorf("%q %v, want %s", got, err, want)
			}
		}
	})
}

func TestACertificateNeedsItsKey(t *testing.T) {
	c := kubeconfig.New("x", kubeconfig.Cluster{Server: "https://h:1"}, kubeconfig.User{ClientCertificateData: []byte("x")})
	if _, _, err := c.Client(""); err == nil {
		t.Error("no error")
	}
	plain := kubeconfig.New("x", kubeconfig.Cluster{Server: "https://h:1"}, kubeconfig.User{})
	cfg, _, err := plain.Client("")
	if err != nil || cfg.TLS.MinVersion != tls.VersionTLS12 {
		t.Errorf("%v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(sample))
	f.Add([]byte(`{"clusters":[{"name":"c","cluster":null}],"users":[{}],"contexts":[{"context":{"cluster":"c"}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := kubeconfig.Parse(data, "")
		if err != nil {
			return
		}
		for _, ctx := range c.Contexts {
			u := c.User(ctx.Value.User)
			if u != nil && (u.ClientCertificate != "" || u.ClientKey != "" || u.TokenFile != "") {
				continue // would read files
			}
			if cl := c.Cluster(ctx.Value.Cluster); cl != nil && cl.CertificateAuthority != "" {
				continue
			}
			_, _, _ = c.Client(ctx.Name) // any error will do
		}
	})
}

// Any property is refused, or can be set and unset without a panic.
func FuzzProperty(f *testing.F) {
	for _, path := range []string{"current-context", "clusters.a.b.server", "users.x.exec.provideClusterInfo", "users.x.auth-provider.config.k.l",
		"users.x.as-user-extra.k", "users.x.exec.env", "preferences.colors", "contexts", "users.x.client-key-data", "clusters..", "extensions"} {
		f.Add(path, "true")
	}
	f.Fuzz(func(t *testing.T, path, value string) {
		p, err := kubeconfig.ParseProperty(path)
		if err != nil {
			return
		}
		files := kubeconfig.FilesOf(filepath.Join(t.TempDir(), "config"))
		if files.Set(p, value, false) != nil {
			return // any error will do
		}
		if err := files.Unset(p); err != nil {
			t.Errorf("unset %s, which was set: %v", path, err)
		}
	})
}
