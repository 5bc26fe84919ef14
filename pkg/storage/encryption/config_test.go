package encryption

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const configHead = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"

// Keys for configurations. They must never appear in an error.
const (
	key16 = "c2VjcmV0IGlzIHNlY3VyZQ=="
	key32 = "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoxMjM0NTY="
)

func TestParse(t *testing.T) {
	for name, row := range map[string]struct {
		reason string
		file   string // after the head; all of it if it begins with a !
		want   []string
	}{
		"upstream's example": {
			reason: "wildcards after what they would mask",
			file: `- resources: [events]
  providers: [{identity: {}}]
- resources: [secrets, configmaps, pandas.awesome.bears.example]
  providers: [{aescbc: {keys: [{name: key1, secret: ` + key16 + `}]}}]
- resources: ['*.apps']
  providers: [{aesgcm: {keys: [{name: key2, secret: ` + key32 + `}]}}]
- resources: ['*.*']
  providers: [{secretbox: {keys: [{name: key3, secret: ` + key32 + `}]}}, {kms: {apiVersion: v2, name: k, endpoint: 'unix:///@kms', timeout: 5s}}]
`,
		},
		"empty":          {reason: "a forgotten file is no wish for plain text", file: "!", want: []string{"the file is empty"}},
		"two documents":  {reason: "a second one would be ignored", file: "!" + configHead + "---\n" + configHead, want: []string{"more than one document"}},
		"another kind":   {reason: "a file for another flag", file: "!apiVersion: v1\nkind: Config\n", want: []string{"must have apiVersion: apiserver.config.k8s.io/v1 and kind: EncryptionConfiguration"}},
		"no resources":   {reason: "nothing is configured", file: "", want: []string{"resources: Required value"}},
		"all at once":    {reason: "who mends a file wants to know all that is wrong", file: "- {}\n- resources: ['*']\n  providers: [{}]\n  provider: 1\n", want: []string{`unknown field "resources[1].provider"`, "resources[0].resources: Required value", "resources[0].providers: Required value", "resources[1].resources[0]: Invalid value: \"*\": use '*.'", "resources[1].providers[0]: Required value: provider does not contain"}},
		"duplicate keys": {reason: "YAML's last one would win silently", file: "- resources: [a]\n  resources: [b]\n  providers: [{identity: {}}]\n", want: []string{"already set in map"}},
		"overlap":        {reason: "the wildcard would take all", file: "- resources: [secrets, '*.']\n  providers: [{identity: {}}]\n", want: []string{"resources[0].resources: Invalid value", "overlapping resources"}},
		"masked":         {reason: "an earlier wildcard takes it", file: "- resources: ['*.apps']\n  providers: [{identity: {}}]\n- resources: [deployments.apps]\n  providers: [{identity: {}}]\n", want: []string{`resources[1].resources[0]: Invalid value: "deployments.apps": resource "deployments.apps" is masked by earlier rule "*.apps"`}},
		"twice":          {reason: "one of them is a slip", file: "- resources: [secrets, secrets]\n  providers: [{identity: {}}]\n", want: []string{"cannot be specified multiple times"}},
		"odd names":      {reason: "each of them would match nothing", file: "- resources: [Secrets, secrets.*, ingresses.extensions, x.events.k8s.io, serviceipallocations, a/b]\n  providers: [{identity: {}}]\n", want: []string{"resources[0].resources[0]", "capital", "resources[0].resources[1]", "across groups", "resources[0].resources[2]", "extensions", "resources[0].resources[3]", "events", "resources[0].resources[4]", "REST", "resources[0].resources[5]"}},
		"two providers":  {reason: "their order would be unknown", file: "- resources: [a]\n  providers: [{identity: {}, aesgcm: {keys: [{name: a, secret: " + key16 + "}]}}]\n", want: []string{"resources[0].providers[0]: Forbidden: more than one provider"}},
		"keys": {
			reason: "what is wrong with keys is said without them",
			file:   "- resources: [a]\n  providers:\n  - aesgcm: {keys: []}\n  - aescbc: {keys: [{secret: " + key16 + "}, {name: a}, {name: b, secret: '!" + key16 + "'}]}\n  - secretbox: {keys: [{name: c, secret: " + key16 + "}]}\n",
			want:   []string{"providers[0].aesgcm.keys: Required", "providers[1].aescbc.keys[0].name: Required", "providers[1].aescbc.keys[1].secret: Required", `providers[1].aescbc.keys[2].secret: Invalid value: "REDACTED"`, "providers[2].secretbox.keys[0].secret", "got 16, expected one of [32]"},
		},
		"a key of another type": {reason: "the decoder's words may not quote it either", file: "- resources: [a]\n  providers: [{aesgcm: {keys: [{name: a, secret: {" + key16 + ": 1}}]}}]\n", want: []string{"cannot unmarshal"}},
		"kms": {
			reason: "v1 is what upstream falls back to, and has given up",
			file:   "- resources: [a]\n  providers:\n  - kms: {name: a, endpoint: 'unix:///a'}\n  - kms: {name: a, apiVersion: v2, endpoint: 'http://a', timeout: -1s, cachesize: 5}\n  - kms: {name: 'a:b', apiVersion: v3}\n",
			want: []string{`providers[0].kms.apiVersion: Unsupported value: "v1": supported values: "v2"`, "providers[1].kms.name", "duplicate", "providers[1].kms.timeout", "providers[1].kms.endpoint", `unsupported scheme "http"`, "providers[1].kms.cachesize",
				"providers[2].kms.name", "must not contain ':'", "providers[2].kms.endpoint", "mandatory", "providers[2].kms.apiVersion"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			file, whole := strings.CutPrefix(row.file, "!")
			if !whole {
				file = configHead + row.file
			}
			_, err := Parse([]byte(file))
			if (err == nil) != (row.want == nil) {
				t.Fatalf("%s: got %v", row.reason, err)
			}
			for _, part := range row.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: the error does not say %q:\n%v", row.reason, part, err)
				}
			}
			if err != nil && (strings.Contains(err.Error(), key16) || strings.Contains(err.Error(), key32)) {
				t.Errorf("the error tells a key:\n%v", err)
			}
		})
	}
}

