package admissionconfig_test

import (
	"os"
	"path/filepath"
	"testing"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/admission/podsecurity"
	"podium/pkg/cluster/admissionconfig"
)

func TestTheApiserverReadsTheFile(t *testing.T) {
	for _, level := range []string{admissionconfig.Baseline, admissionconfig.Restricted} {
		file := filepath.Join(t.TempDir(), "new", "admission.yaml")
		if err := admissionconfig.Write(file, level); err != nil {
			t.Fatal(err)
		}
		plugins, err := admission.LoadConfig(file)
		if err != nil {
			t.Fatal(err)
		}
		c, err := podsecurity.ParseConfig(plugins["PodSecurity"])
		if err != nil {
			t.Fatal(err)
		}
		if want := level + ":latest"; c.Defaults.Enforce.String() != want || c.Defaults.Audit.String() != want || c.Defaults.Warn.String() != want {
			t.Errorf("defaults %+v, want %s", c.Defaults, want)
		}
		if got := c.Exempt.Namespaces; len(got) != 1 || got[0] != "kube-system" {
			t.Errorf("exempt %v: what runs in kube-system needs more than a level allows", got)
		}
		if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := admissionconfig.Write(file, level); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(file); err != nil || string(data) != "mine" {
			t.Errorf("the operator's file became %q (%v)", data, err)
		}
	}
}

func TestPrivilegedNeedsNoFile(t *testing.T) {
	for _, level := range []string{"", admissionconfig.Privileged} {
		file := filepath.Join(t.TempDir(), "admission.yaml")
		if err := admissionconfig.Write(file, level); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(file); err == nil {
			t.Errorf("%q wrote a file", level)
		}
	}
	if err := admissionconfig.Check("strict"); err == nil {
		t.Error("an unknown level was accepted")
	}
}
