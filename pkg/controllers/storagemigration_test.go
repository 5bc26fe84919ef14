package controllers_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	migrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver"
	"podium/pkg/apiserver/registry"
	"podium/pkg/client"
	"podium/pkg/client/discovery"
	"podium/pkg/storage"
	"podium/pkg/storage/encryption"
)

// disk is what the API server stores, and the configuration of its encryption.
type disk struct {
	t     *testing.T
	store storage.Store
	file  string
}

// keys writes a configuration of the encryption of Secrets.
func (d *disk) keys(providers string) {
	d.t.Helper()
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n" + providers
	if err := os.WriteFile(d.file, []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// encrypted is a change to the API server's configuration.
func (d *disk) encrypted(c *apiserver.Config) {
	d.store = c.Store
	ring, err := encryption.Open(d.t.Context(), encryption.Config{File: d.file, Reload: true, Log: c.Log})
	if err != nil {
		d.t.Fatal(err)
	}
	c.Store, c.Encryption = ring.Wrap(d.store), ring
	c.Kinds = registry.Kinds(c.Scheme, registry.Config{
		Access: c.Access, Store: c.Store, ServiceCIDR: c.ServiceCIDR, NodePorts: registry.PortRange{First: 30000, Last: 32767}, Now: time.Now,
	})
}

// holding counts the stored values of a resource that contain text.
func (d *disk) holding(resource, text string) (n int) {
	d.t.Helper()
	page, err := d.store.List(d.t.Context(), "/registry/", storage.ListOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
	for _, kv := range page.KVs {
		if strings.Contains(kv.Key, "/"+resource+"/") && bytes.Contains(kv.Value, []byte(text)) {
			n++
		}
	}
	return n
}

const (
	plain  = "  - identity: {}\n"
	bricks = "/apis/build.example.com/v1/namespaces/default/bricks"
)

func aKey(name string) string {
	return fmt.Sprintf("  - aesgcm: {keys: [{name: %s, secret: %s}]}\n", name, base64.StdEncoding.EncodeToString([]byte(strings.Repeat(name[:1], 32))))
}

func brickVersion(name string, stored bool) apiextensionsv1.CustomResourceDefinitionVersion {
	return apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Served: true, Storage: stored,
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {
				Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"size": {Type: "integer"}},
			}},
		}}}
}

// defineBricks creates a definition that stores v1, and 20 objects of it.
func (c *cluster) defineBricks() {
	c.t.Helper()
	create(c, &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "bricks.build.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "build.example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "bricks", Kind: "Brick"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{brickVersion("v1", true), brickVersion("v2", false)},
		},
	})
	c.until(time.Minute, "bricks are served", func() bool {
		_, _, err := c.Do(c.t.Context(), client.Request{Path: bricks})
		return err == nil
	})
	for i := range 20 {
		body, err := json.Marshal(map[string]any{"apiVersion": "build.example.com/v1", "kind": "Brick", "metadata": map[string]any{"name": fmt.Sprint("b", i)}})
		if err == nil {
			_, _, err = c.Do(c.t.Context(), client.Request{Method: http.MethodPost, Path: bricks, Body: body, Header: http.Header{"Content-Type": {"application/json"}}})
		}
		if err != nil {
			c.t.Fatal(err)
		}
	}
}

func migrationOf(name, group, resource string) *migrationv1.StorageVersionMigration {
	return &migrationv1.StorageVersionMigration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       migrationv1.StorageVersionMigrationSpec{Resource: metav1.GroupResource{Group: group, Resource: resource}},
	}
}

// outcomes returns how the migrations have ended, "" if one has not.
func (c *cluster) outcomes() string {
	var out []string
	for _, m := range all[*migrationv1.StorageVersionMigration](c, "") {
		switch of := m.Status.Conditions; {
		case meta.IsStatusConditionTrue(of, "Succeeded") && meta.IsStatusConditionFalse(of, "Running") && m.Status.ResourceVersion != "":
			out = append(out, m.Name+" succeeded")
		case meta.IsStatusConditionTrue(of, "Failed"):
			out = append(out, m.Name+" failed: "+meta.FindStatusCondition(of, "Failed").Message)
		default:
			return ""
		}
	}
	return strings.Join(out, "\n")
}

