package encryption_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podium/pkg/storage"
	"podium/pkg/storage/encryption"
	"podium/pkg/storage/encryption/kmstest"
	"podium/pkg/storage/etcd"
	"podium/pkg/storage/memory"
	"podium/pkg/storage/storagetest"
)

const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"

// key returns the configuration of a provider with one key, whose bytes are all
// letter.
func key(provider, name, letter string) string {
	secret := base64.StdEncoding.EncodeToString([]byte(strings.Repeat(letter, 32)))
	return fmt.Sprintf("  - %s: {keys: [{name: %s, secret: %s}]}\n", provider, name, secret)
}

func kmsOf(p *kmstest.Plugin) string {
	return "  - kms: {apiVersion: v2, name: test, timeout: 2s, endpoint: '" + p.Endpoint() + "'}\n"
}

// all is a configuration of every resource.
func all(providers ...string) string {
	return head + "- resources: ['*.*']\n  providers:\n" + strings.Join(providers, "")
}

func open(t testing.TB, config string) *encryption.Keyring {
	t.Helper()
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return openFile(t, file)
}

func openFile(t testing.TB, file string) *encryption.Keyring {
	t.Helper()
	k, err := encryption.Open(t.Context(), encryption.Config{File: file, Reload: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// run keeps a keyring current until the test ends.
func run(t testing.TB, k *encryption.Keyring) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); k.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

func configs(t testing.TB) map[string]string {
	plugin := kmstest.New("1")
	plugin.Serve(t)
	return map[string]string{
		"aesgcm": key("aesgcm", "key1", "a"), "aescbc": key("aescbc", "key1", "a"), "secretbox": key("secretbox", "key1", "a"),
		"kms": kmsOf(plugin), "identity": "  - identity: {}\n",
	}
}

func TestContract(t *testing.T) {
	for name, provider := range configs(t) {
		t.Run(name, func(t *testing.T) {
			k := open(t, all(provider))
			run(t, k)
			storagetest.Run(t, func(*testing.T) storage.Store { return k.Wrap(memory.New()) })
		})
	}
}

func TestContractOnEtcd(t *testing.T) {
	inner, err := etcd.Embed(t.Context(), etcd.EmbeddedConfig{Dir: t.TempDir(), NoSync: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { inner.Close() })
	k := open(t, all(key("secretbox", "key1", "a")))
	storagetest.Run(t, func(*testing.T) storage.Store { return k.Wrap(inner) })
}

const path = "/registry/secrets/ns/a"

func create(t testing.TB, s storage.Store, path, value string) int64 {
	t.Helper()
	rev, err := s.Create(t.Context(), path, []byte(value))
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

func TestWhatStandsInTheStore(t *testing.T) {
	for name, provider := range configs(t) {
		t.Run(name, func(t *testing.T) {
			inner := memory.New()
			k := open(t, head+"- resources: [secrets]\n  providers:\n"+provider)
			run(t, k)
			create(t, k.Wrap(inner), path, "tell nobody")
			create(t, k.Wrap(inner), "/registry/configmaps/ns/a", "tell everybody")

			raw, err := inner.Get(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			prefix := map[string]string{
				"aesgcm": "k8s:enc:aesgcm:v1:key1:", "aescbc": "k8s:enc:aescbc:v1:key1:", "secretbox": "k8s:enc:secretbox:v1:key1:",
				"kms": "k8s:enc:kms:v2:test:", "identity": "tell nobody",
			}[name]
			if !strings.HasPrefix(string(raw.Value), prefix) {
				t.Errorf("the value begins with %.40q, want %q", raw.Value, prefix)
			}
			if name != "identity" && bytes.Contains(raw.Value, []byte("tell")) {
				t.Errorf("the value is not encrypted: %q", raw.Value)
			}
			if raw, err = inner.Get(t.Context(), "/registry/configmaps/ns/a"); err != nil || string(raw.Value) != "tell everybody" {
				t.Errorf("what is not configured is %q, %v; want it as it was", raw.Value, err)
			}
		})
	}
}

func TestAValueIsBoundToItsPlace(t *testing.T) {
	for name, provider := range configs(t) {
		t.Run(name, func(t *testing.T) {
			inner := memory.New()
			k := open(t, all(provider))
			run(t, k)
			s := k.Wrap(inner)
			create(t, s, path, "of a")
			raw, err := inner.Get(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			create(t, inner, "/registry/secrets/ns/b", string(raw.Value))
			_, err = s.Get(t.Context(), "/registry/secrets/ns/b")
			binds := name == "aesgcm" || name == "kms" // the other ciphers do not bind a value to its key in the store
			if (err != nil) != binds {
				t.Errorf("a value moved to another key reads with %v; refused is wanted: %v", err, binds)
			}
			if name == "identity" || name == "aescbc" {
				return
			}
			raw.Value = bytes.Clone(raw.Value)
			raw.Value[len(raw.Value)-1] ^= 1
			create(t, inner, "/registry/secrets/ns/c", string(raw.Value))
			if _, err = s.Get(t.Context(), "/registry/secrets/ns/c"); err == nil {
				t.Error("a changed value was read")
			}
		})
	}
}

// A value that cannot be decrypted must never look absent.
func TestWhatCannotBeReadIsAnError(t *testing.T) {
	inner := memory.New()
	rev := create(t, open(t, all(key("aesgcm", "key1", "a"))).Wrap(inner), path, "x")
	for name, config := range map[string]string{
		"no such key":           all(key("aesgcm", "key2", "a"), "  - identity: {}\n"),
		"another key, its name": all(key("aesgcm", "key1", "b")),
		"no such provider":      all(key("secretbox", "key1", "a")),
		"not configured":        head + "- resources: [configmaps]\n  providers:\n" + key("aesgcm", "key1", "a"),
		"nothing is configured": "",
	} {
		k, err := encryption.Open(t.Context(), encryption.Config{})
		if config != "" {
			k, err = open(t, config), nil
		}
		if err != nil {
			t.Fatal(err)
		}
		s := k.Wrap(inner)
		_, getErr := s.Get(t.Context(), path)
		_, listErr := s.List(t.Context(), "/registry/", storage.ListOptions{})
		_, updateErr := s.Update(t.Context(), path, []byte("y"), rev-1)
		w, err := s.Watch(t.Context(), "/registry/", rev-1)
		if err != nil {
			t.Fatal(err)
		}
		_, nextErr := w.Next(t.Context())
		w.Stop()
		for call, err := range map[string]error{"get": getErr, "list": listErr, "conflict": updateErr, "watch": nextErr} {
			var conflict *storage.ConflictError
			if !errors.Is(err, storage.ErrUnreadable) || errors.As(err, &conflict) {
				t.Errorf("%s: %s: got %v", name, call, err)
			}
		}
	}
}

// TestRotation follows the documented procedure of Kubernetes: add the new key as a
// reader, make it the writer, rewrite all values, remove the old key.
func TestRotation(t *testing.T) {
	plugin := kmstest.New("1")
	plugin.Serve(t)
	old, next := key("aescbc", "key1", "a"), key("aesgcm", "key1", "b")
	inner := memory.New()
	rev := create(t, open(t, all(old)).Wrap(inner), path, "x")
	for _, step := range []struct {
		reason string
		config string
		stale  bool
	}{
		{"what the first key wrote is as it should be", all(old, next), false},
		{"another key writes now", all(next, old), true},
		{"it was written anew", all(next), false},
		{"the same provider, a key of the same name", all(key("aesgcm", "key1", "c"), next), true},
		{"a plugin takes over", all(kmsOf(plugin), key("aesgcm", "key1", "c")), true},
		{"and holds", all(kmsOf(plugin)), false},
		{"away from encryption", all("  - identity: {}\n", kmsOf(plugin)), true},
		{"nothing is left of it", "", false},
	} {
		k, err := encryption.Open(t.Context(), encryption.Config{})
		if step.config != "" {
			k, err = open(t, step.config), nil
			run(t, k)
		}
		if err != nil {
			t.Fatal(err)
		}
		s := k.Wrap(inner)
		kv, err := s.Get(t.Context(), path)
		if err != nil {
			t.Fatalf("%s: %v", step.reason, err)
		}
		if string(kv.Value) != "x" || kv.Stale != step.stale {
			t.Errorf("%s: got %q, stale %v; want stale %v", step.reason, kv.Value, kv.Stale, step.stale)
		}
		if rev, err = s.Update(t.Context(), path, kv.Value, rev); err != nil {
			t.Fatalf("%s: %v", step.reason, err)
		}
	}
}

func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "encryption.yaml")
		write := func(config string) {
			if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(15 * time.Second)
			synctest.Wait()
		}
		old, next := key("secretbox", "old", "a"), key("secretbox", "new", "b")
		if err := os.WriteFile(file, []byte(all(old)), 0o600); err != nil {
			t.Fatal(err)
		}
		k := openFile(t, file)
		ctx, cancel := context.WithCancel(t.Context())
		go k.Run(ctx)
		defer synctest.Wait()
		defer cancel()
		inner := memory.New()
		s := k.Wrap(inner)
		writes := func() string {
			name := fmt.Sprintf("/registry/secrets/ns/%d", time.Now().UnixNano())
			create(t, s, name, "x")
			raw, err := inner.Get(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			return strings.Split(string(raw.Value), ":")[4]
		}
		if got := writes(); got != "old" {
			t.Errorf("at first %s writes", got)
		}
		write(all(next, old))
		if got := writes(); got != "new" {
			t.Errorf("after the file has changed %s writes", got)
		}
		for name, config := range map[string]string{"broken": "resources:", "empty": "", "invalid": all("  - aesgcm: {}\n")} {
			write(config)
			if got := writes(); got != "new" {
				t.Errorf("after the file became %s, %s writes; the former configuration should stay", name, got)
			}
		}
		write(all(old, next))
		if got := writes(); got != "old" {
			t.Errorf("after the file was mended %s writes", got)
		}
		if _, err := s.List(t.Context(), "/registry/", storage.ListOptions{}); err != nil {
			t.Errorf("some value cannot be read any more: %v", err)
		}
	})
}
