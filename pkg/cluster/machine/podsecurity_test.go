package machine

import (
	"strings"
	"testing"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/admission/podsecurity"
)

// The Pod Security level of init is in the apiserver's settings and its file,
// and restarts and upgrades keep it.
func TestPodSecurityIsKept(t *testing.T) {
	host, cfg := newHost(t)
	cfg.PodSecurity = "baseline"
	m, err := newMachine(cfg, host)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.saveConfig(); err != nil {
		t.Fatal(err)
	}
	again, err := loadMachine(Config{Root: cfg.Root, Out: cfg.Out, Now: cfg.Now}, host)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.identities(); err != nil {
		t.Fatal(err)
	}
	file, ok := again.apiserver().conf["admissionControlConfigFile"].(string)
	if !ok {
		t.Fatal("the apiserver reads no admission configuration")
	}
	plugins, err := admission.LoadConfig(cfg.at(file))
	if err != nil {
		t.Fatal(err)
	}
	c, err := podsecurity.ParseConfig(plugins["PodSecurity"])
	if err != nil || c.Defaults.Enforce.String() != "baseline:latest" {
		t.Errorf("the file says %+v, %v", c.Defaults, err)
	}
	if again.setup().PodSecurity != "baseline" {
		t.Error("a control plane that joins is not told")
	}
}

func TestPodSecurityIsPrivilegedByDefault(t *testing.T) {
	host, cfg := newHost(t)
	m, err := newMachine(cfg, host)
	if err != nil {
		t.Fatal(err)
	}
	if file, ok := m.apiserver().conf["admissionControlConfigFile"]; ok {
		t.Errorf("the apiserver reads %v", file)
	}
	cfg.PodSecurity = "strict"
	if _, err := newMachine(cfg, host); err == nil || !strings.Contains(err.Error(), "--pod-security") {
		t.Errorf("an unknown level: %v", err)
	}
}
