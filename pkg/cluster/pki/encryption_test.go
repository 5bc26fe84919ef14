package pki_test

import (
	"os"
	"path/filepath"
	"testing"

	"podium/pkg/cluster/pki"
	"podium/pkg/storage/encryption"
)

func TestEncryptionConfigIsMadeOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pki", "encryption.yaml")
	if err := pki.EncryptionConfig(file); err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := encryption.Parse(first); err != nil {
		t.Errorf("the apiserver would not take it: %v", err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v, %v", info, err)
	}
	if err := pki.EncryptionConfig(file); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(file); err != nil || string(again) != string(first) {
		t.Errorf("a key that is in use was replaced (%v)", err)
	}
	other := filepath.Join(t.TempDir(), "encryption.yaml")
	if err := pki.EncryptionConfig(other); err != nil {
		t.Fatal(err)
	}
	if second, err := os.ReadFile(other); err != nil || string(second) == string(first) {
		t.Errorf("two clusters have the same key (%v)", err)
	}
}
