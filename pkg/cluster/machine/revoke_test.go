package machine

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"podium/pkg/cluster/pki"
)

// podium certs check shows the certificates that this and other control planes
// revoked.
func TestRevokedCertificatesAreShown(t *testing.T) {
	host, cfg := newHost(t)
	m, err := newMachine(cfg, host)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.identities(); err != nil {
		t.Fatal(err)
	}
	ca, err := m.authority(clusterCA)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(m.at(kubeletRevoked)), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := ca.Revoke(m.at(kubeletRevoked), big.NewInt(0xbeef)); err != nil { // published by another control plane
		t.Fatal(err)
	}
	check := func() string {
		t.Helper()
		var out strings.Builder
		cfg.Out = &out
		if err := CheckCertificates(t.Context(), cfg, host); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	serial := fmt.Sprintf("%x", readCert(t, m, "admin").SerialNumber)
	if text := check(); !strings.Contains(text, "beef ") || !strings.Contains(text, "<unknown>") || strings.Contains(text, serial) {
		t.Errorf("before:\n%s", text)
	}
	if err := RevokeCertificates(t.Context(), cfg, host, RevokeOptions{Files: []string{cfg.at(adminConf)}}); err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`(?m)^` + serial + ` +2026-\S+ +ca +kubernetes-admin$`)
	if text := check(); !want.MatchString(text) {
		t.Errorf("after:\n%s", text)
	}
}

func TestRevokeCertificates(t *testing.T) {
	host, cfg := newHost(t)
	m, err := newMachine(cfg, host)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.identities(); err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	foreign, err := pki.OpenAuthority(other, "ca", cfg.Now)
	if err != nil {
		t.Fatal(err)
	}
	if err := foreign.Issue(other, "theirs", pki.Identity{Name: "theirs"}); err != nil {
		t.Fatal(err)
	}
	write(t, cfg.at("/nothing"), "nothing")
	for _, step := range []struct {
		why  string
		o    RevokeOptions
		say  string
		bad  string
		list int
	}{
		{why: "of a kubeconfig", o: RevokeOptions{Files: []string{cfg.at(adminConf)}}, say: "revoked ", list: 1},
		{why: "once more, as PEM", o: RevokeOptions{Files: []string{cfg.at(pkiDir, "admin.crt")}}, say: "1 had been revoked before", list: 1},
		{why: "by number", o: RevokeOptions{Serials: []string{"0A:ff"}}, say: "revoked aff", list: 2},
		{why: "nothing", bad: "specify the certificates", list: 2},
		{why: "a number that is none", o: RevokeOptions{Serials: []string{"xyz"}}, bad: "no serial number", list: 2},
		{why: "of another cluster", o: RevokeOptions{Files: []string{other + "/theirs.crt"}}, bad: "not signed by this cluster", list: 2},
		{why: "of a file without", o: RevokeOptions{Files: []string{cfg.at("/nothing")}}, bad: "neither a certificate nor a kubeconfig", list: 2},
	} {
		t.Run(step.why, func(t *testing.T) {
			var out strings.Builder
			cfg.Out = &out
			err := RevokeCertificates(t.Context(), cfg, host, step.o)
			if (err != nil) != (step.bad != "") || err != nil && !strings.Contains(err.Error(), step.bad) {
				t.Fatalf("%v, want %q", err, step.bad)
			}
			if !strings.Contains(out.String(), step.say) {
				t.Errorf("said %q, want %q", out.String(), step.say)
			}
			data, err := os.ReadFile(cfg.at(pkiDir, revokedFile))
			if err != nil {
				t.Fatal(err)
			}
			block, _ := pem.Decode(data)
			list, err := x509.ParseRevocationList(block.Bytes)
			if err != nil || len(list.RevokedCertificateEntries) != step.list {
				t.Errorf("%d on the list, want %d (%v)", len(list.RevokedCertificateEntries), step.list, err)
			}
		})
	}
}