// A migration rewrites what is stored with an old key or in an old version, and survives
// crashes of the controllers.
func TestStorageVersionMigrations(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		d := &disk{t: t, file: filepath.Join(t.TempDir(), "encryption.yaml")}
		d.keys(plain)
		inCluster(t, 0, func(t *testing.T, c *cluster) {
			for i := range 20 {
				create(c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("s", i)}, Data: map[string][]byte{"word": []byte("hush")}})
			}
			c.defineBricks()
			edit(c, "bricks.build.example.com", func(crd *apiextensionsv1.CustomResourceDefinition) {
				crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{brickVersion("v1", false), brickVersion("v2", true)}
			})
			d.keys(aKey("key") + plain)
			time.Sleep(time.Minute) // the API server reloads the file
			if secrets, bricks := d.holding("secrets", "hush"), d.holding("bricks.build.example.com", "build.example.com/v1"); secrets != 20 || bricks != 20 {
				t.Fatalf("%d plain Secrets and %d bricks in v1 are stored, want 20 of each", secrets, bricks)
			}
			stop := c.disturb(seed)
			create(c, migrationOf("bricks", "build.example.com", "bricks"))
			create(c, migrationOf("bricks-again", "build.example.com", "bricks"))
			create(c, migrationOf("none", "build.example.com", "houses"))
			create(c, migrationOf("roles", "rbac.authorization.k8s.io", "clusterroles"))
			create(c, migrationOf("secrets", "", "secrets"))
			create(c, migrationOf("reviews", "authorization.k8s.io", "subjectaccessreviews"))
			c.until(time.Hour, "the migrations have ended", func() bool { return c.outcomes() != "" })
			stop()
			want := "bricks succeeded\nbricks-again succeeded\nnone failed: the server does not serve the resource houses.build.example.com\n" +
				"reviews failed: the resource subjectaccessreviews.authorization.k8s.io does not support list and patch\nroles succeeded\nsecrets succeeded"
			if got := c.outcomes(); got != want {
				t.Errorf("got %s\nwant %s", got, want)
			}
			if secrets, bricks := d.holding("secrets", "hush"), d.holding("bricks.build.example.com", "build.example.com/v1"); secrets != 0 || bricks != 0 {
				t.Errorf("%d plain Secrets and %d bricks in v1 are still stored", secrets, bricks)
			}
			c.dropFirstVersion()
			c.quiet()
		}, d.encrypted)
	})
}

// dropFirstVersion removes v1 from the definition of bricks, which is possible once
// nothing is stored in it.
func (c *cluster) dropFirstVersion() {
	c.t.Helper()
	crds := client.For[*apiextensionsv1.CustomResourceDefinition](c.Client)
	crd, err := crds.Get(c.t.Context(), "bricks.build.example.com")
	if err != nil {
		c.t.Fatal(err)
	}
	crd.Status.StoredVersions = []string{"v2"}
	if crd, err = crds.UpdateStatus(c.t.Context(), crd); err != nil {
		c.t.Fatal(err)
	}
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{brickVersion("v2", true)}
	if _, err = crds.Update(c.t.Context(), crd); err != nil {
		c.t.Fatal(err)
	}
	body, _, err := c.Do(c.t.Context(), client.Request{Path: strings.Replace(bricks, "v1", "v2", 1), Header: http.Header{"Accept": {"application/json"}}})
	if n := bytes.Count(body, []byte(`"kind":"Brick"`)); err != nil || n != 20 {
		c.t.Errorf("%d bricks in v2, want 20 (%v)", n, err)
	}
}

// A migration of more objects than a page holds rewrites all of them, also if it is created as
// soon as the key is.
func TestMigrationsReadPages(t *testing.T) {
	d := &disk{t: t, file: filepath.Join(t.TempDir(), "encryption.yaml")}
	d.keys(plain)
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		for i := range 1100 {
			create(c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("s", i)}, Data: map[string][]byte{"word": []byte("hush")}})
		}
		d.keys(aKey("key") + plain) // which the API server reads up to ten seconds later
		create(c, migrationOf("secrets", "", "secrets"))
		c.until(time.Hour, "the migration has ended", func() bool { return c.outcomes() != "" })
		if got := c.outcomes(); got != "secrets succeeded" || d.holding("secrets", "hush") > 0 {
			t.Errorf("%s, %d plain Secrets", got, d.holding("secrets", "hush"))
		}
	}, d.encrypted)
}

// Every resource of a cluster can be migrated: no rule refuses a patch that changes nothing.
func TestEveryResourceCanBeMigrated(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		create(c, deploymentOf("web", 3, "v1"))
		create(c, statefulSetOf("db", 2, "v1"))
		create(c, newCIDR("spare", "192.168.9.0/24"))
		create(c, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}},
		}})
		c.until(time.Minute, "the pods run", func() bool { return c.rolledOut("web") })
		catalog, err := discovery.New(c.Client).Catalog(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, r := range catalog.Resources {
			if r.Supports("list", "patch") && r.Group != migrationv1.GroupName {
				n++
				create(c, migrationOf(fmt.Sprint("m", n), r.Group, r.Kind.Resource))
			}
		}
		c.until(time.Hour, "the migrations have ended", func() bool { return c.outcomes() != "" })
		if got := strings.Count(c.outcomes(), "succeeded"); got != n || n < 50 {
			t.Errorf("%d of %d migrations succeeded:\n%s", got, n, c.outcomes())
		}
		c.quiet()
	})
}
