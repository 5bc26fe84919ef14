package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// TestNoPlainSecretInEtcd searches for a Secret in the files of the cluster's etcd. The
// cluster generated the encryption keys.
func TestNoPlainSecretInEtcd(t *testing.T) {
	const secret, public = "e2e-tell-nobody-zq81", "e2e-everybody-may-know-zq81"
	the.podium(t, "create", "secret", "generic", "at-rest", "--from-literal=password="+secret)
	t.Cleanup(func() {
		the.try(context.Background(), "", the.bin("podium"), "delete", "secret/at-rest", "configmap/at-rest")
	})
	the.podium(t, "create", "configmap", "at-rest", "--from-literal=a="+public)

	found := map[string]bool{}
	err := filepath.WalkDir(filepath.Join(the.dir, "etcd"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		for _, text := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret)), public} {
			found[text] = found[text] || bytes.Contains(data, []byte(text))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if !found[public] {
		t.Fatal("what is not encrypted is not found either: this test looks in the wrong place")
	}
	delete(found, public)
	for text, is := range found {
		if is {
			t.Errorf("%q stands plain in etcd's files", text)
		}
	}
}

// TestFilesWithSecretsAreClosed checks that other users can read nothing but certificates and
// public keys in the cluster's folder.
func TestFilesWithSecretsAreClosed(t *testing.T) {
	for _, name := range []string{"pki", "kubeconfigs", "kubeconfig", "etcd", "logs", "pids", "kubelet"} {
		err := filepath.WalkDir(filepath.Join(the.dir, name), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if name == "kubelet" && path != filepath.Join(the.dir, name) {
				return fs.SkipDir // the folder is closed; files in it belong to pods
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			public := slices.Contains([]string{".crt", ".crl", ".pub"}, filepath.Ext(path))
			mayOpen := d.IsDir() && name != "etcd" // the files in it are closed
			if name == "kubelet" {
				mayOpen = info.Mode().Perm()&0o007 == 0
			}
			switch {
			case info.Mode()&fs.ModeSymlink != 0:
			case info.Mode().Perm()&0o022 != 0:
				t.Errorf("%s may be changed by others: %v", path, info.Mode())
			case info.Mode().Perm()&0o077 != 0 && !public && !mayOpen:
				t.Errorf("%s may be read by others: %v", path, info.Mode())
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestAuditLog searches the audit log for the requests of this test, and for what must not be
// in it.
func TestAuditLog(t *testing.T) {
	const secret = "e2e-tell-no-log-zq82"
	the.podium(t, "create", "secret", "generic", "audited", "--from-literal=password="+secret)
	t.Cleanup(func() { the.try(context.Background(), "", the.bin("podium"), "delete", "secret/audited") })
	file := filepath.Join(the.dir, "logs", "audit.log")
	var found bool
	for deadline := time.Now().Add(10 * time.Second); !found && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			var e struct {
				Verb      string
				User      struct{ Username string }
				ObjectRef struct{ Resource, Name string }
			}
			if json.Unmarshal(line, &e) == nil && e.Verb == "create" && e.ObjectRef.Resource == "secrets" && e.ObjectRef.Name == "audited" {
				found = e.User.Username == "kubernetes-admin"
			}
		}
		for _, text := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret))} {
			if bytes.Contains(data, []byte(text)) {
				t.Fatalf("the audit log tells the secret %q", text)
			}
		}
	}
	if !found {
		t.Errorf("%s does not say that kubernetes-admin has created the Secret", file)
	}
}
