package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestAuditLog looks for what this test does in the record that every cluster
// keeps, and for what must not be there.
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
