package auditpolicy_test

import (
	"os"
	"path/filepath"
	"testing"

	"podium/pkg/apiserver/audit"
	"podium/pkg/cluster/auditpolicy"
)

func TestThePolicyIsValidAndIsNotReplaced(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "policy.yaml")
	if err := auditpolicy.Write(file); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := audit.ParsePolicy(data); err != nil {
		t.Errorf("the apiserver would not take it: %v", err)
	}
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := auditpolicy.Write(file); err != nil {
		t.Fatal(err)
	}
	if data, err = os.ReadFile(file); err != nil || string(data) != "mine" {
		t.Errorf("the operator's policy became %q (%v)", data, err)
	}
}
