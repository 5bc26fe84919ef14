package machine

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestCertificates follows them through a year: checked, near their end, renewed.
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
	if err := RenewCertificates(t.Context(), cfg, host); err == nil {
		t.Error("renewed what is not there")
	}
	m, err := newMachine(cfg, host)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.remember(); err != nil {
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
	if text, err = check(); err != nil || !strings.Contains(text, "ends soon: podium certs renew") {
		t.Errorf("two weeks before their end: %v\n%s", err, text)
	}
	now = now.Add(30 * 24 * time.Hour)
	if text, err = check(); err == nil || !strings.Contains(text, "has ended") {
		t.Errorf("after their end: %v\n%s", err, text)
	}
	ca := tree(t, cfg.at(pkiDir))["/ca.crt"]
	before, err := os.ReadFile(cfg.at(adminConf))
	if err != nil {
		t.Fatal(err)
	}
	if err := RenewCertificates(t.Context(), cfg, host); err != nil {
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

func TestADamagedCertificateIsTold(t *testing.T) {
	host, cfg := newHost(t)
	write(t, cfg.at(pkiDir, "apiserver.crt"), "garbage")
	var out strings.Builder
	cfg.Out = &out
	if err := CheckCertificates(t.Context(), cfg, host); err == nil || !strings.Contains(out.String(), "holds no certificate") {
		t.Errorf("got %v\n%s", err, out.String())
	}
}