func TestWhichProvidersAResourceHas(t *testing.T) {
	c, err := Parse([]byte(configHead + `
- resources: [secrets, deployments.apps]
  providers: [{identity: {}}]
- resources: ['*.apps', '*.']
  providers: [{identity: {}}]
- resources: ['*.*']
  providers: [{identity: {}}]
`))
	if err != nil {
		t.Fatal(err)
	}
	all, err := newRules(c, newMetrics(nil, ""), nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Resources = c.Resources[:1]
	named, err := newRules(c, newMetrics(nil, ""), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][2]string{}
	for _, key := range []string{"secrets/ns/a", "secretsauce/a", "configmaps/ns/a", "deployments.apps/ns/a", "replicasets.apps/ns/a", "roles.rbac.authorization.k8s.io/ns/a"} {
		got[key] = [2]string{all.of(registry + key).resource, named.of(registry + key).resource}
	}
	want := map[string][2]string{
		"secrets/ns/a": {"secrets", "secrets"}, "secretsauce/a": {"*.", ""}, "configmaps/ns/a": {"*.", ""},
		"deployments.apps/ns/a": {"deployments.apps", "deployments.apps"}, "replicasets.apps/ns/a": {"*.apps", ""},
		"roles.rbac.authorization.k8s.io/ns/a": {"*.*", ""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("with and without wildcards (-want +got):\n%s", diff)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(configHead + "- resources: [secrets]\n  providers: [{aesgcm: {keys: [{name: a, secret: " + key16 + "}]}}, {identity: {}}]\n"))
	f.Add([]byte(configHead + "- resources: ['*.*']\n  providers: [{kms: {apiVersion: v2, name: k, endpoint: 'unix:///@kms'}}]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse(data)
		if err != nil {
			return
		}
		// What is accepted can be built.
		r, err := newRules(c, newMetrics(nil, ""), func(c *KMSConfiguration) (provider, error) {
			_, err := c.socket()
			return identity{}, err
		})
		if err != nil {
			t.Fatalf("a valid configuration cannot be built: %v", err)
		}
		if l := r.of("/registry/secrets/a/b"); len(l.entries) == 0 {
			t.Fatal("a resource without any provider")
		}
	})
}

func FuzzEnvelope(f *testing.F) {
	f.Add((&envelope{data: []byte("x"), keyID: "1", source: []byte("s"), annotations: map[string][]byte{"a.b.c": []byte("1")}, sourceType: sourceSeed}).encode())
	f.Add([]byte("\x0a\x01x\x12\x011\x1a\x01s(\x02"))
	f.Add([]byte("\x0a\x01x\x12\x011\x1a\x01s\"\x0a\x0a\x05a.d.c2\x01000")) // an annotation without a value
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := parseEnvelope(data)
		if err != nil {
			return
		}
		again, err := parseEnvelope(e.encode())
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if diff := cmp.Diff(e, again, cmp.AllowUnexported(envelope{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("written and read again (-first +again):\n%s", diff)
		}
	})
}

// FuzzOpen checks that opening arbitrary stored bytes does not panic.
func FuzzOpen(f *testing.F) {
	c, err := Parse([]byte(configHead + `
- resources: ['*.*']
  providers:
  - aesgcm: {keys: [{name: a, secret: ` + key16 + `}]}
  - aescbc: {keys: [{name: a, secret: ` + key16 + `}]}
  - secretbox: {keys: [{name: a, secret: ` + key32 + `}]}
  - identity: {}
`))
	if err != nil {
		f.Fatal(err)
	}
	r, err := newRules(c, newMetrics(nil, ""), nil)
	if err != nil {
		f.Fatal(err)
	}
	const path = "/registry/secrets/a/b"
	l := r.of(path)
	for i := range l.entries {
		one := &list{entries: l.entries[i:], metrics: l.metrics}
		sealed, err := one.seal(f.Context(), []byte("hello"), path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(sealed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := string(data)
		_, _, err := l.open(t.Context(), data, path)
		if string(data) != before {
			t.Error("the stored bytes were modified")
		}
		if strings.HasPrefix(before, encryptedPrefix+"other") && err == nil {
			t.Error("a value of an unknown provider was read")
		}
	})
}
