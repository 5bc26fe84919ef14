package peers

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/value"

	"podium/pkg/storage/encryption"
	"podium/pkg/storage/encryption/kmstest"
	"podium/pkg/storage/memory"
)

// TestEncryptedValuesAreUpstreams: what we write under a configuration,
// upstream's apiserver reads under the same, and the other way round.
func TestEncryptedValuesAreUpstreams(t *testing.T) {
	plugin := kmstest.New("kek-1")
	plugin.Serve(t)
	key := func(provider string) string {
		return provider + ": {keys: [{name: key1, secret: " + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32))) + "}]}"
	}
	for name, row := range map[string]struct {
		provider string
		binds    bool // to the place where a value is stored
	}{
		"aescbc":    {key("aescbc"), false},
		"aesgcm":    {key("aesgcm"), true},
		"secretbox": {key("secretbox"), false},
		"kms":       {"kms: {apiVersion: v2, name: peer, endpoint: '" + plugin.Endpoint() + "'}", true},
		"identity":  {"identity: {}", false},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "encryption.yaml")
			config := fmt.Sprintf("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n  - %s\n", row.provider)
			check(t, os.WriteFile(file, []byte(config), 0o600))
			loaded, err := encryptionconfig.LoadEncryptionConfig(t.Context(), file, false, "peer")
			check(t, err)
			theirs := encryptionconfig.StaticTransformers(loaded.Transformers).TransformerForResource(schema.GroupResource{Resource: "secrets"})
			keys, err := encryption.Open(t.Context(), encryption.Config{File: file, Log: slog.New(slog.DiscardHandler)})
			check(t, err)
			disk := memory.New()
			ours := keys.Wrap(disk)

			const mine, yours, plain = "/registry/secrets/ns/mine", "/registry/secrets/ns/yours", "k8s\x00 what is to be kept"
			_, err = ours.Create(t.Context(), mine, []byte(plain))
			check(t, err)
			raw, err := disk.Get(t.Context(), mine)
			check(t, err)
			got, stale, err := theirs.TransformFromStorage(t.Context(), raw.Value, value.DefaultContext(mine))
			if err != nil || string(got) != plain || stale {
				t.Errorf("upstream reads what we wrote as %q, stale %v, %v", got, stale, err)
			}
			if _, _, err := theirs.TransformFromStorage(t.Context(), raw.Value, value.DefaultContext(yours)); (err != nil) != row.binds {
				t.Errorf("upstream reads it elsewhere with %v; bound to its place: %v", err, row.binds)
			}

			sealed, err := theirs.TransformToStorage(t.Context(), []byte(plain), value.DefaultContext(yours))
			check(t, err)
			_, err = disk.Create(t.Context(), yours, sealed)
			check(t, err)
			kv, err := ours.Get(t.Context(), yours)
			if err != nil || string(kv.Value) != plain || kv.Stale {
				t.Errorf("we read what upstream wrote as %q, stale %v, %v", kv.Value, kv.Stale, err)
			}
		})
	}
}
