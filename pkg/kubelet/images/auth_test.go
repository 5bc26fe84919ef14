package images

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func dockerSecret(text string) *corev1.Secret {
	return &corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(text)}}
}

func TestKeyringMatchesImages(t *testing.T) {
	ring := newKeyring()
	for _, s := range []*corev1.Secret{
		dockerSecret(`{"auths":{"https://index.docker.io/v1/":{"auth":"aHViOnB3"},"registry.example.org":{"username":"any","password":"pw"},
			"registry.example.org/team":{"username":"team","password":"pw"},"*.example.com":{"username":"star","password":"pw"},
			"a.example.com":{"username":"exact","password":"pw"},"https://v2.example.net/v2/":{"username":"v2"},"http://plain.example.net:81":{"username":"plain"},
			"https://v1.example.net/v1/team":{"username":"v1"},"pre*.example.io":{"username":"glob"},"bad host":{"username":"bad"},"%zz":{"username":"bad"}}}`),
		dockerSecret(`{"auths":{"registry.example.org":{"username":"second","password":"pw"}}}`),
		{Type: corev1.SecretTypeDockercfg, Data: map[string][]byte{corev1.DockerConfigKey: []byte(`{"old.example.net:5000":{"auth":"b2xkOnB3"}}`)}},
		{Type: corev1.SecretTypeOpaque, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte("nonsense")}},
		{Type: corev1.SecretTypeDockercfg},
	} {
		if err := ring.add(s); err != nil {
			t.Fatal(err)
		}
	}
	for image, want := range map[string][]string{
		"busybox":                                             {"hub"},
		"user/app:1":                                          {"hub"},
		"docker.io/user/app@sha256:abc":                       {"hub"},
		"index.docker.io/user/app":                            {"hub"},
		"registry.example.org/team/app:2":                     {"team", "any", "second"},
		"registry.example.org/teamwork/app":                   {"team", "any", "second"}, // paths are prefixes, as upstream
		"registry.example.org/other":                          {"any", "second"},
		"registry.example.org:443/team/app":                   nil, // ports are compared as they are written
		"a.example.com/app":                                   {"exact", "star"},
		"b.example.com/app":                                   {"star"},
		"a.b.example.com/app":                                 nil,
		"example.com/app":                                     nil,
		"prefix.example.io/app":                               {"glob"},
		"v2.example.net/any/app":                              {"v2"},
		"v1.example.net/team/app":                             {"v1"},
		"v1.example.net/app":                                  nil,
		"plain.example.net:81/app":                            {"plain"},
		"old.example.net:5000/app:1":                          {"old"},
		"old.example.net/app:1":                               nil,
		"elsewhere.example.net/registry.example.org/team/app": nil,
	} {
		var got []string
		for _, c := range ring.find(image) {
			got = append(got, c.auth.Username)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", image, diff)
		}
	}
}

// The runtime gets credentials that containerd's CRI plugin (1.6 to 2.x) accepts: it
// drops those whose ServerAddress is not a URL with the registry's host.
func TestCredentialsReachTheRuntime(t *testing.T) {
	encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	for name, tc := range map[string]struct {
		entry string
		want  *runtimeapi.AuthConfig
	}{
		"Password":      {`{"username":"u","password":"p"}`, &runtimeapi.AuthConfig{Username: "u", Password: "p"}},
		"Auth":          {`{"auth":"` + encode("u:p:q") + `"}`, &runtimeapi.AuthConfig{Username: "u", Password: "p:q"}},
		"AuthUnpadded":  {`{"auth":"` + strings.TrimRight(encode("u:pp"), "=") + `"}`, &runtimeapi.AuthConfig{Username: "u", Password: "pp"}},
		"AuthWins":      {`{"username":"x","password":"y","auth":"` + encode("u:p") + `"}`, &runtimeapi.AuthConfig{Username: "u", Password: "p"}},
		"IdentityToken": {`{"auth":"` + encode("00000000-0000-0000-0000-000000000000:") + `","identitytoken":"t"}`, &runtimeapi.AuthConfig{IdentityToken: "t"}},
		"RegistryToken": {`{"registrytoken":"t"}`, &runtimeapi.AuthConfig{RegistryToken: "t"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, server := range []string{"localhost:5055", "http://localhost:5055", "https://localhost:5055/v2/"} {
				ring := newKeyring()
				if err := ring.add(dockerSecret(`{"auths":{"` + server + `":` + tc.entry + `}}`)); err != nil {
					t.Fatal(err)
				}
				got := ring.find("localhost:5055/private/web:v1")
				if len(got) != 1 || !proto.Equal(got[0].auth, tc.want) {
					t.Errorf("key %s: %v, want %v", server, got, tc.want)
				}
			}
		})
	}
}

