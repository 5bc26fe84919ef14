package machine

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"podium/pkg/cluster/pki"
)

// TestCertificates checks the certificates when they are new, near their
// expiry, and renewed.
func TestCertificates(t *testing.T) {
	host, cfg := newHost(t)
	now := cfg.Now()
	cfg.Now = func() time.Time { return now }
	check := func() (string, error) {
		t.Helper()
		var out strings.Builder
		c := cfg
		c.Out = &out
		err := CheckCertificates(t.Context(), c, host)
		return out.String(), err
	}
	if _, err := check(); err == nil || !strings.Contains(err.Error(), "in no cluster") {
		t.Errorf("on a machine without any: %v", err)
	}
	if err := RenewCertificates(t.Context(), cfg, host, RenewOptions{}); err == nil {
		t.Error("renewed what is not there")
	}
	m, err := newMachine(cfg, host)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.saveConfig(); err != nil {
		t.Fatal(err)
	}
	if err := m.identities(); err != nil {
		t.Fatal(err)
	}
	text, err := check()
	if err != nil || strings.Contains(text, "renew") {
		t.Errorf("fresh ones: %v\n%s", err, text)
	}
	now = now.Add(350 * 24 * time.Hour)
	if text, err = check(); err != nil || !strings.Contains(text, "expires soon: podium certs renew") {
		t.Errorf("two weeks before their end: %v\n%s", err, text)
	}
	now = now.Add(30 * 24 * time.Hour)
	if text, err = check(); err == nil || !strings.Contains(text, "has expired") {
		t.Errorf("after their end: %v\n%s", err, text)
	}
	ca := tree(t, cfg.at(pkiDir))["/ca.crt"]
	before, err := os.ReadFile(cfg.at(adminConf))
	if err != nil {
		t.Fatal(err)
	}
	if err := RenewCertificates(t.Context(), cfg, host, RenewOptions{}); err != nil {
		t.Fatal(err)
	}
	if text, err = check(); err != nil || strings.Contains(text, "renew") {
		t.Errorf("renewed ones: %v\n%s", err, text)
	}
	if tree(t, cfg.at(pkiDir))["/ca.crt"] != ca {
		t.Error("the authority was replaced: everybody is shut out")
	}
	if after, err := os.ReadFile(cfg.at(adminConf)); err != nil || string(after) == string(before) {
		t.Errorf("the administrator's kubeconfig has the old certificate: %v", err)
	}
}

func TestDamagedCertificateIsReported(t *testing.T) {
	host, cfg := newHost(t)
	write(t, cfg.at(pkiDir, "apiserver.crt"), "garbage")
	var out strings.Builder
	cfg.Out = &out
	if err := CheckCertificates(t.Context(), cfg, host); err == nil || !strings.Contains(out.String(), "holds no certificate") {
		t.Errorf("got %v\n%s", err, out.String())
	}
}

// TestOnlyExpiringOnesAreRenewed checks that the timer's daily run changes
// nothing until the last third of a certificate's lifetime.
func TestOnlyExpiringOnesAreRenewed(t *testing.T) {
	host, cfg := newHost(t)
	now := cfg.Now()
	cfg.Now = func() time.Time { return now }
	m, err := newMachine(cfg, host)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.saveConfig(); err != nil {
		t.Fatal(err)
	}
	if err := m.identities(); err != nil {
		t.Fatal(err)
	}
	renewed := func() int {
		t.Helper()
		var out strings.Builder
		c := cfg
		c.Out = &out
		if err := RenewCertificates(t.Context(), c, host, RenewOptions{Expiring: true}); err != nil {
			t.Fatal(err)
		}
		return strings.Count(out.String(), " renewed, ")
	}
	before := tree(t, cfg.at(configDir))
	now = now.Add(200 * 24 * time.Hour)
	if got := renewed(); got != 0 {
		t.Errorf("in the middle of their life %d were renewed", got)
	}
	if diff := cmp.Diff(before, tree(t, cfg.at(configDir))); diff != "" {
		t.Errorf("files changed:\n%s", diff)
	}
	now = now.Add(50 * 24 * time.Hour)
	if got, all := renewed(), len(m.controlPlaneCertificates()); got != all {
		t.Errorf("in the last third of their life %d of %d were renewed", got, all)
	}
	if got := renewed(); got != 0 {
		t.Errorf("fresh ones: %d were renewed", got)
	}
}

// TestRenewalWithAnAuthoritysKeyElsewhere checks a control plane of which a CA key is
// kept offline: its daily run leaves the certificates of that CA alone, fails once they
// need the key, and renews the others.
func TestRenewalWithAnAuthoritysKeyElsewhere(t *testing.T) {
	for _, authority := range []string{clusterCA, etcdCA} {
		t.Run(authority, func(t *testing.T) {
			host, cfg := newHost(t)
			now := cfg.Now()
			cfg.Now = func() time.Time { return now }
			m, err := newMachine(cfg, host)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(m.saveConfig(), m.identities(), os.Remove(cfg.at(pkiDir, authority+".key"))); err != nil {
				t.Fatal(err)
			}
			before := tree(t, cfg.at(pkiDir))
			if err := errors.Join(RenewCertificates(t.Context(), cfg, host, RenewOptions{Expiring: true}), m.identities()); err != nil {
				t.Errorf("nothing needs to be signed: %v", err)
			}
			if diff := cmp.Diff(before, tree(t, cfg.at(pkiDir))); diff != "" {
				t.Errorf("files changed:\n%s", diff)
			}
			now = now.Add(300 * 24 * time.Hour)
			if err := RenewCertificates(t.Context(), cfg, host, RenewOptions{Expiring: true}); err == nil || !strings.Contains(err.Error(), cfg.at(pkiDir, authority+".key")) {
				t.Errorf("got %v, want an error that names the missing key", err)
			}
			after := tree(t, cfg.at(pkiDir))
			for _, c := range m.controlPlaneCertificates() {
				if file := "/" + c.name + ".crt"; (before[file] == after[file]) != (c.authority == authority) {
					t.Errorf("%s: renewed %t", c.name, before[file] != after[file])
				}
			}
			if file := "/" + authority + ".crt"; before[file] != after[file] {
				t.Error("the authority was replaced")
			}
		})
	}
}

// TestAWorkerSignsNothing checks the commands on a worker, whose kubelet gets
// its certificates from the cluster.
func TestAWorkerSignsNothing(t *testing.T) {
	host, cfg := newHost(t)
	m, err := newMachine(cfg, host)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.saveConfig(); err != nil {
		t.Fatal(err)
	}
	ca, err := pki.OpenAuthority(t.TempDir(), "ca", cfg.Now)
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.Issue(cfg.at(kubeletCerts), "kubelet-client", pki.Identity{Name: "system:node:alpha"}); err != nil {
		t.Fatal(err)
	}
	if err := RenewCertificates(t.Context(), cfg, host, RenewOptions{Expiring: true}); err != nil {
		t.Errorf("the timer's service fails: %v", err)
	}
	if err := RenewCertificates(t.Context(), cfg, host, RenewOptions{}); err == nil || !strings.Contains(err.Error(), "by itself") {
		t.Errorf("asked by a person: %v", err)
	}
	now := cfg.Now().Add(400 * 24 * time.Hour)
	var out strings.Builder
	cfg.Out, cfg.Now = &out, func() time.Time { return now }
	if err := CheckCertificates(t.Context(), cfg, host); err == nil || !strings.Contains(out.String(), "has expired: join again with a new token") {
		t.Errorf("after it was off for too long: %v\n%s", err, out.String())
	}
}
