package apiserver_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver"
	"podium/pkg/apiserver/registry"
	"podium/pkg/cluster/pki"
	"podium/test/freeport"
)

// realEtcd starts etcd on a loopback port and returns its address.
func realEtcd(t *testing.T) string {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir, cfg.LogLevel, cfg.LogOutputs = t.TempDir(), "error", []string{os.DevNull}
	cfg.UnsafeNoFsync = true
	anywhere := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.ListenClientUrls, cfg.ListenPeerUrls = anywhere, anywhere
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	<-e.Server.ReadyNotify()
	return "http://" + e.Clients[0].Addr().String()
}

// runCommand runs kube-apiserver with args until the test ends, and waits
// until it is ready.
func runCommand(t *testing.T, c *http.Client, base string, args []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	cmd := apiserver.NewCommand()
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetErr(io.Discard)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	for {
		if r, err := c.Get(base + "/readyz"); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case err := <-done:
			done <- nil
			t.Fatalf("the server ended with %v", err)
		case <-time.After(20 * time.Millisecond): // the command has no other signal for readiness
		}
	}
}

// The command line of controller-runtime's envtest starts a server, with the
// certificates that envtest writes to --cert-dir, and without them.
func TestTheCommandLineOfEnvtest(t *testing.T) {
	for name, prepared := range map[string]bool{"with a certificate": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			clients, err := pki.OpenAuthority(dir, "client-cert-auth-ca", time.Now)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := pki.OpenAuthority(dir, "sa-signer", time.Now); err != nil { // envtest passes a certificate file as the public key
				t.Fatal(err)
			}
			if prepared {
				writeServing(t, dir)
			}
			port := freeport.TCP(t)
			base := fmt.Sprintf("https://127.0.0.1:%d", port)
			c := adminOf(t, dir, clients)
			runCommand(t, c, base, []string{
				"--allow-privileged=true", "--authorization-mode=RBAC", "--bind-address=127.0.0.1", "--cert-dir=" + dir,
				"--client-ca-file=" + filepath.Join(dir, "client-cert-auth-ca.crt"), "--disable-admission-plugins=ServiceAccount",
				"--etcd-servers=" + realEtcd(t), fmt.Sprintf("--secure-port=%d", port), "--service-account-issuer=" + base + "/",
				"--service-account-key-file=" + filepath.Join(dir, "sa-signer.crt"), "--service-account-signing-key-file=" + filepath.Join(dir, "sa-signer.key"),
				"--service-cluster-ip-range=10.0.0.0/24", "--advertise-address=192.0.2.1",
			})
			r, err := c.Post(base+"/api/v1/namespaces/default/pods", "application/json", strings.NewReader(`{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i","securityContext":{"privileged":true}}]}}`))
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			if text, _ := io.ReadAll(r.Body); r.StatusCode != http.StatusCreated {
				t.Errorf("a privileged pod without a service account: %d %s", r.StatusCode, text)
			}
			if prepared {
				return
			}
			for file, mode := range map[string]os.FileMode{"apiserver.crt": 0o644, "apiserver.key": 0o600} {
				if info, err := os.Stat(filepath.Join(dir, file)); err != nil || info.Mode().Perm() != mode {
					t.Errorf("%s: %v, %v; want mode %v", file, info, err, mode)
				}
			}
		})
	}
}

func writeServing(t *testing.T, dir string) {
	t.Helper()
	authority, err := pki.OpenAuthority(t.TempDir(), "serving", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if err := authority.Issue(dir, "apiserver", pki.Identity{Name: "apiserver", Hosts: []string{"127.0.0.1"}}); err != nil {
		t.Fatal(err)
	}
}

// adminOf returns a client with a certificate of system:masters. It does not
// verify the server.
func adminOf(t *testing.T, dir string, authority *pki.Authority) *http.Client {
	t.Helper()
	if err := authority.Issue(dir, "client", pki.Identity{Name: "admin", Groups: []string{"system:masters"}}); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key"))
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}}}
}

func TestPrivilegedContainersCanBeRefused(t *testing.T) {
	w := start(t, func(c *apiserver.Config) {
		c.Kinds = registry.Kinds(c.Scheme, registry.Config{
			Store: c.Store, ServiceCIDR: c.ServiceCIDR, NodePorts: registry.PortRange{First: 30000, Last: 32767}, Now: time.Now, DenyPrivileged: true,
		})
	})
	must[corev1.ServiceAccount](w, 201, "POST", "/api/v1/namespaces/default/serviceaccounts", jsonType, `{"metadata":{"name":"default"}}`)
	const denied = `.containers[0].securityContext.privileged: Forbidden: disallowed by cluster policy`
	s := must[metav1.Status](w, 422, "POST", "/api/v1/namespaces/default/pods", jsonType, barePod("p", `,"securityContext":{"privileged":true}`))
	if !strings.Contains(s.Message, "spec"+denied) {
		t.Errorf("message %q", s.Message)
	}
	must[corev1.Pod](w, 201, "POST", "/api/v1/namespaces/default/pods", jsonType, barePod("p", `,"securityContext":{"privileged":false}`))
	template := `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i","securityContext":{"privileged":true}}]}}}}`
	for _, kind := range []string{"deployments", "replicasets"} {
		if s := must[metav1.Status](w, 422, "POST", "/apis/apps/v1/namespaces/default/"+kind, jsonType, template); !strings.Contains(s.Message, "spec.template.spec"+denied) {
			t.Errorf("%s: message %q", kind, s.Message)
		}
	}
}

func TestFlagsOfUpstream(t *testing.T) {
	for arg, want := range map[string]string{ // "": accepted
		"--storage-backend=etcd3": "", "--runtime-config=": "", "--enable-garbage-collector": "", "--feature-gates=": "", "--proxy-client-cert-file=/x": "",
		"--storage-backend=etcd2":                `not supported, only "etcd3"`,
		"--storage-media-type=x/json":            "stored as protobuf",
		"--runtime-config=api/all=true":          "all API groups that exist are served",
		"--feature-gates=A=true":                 "no feature is behind a gate",
		"--etcd-prefix=/other":                   `only "/registry"`,
		"--service-account-lookup=false":         `only "true"`,
		"--goaway-chance=0.1":                    "--goaway-chance is a flag of upstream's kube-apiserver that Podium does not implement",
		"--nonsense":                             "unknown flag: --nonsense",
		"--insecure-port=0":                      "unknown flag: --insecure-port",
		"--allow-privileged=maybe":               "invalid argument",
		"--enable-admission-plugins=AlwaysAdmit": `plugin "AlwaysAdmit" of upstream does not exist in Podium`,
	} {
		cmd := apiserver.NewCommand()
		cmd.SetArgs([]string{"--advertise-address=127.0.0.1", "--data-dir=" + t.TempDir(), arg}) // always fails, if only because of the loopback address
		if want != "" && strings.HasPrefix(arg, "--enable-admission") {
			cmd.SetArgs([]string{"--data-dir=" + t.TempDir(), arg})
		}
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetErr(io.Discard)
		if want == "" {
			want = "is not an IP address that other machines can reach"
		}
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", arg, err, want)
		}
	}
}