func TestUnusableSecretsAreNotQuoted(t *testing.T) {
	for name, text := range map[string]string{
		"NotJSON":      `hunter2`,
		"WrongType":    `{"auths":{"x":{"password":271828}}}`,
		"NotBase64":    `{"auths":{"x":{"auth":"hunter2!"}}}`,
		"NoColon":      `{"auths":{"x":{"auth":"` + base64.StdEncoding.EncodeToString([]byte("hunter2")) + `"}}}`,
		"NotAnObject":  `{"auths":["hunter2"]}`,
		"Unterminated": `{"auths":{"x":{"auth":"hunter2`,
	} {
		err := newKeyring().add(dockerSecret(text))
		if err == nil {
			t.Errorf("%s is taken", name)
			continue
		}
		for _, secret := range []string{"hunter2", "271828", "aHVudGVyMg"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the error quotes the secret: %v", name, err)
			}
		}
	}
}

func FuzzKeyring(f *testing.F) {
	f.Add(`{"auths":{"x":{"auth":"aHViOnB3"}}}`, "x/y:1")
	f.Add(`{"auths":{"[":{"auth":"!"}}}`, "[")
	f.Add(`{"auths":{"https://*.x.org:5/v1/a?b#c":null}}`, "a.x.org:5/a/b@sha256:0")
	f.Fuzz(func(t *testing.T, text, image string) {
		for _, s := range []*corev1.Secret{
			dockerSecret(text),
			{Type: corev1.SecretTypeDockercfg, Data: map[string][]byte{corev1.DockerConfigKey: []byte(text)}},
		} {
			ring := newKeyring()
			if ring.add(s) != nil {
				continue
			}
			for _, c := range ring.find(image) {
				if c.auth == nil || c.auth.ServerAddress != "" || c.secret.CredentialHash == "" {
					t.Errorf("%q for %q: %+v", text, image, c)
				}
			}
		}
	})
}

func TestRepositories(t *testing.T) {
	for image, want := range map[string]string{
		"a": "docker.io/library/a", "a:1": "docker.io/library/a", "u/a@sha256:abc": "docker.io/u/a", "docker.io/a": "docker.io/library/a",
		"index.docker.io/u/a:1": "docker.io/u/a", "h:5000/a": "h:5000/a", "h:5000/a:1@sha256:abc": "h:5000/a", "localhost/a": "localhost/a",
		"Host/a": "Host/a", "r.example.org/a/b:c": "r.example.org/a/b",
	} {
		if got := repository(image); got != want {
			t.Errorf("%s is of %s, want %s", image, got, want)
		}
	}
}

func TestPatternsOfProviders(t *testing.T) {
	for _, row := range []struct {
		pattern, image string
		want           bool
	}{
		{"*.dkr.ecr.example.com", "1.dkr.ecr.example.com/a/b:v1", true},
		{"*.example.com", "a.b.example.com/p", false},
		{"registry.example.com:8080/path", "registry.example.com:8080/path/p@sha256:0", true},
		{"registry.example.com", "registry.example.com:8080/p", false},
		{"docker.io", "busybox", true},
		{"r*.example.com/team", "r1.example.com/other", false},
	} {
		if err := CheckPattern(row.pattern); err != nil {
			t.Error(err)
		}
		if got := Matches(row.pattern, row.image); got != row.want {
			t.Errorf("%s for %s: %t", row.pattern, row.image, got)
		}
	}
	for _, bad := range []string{"", "https://", "a[.example.com", "a.example.com/*", ":80"} {
		if CheckPattern(bad) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
