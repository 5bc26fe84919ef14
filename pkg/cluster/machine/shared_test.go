package machine

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/cluster/machine/join"
	"podium/pkg/cluster/pki"
)

// joiningPlane returns a control plane that is about to join, and the first
// control plane of a cluster that has uploaded its shared files.
func joiningPlane(t *testing.T) (j *joining, first *machine) {
	t.Helper()
	host, cfg := newHost(t)
	first, err := newMachine(cfg, host)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.identities(); err != nil {
		t.Fatal(err)
	}
	key, err := join.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	data, err := first.sealed(key)
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, cfg.Now)
	c.objs["/api/v1/namespaces/kube-system/secrets/podium-certs"] = &corev1.Secret{Data: data}
	host, cfg = newHost(t)
	cfg.Endpoint = strings.TrimPrefix(c.URL, "https://")
	m, err := newMachine(cfg, host)
	if err != nil {
		t.Fatal(err)
	}
	m.entry = m.server()
	ca, err := os.ReadFile(first.at(pkiDir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	// The CA of the fake server's certificate is not that of the machines.
	j = &joining{machine: m, token: c.token, key: key, found: join.Cluster{Server: c.URL, CA: append(bytes.Clone(c.ca), ca...)}}
	return j, first
}

// TestControlPlanesShareTheirKeys checks that a machine that reads the shared
// files signs certificates that the uploading machine trusts.
func TestControlPlanesShareTheirKeys(t *testing.T) {
	j, first := joiningPlane(t)
	if err := j.fetchShared(t.Context()); err == nil || !strings.Contains(err.Error(), "another authority") {
		t.Errorf("keys of another authority than the cluster's: %v", err)
	}
	cl, err := j.tokenClient()
	if err != nil {
		t.Fatal(err)
	}
	cl.CloseIdle()
	j.shared = map[string][]byte{}
	for _, name := range shared {
		if j.shared[name], err = os.ReadFile(first.at(pkiDir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.writeShared(); err != nil {
		t.Fatal(err)
	}
	if err := j.identities(); err != nil {
		t.Fatal(err)
	}
	for _, name := range shared {
		one, err := os.ReadFile(first.at(pkiDir, name))
		other, err2 := os.ReadFile(j.at(pkiDir, name))
		if err := errors.Join(err, err2); err != nil || !bytes.Equal(one, other) {
			t.Errorf("%s differs, %v", name, err)
		}
		info, err := os.Stat(j.at(pkiDir, name))
		if err != nil || strings.HasSuffix(name, ".key") && info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	for _, name := range []string{"apiserver", "etcd/peer"} {
		one, _ := pki.Files(first.at(pkiDir), name)
		other, _ := pki.Files(j.at(pkiDir), name)
		if a, b := readHeld(name, one), readHeld(name, other); b.problem != "" || a.by != b.by {
			t.Errorf("%s is by %q on the first machine, by %q (%s) on the other", name, a.by, b.by, b.problem)
		}
	}
	j.found.Server = "https://nowhere.invalid" // the Secret may have been deleted
	if err := j.fetchShared(t.Context()); err != nil {
		t.Errorf("a second run asks for what it has: %v", err)
	}
}

// TestFetchSharedErrors checks the errors for a wrong key and for an
// expired Secret.
func TestFetchSharedErrors(t *testing.T) {
	j, _ := joiningPlane(t)
	right := j.key
	j.key[0] ^= 1
	if err := j.fetchShared(t.Context()); !errors.Is(err, join.ErrWrongKey) || strings.Contains(err.Error(), right.Text()) {
		t.Errorf("a wrong key: %v", err)
	}
	j.token.Secret = "fedcba9876543210"
	if err := j.fetchShared(t.Context()); err == nil {
		t.Error("a wrong token was enough")
	}
	host, cfg := newHost(t)
	c := newCluster(t, cfg.Now) // shares nothing
	cfg.Endpoint = strings.TrimPrefix(c.URL, "https://")
	m, err := newMachine(cfg, host)
	if err != nil {
		t.Fatal(err)
	}
	m.entry = m.server()
	j = &joining{machine: m, token: c.token, key: right, found: join.Cluster{Server: c.URL, CA: c.ca}}
	if err := j.fetchShared(t.Context()); err == nil || !strings.Contains(err.Error(), "podium certs upload") {
		t.Errorf("nothing is shared: %v", err)
	}
	if _, err := os.Stat(m.at(pkiDir, "ca.key")); err == nil {
		t.Error("a failed run has written a key")
	}
}
