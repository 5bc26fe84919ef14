package bootstraptoken_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client/bootstraptoken"
)

func TestATokenSurvivesItsSecret(t *testing.T) {
	token, err := bootstraptoken.New()
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := bootstraptoken.Parse(token.String()); !ok || got != token {
		t.Errorf("%s is read as %v", token, got)
	}
	want := bootstraptoken.Spec{
		Token: token, Expires: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), Description: "for tests",
		Groups: []string{"system:bootstrappers:a", "system:bootstrappers:b:c"}, Usages: []string{"authentication", "signing"},
	}
	got, err := bootstraptoken.FromSecret(want.ToSecret())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got.Expired(want.Expires.Add(-time.Second)) || !got.Expired(want.Expires) {
		t.Error("it ends at another time")
	}
}

func TestBadSecrets(t *testing.T) {
	for name, change := range map[string]func(*corev1.Secret){
		"another type":           func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque },
		"another name":           func(s *corev1.Secret) { s.Name = "bootstrap-token-zzzzzz" },
		"no secret":              func(s *corev1.Secret) { delete(s.Data, "token-secret") },
		"a time that is none":    func(s *corev1.Secret) { s.Data["expiration"] = []byte("tomorrow") },
		"a group of others":      func(s *corev1.Secret) { s.Data["auth-extra-groups"] = []byte("system:masters") },
		"a group that ends in -": func(s *corev1.Secret) { s.Data["auth-extra-groups"] = []byte("system:bootstrappers:a-") },
	} {
		t.Run(name, func(t *testing.T) {
			s := bootstraptoken.Spec{Token: bootstraptoken.Token{ID: "abcdef", Secret: "0123456789abcdef"}}.ToSecret()
			change(s)
			_, err := bootstraptoken.FromSecret(s)
			if err == nil {
				t.Fatal("it was accepted")
			}
			if strings.Contains(err.Error(), "0123456789abcdef") {
				t.Errorf("the error tells the secret: %v", err)
			}
		})
	}
}

// Computed by another implementation of RFC 7515.
func TestSignature(t *testing.T) {
	token := bootstraptoken.Token{ID: "joshua", Secret: "secret"}
	const want = "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..anRe5X6-9N1MQdmSykWtZeO90MJEhiNSrI5NtqYJpJI"
	if got := token.Sign([]byte("payload")); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for signature, text := range map[string]string{want: "another", want + "A": "payload", "x..y": "payload", "": "payload", strings.Replace(want, "..", ".", 1): "payload"} {
		if token.Verify(signature, []byte(text)) {
			t.Errorf("%q is a signature of %q", signature, text)
		}
	}
	if !token.Verify(want, []byte("payload")) {
		t.Error("its own signature is refused")
	}
}

func FuzzVerify(f *testing.F) {
	token := bootstraptoken.Token{ID: "abcdef", Secret: "0123456789abcdef"}
	f.Add(token.Sign([]byte("a")), []byte("b"))
	f.Add("..", []byte(""))
	f.Fuzz(func(t *testing.T, signature string, text []byte) {
		if token.Verify(signature, text) && signature != token.Sign(text) {
			t.Fatalf("%q signs %q", signature, text)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("abcdef.0123456789abcdef")
	f.Add("abcdef.0123456789ABCDEF")
	f.Add("..")
	f.Fuzz(func(t *testing.T, text string) {
		if token, ok := bootstraptoken.Parse(text); ok && token.String() != text {
			t.Fatalf("%q is read as %q", text, token)
		}
	})
}

func FuzzFromSecret(f *testing.F) {
	f.Add("abcdef", "0123456789abcdef", "2030-01-02T03:04:05Z", "system:bootstrappers:x")
	f.Fuzz(func(t *testing.T, id, secret, expiration, groups string) {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id}, Type: bootstraptoken.SecretType, Data: map[string][]byte{
			"token-id": []byte(id), "token-secret": []byte(secret), "expiration": []byte(expiration), "auth-extra-groups": []byte(groups),
		}}
		spec, err := bootstraptoken.FromSecret(s)
		if err != nil {
			return
		}
		for _, g := range spec.Groups {
			if !strings.HasPrefix(g, "system:bootstrappers:") {
				t.Fatalf("the group %q", g)
			}
		}
	})
}
