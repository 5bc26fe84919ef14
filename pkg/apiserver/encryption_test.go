package apiserver_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/apiserver"
	"podium/pkg/apiserver/registry"
	"podium/pkg/scheme"
	"podium/pkg/storage/encryption"
	"podium/pkg/storage/etcd"
)

// vault is a server that encrypts Secrets, over a directory of etcd data.
type vault struct {
	*testing.T
	dir   string
	world *world
	disk  *etcd.Store
}

// start runs a server with the given keys. The first one encrypts.
func (v *vault) start(keys ...string) {
	v.Helper()
	config := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n  - aesgcm:\n      keys:\n"
	for _, key := range keys {
		config += fmt.Sprintf("      - {name: %s, secret: %s}\n", key, base64.StdEncoding.EncodeToString([]byte(strings.Repeat(key[:1], 32))))
	}
	file := filepath.Join(v.TempDir(), "encryption.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		v.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	ring, err := encryption.Open(v.Context(), encryption.Config{File: file, Log: log})
	if err != nil {
		v.Fatal(err)
	}
	if v.disk, err = etcd.Embed(v.Context(), etcd.EmbeddedConfig{Dir: v.dir, Log: log}); err != nil {
		v.Fatal(err)
	}
	v.world = start(v.T, func(c *apiserver.Config) {
		s, store := scheme.New(), ring.Wrap(v.disk)
		c.Scheme, c.Store, c.Encryption = s, store, ring
		c.Kinds = registry.Kinds(s, registry.Config{Store: store, ServiceCIDR: c.ServiceCIDR, NodePorts: registry.PortRange{First: 30000, Last: 32767}, Now: time.Now})
	})
	v.Cleanup(v.end)
}

// end stops the server and keeps its data.
func (v *vault) end() {
	if v.disk == nil {
		return
	}
	v.world.stop()
	if err := v.disk.Close(); err != nil {
		v.Error(err)
	}
	v.disk = nil
}

// holds returns the etcd files that contain text.
func (v *vault) holds(text string) []string {
	v.Helper()
	var found []string
	err := filepath.WalkDir(v.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(text)) {
			found = append(found, strings.TrimPrefix(path, v.dir))
		}
		return err
	})
	if err != nil {
		v.Fatal(err)
	}
	return found
}

const secrets = "/api/v1/namespaces/default/secrets"

// TestNoPlainSecretOnDisk checks after each operation on a Secret that etcd's
// log and database do not contain its plain text, and that they contain the
// name of the key that encrypted it.
func TestNoPlainSecretOnDisk(t *testing.T) {
	const first, second, public = "tell-nobody-the-first", "tell-nobody-the-second", "everybody-may-know"
	v := &vault{T: t, dir: filepath.Join(t.TempDir(), "etcd")}
	check := func(when string) {
		t.Helper()
		for _, secret := range []string{first, second} {
			for _, form := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret))} {
				if files := v.holds(form); len(files) > 0 {
					t.Errorf("%s: %q stands plain in %v", when, form, files)
				}
			}
		}
	}
	body := func(value string) string {
		return `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s"},"stringData":{"password":"` + value + `"}}`
	}

	v.start("a1")
	must[corev1.Secret](v.world, 201, "POST", secrets, jsonType, body(first))
	must[corev1.ConfigMap](v.world, 201, "POST", cms, jsonType, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c"},"data":{"a":"`+public+`"}}`)
	if len(v.holds(public)) == 0 {
		t.Fatal("what is not encrypted is not found either: this test looks in the wrong place")
	}
	check("after create")
	must[corev1.Secret](v.world, 200, "PUT", secrets+"/s", jsonType, body(second))
	check("after update")
	if len(v.holds("k8s:enc:aesgcm:v1:a1:")) == 0 {
		t.Error("the key's name is not on the disk: who has written?")
	}
	v.end()

	// With a new key, an update without changes is written nevertheless, to
	// re-encrypt the object.
	v.start("b2", "a1")
	before := must[corev1.Secret](v.world, 200, "GET", secrets+"/s", "", "")
	if string(before.Data["password"]) != second {
		t.Fatalf("with a new key before the old one the Secret is %q", before.Data)
	}
	for _, row := range []struct{ method, contentType, body string }{
		{"PATCH", mergeType, `{"data":{}}`},
		{"PUT", jsonType, body(second)},
	} {
		after := must[corev1.Secret](v.world, 200, row.method, secrets+"/s", row.contentType, row.body)
		if rewritten := after.ResourceVersion != before.ResourceVersion; rewritten != (row.method == "PATCH") {
			t.Errorf("%s: written anew: %v; the first update that changes nothing should write, the second should not", row.method, rewritten)
		}
		before = after
	}
	check("after rotation")
	v.end()

	// The old key is no longer needed.
	v.start("b2")
	if s := must[corev1.Secret](v.world, 200, "GET", secrets+"/s", "", ""); string(s.Data["password"]) != second {
		t.Errorf("without the old key the Secret is %q", s.Data)
	}
	v.end()
	check("at the end")
}
