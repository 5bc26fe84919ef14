package authn_test

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/authn"
)

// keyFiles are the files that an operator replaces to rotate keys.
type keyFiles struct {
	t               *testing.T
	signing, public string
}

func (k keyFiles) sign(key *ecdsa.PrivateKey) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		k.t.Fatal(err)
	}
	k.write(k.signing, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func (k keyFiles) verify(keys ...*ecdsa.PrivateKey) {
	var text []byte
	for _, key := range keys {
		der, err := x509.MarshalPKIXPublicKey(key.Public())
		if err != nil {
			k.t.Fatal(err)
		}
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})...)
	}
	k.write(k.public, text)
}

// write replaces a file atomically and sets its time to the bubble's.
func (k keyFiles) write(name string, data []byte) {
	if err := os.WriteFile(name+".new", data, 0o600); err != nil {
		k.t.Fatal(err)
	}
	if err := os.Chtimes(name+".new", time.Now(), time.Now()); err != nil {
		k.t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		k.t.Fatal(err)
	}
}

// Rotating the key of two servers does not invalidate any unexpired token.
func TestKeysAreRotatedWithoutDowntime(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		const life = time.Hour
		old, young := newKey(t), newKey(t)
		var files []keyFiles
		var servers []*authn.Tokens
		for _, name := range []string{"a", "b"} {
			f := keyFiles{t, filepath.Join(dir, name+".key"), filepath.Join(dir, name+".pub")}
			f.sign(old)
			f.verify(old)
			keys, err := authn.KeyFiles(f.signing, []string{f.public})
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
			servers = append(servers, authn.NewTokens(authn.TokenConfig{Issuers: []string{"https://us"}, Keys: keys}))
		}
		have := objects{"serviceaccounts/ns/sa": &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sa", UID: "1"}}}
		issue := func(by *authn.Tokens) string {
			token, err := by.SignToken(t.Context(), authn.Claims{
				Namespace: "ns", ServiceAccount: authn.Ref{Name: "sa", UID: "1"}, Audiences: []string{"https://us"},
				IssuedAt: time.Now(), Expires: time.Now().Add(life),
			})
			if err != nil {
				t.Fatal(err)
			}
			return token
		}
		known := func(token string, at *authn.Tokens) bool {
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("Authorization", "Bearer "+token)
			user, _ := authn.Bearer(at, have, at.Audiences()).Authenticate(r)
			return user != nil
		}
		everywhere := func(step string, tokens ...string) {
			t.Helper()
			for i, token := range tokens {
				for j, s := range servers {
					if !known(token, s) {
						t.Fatalf("%s: server %d does not know token %d", step, j, i)
					}
				}
			}
		}
		reread := func() { time.Sleep(2 * time.Second) }

		first := issue(servers[0])
		everywhere("before", first)
		for _, f := range files { // 1. distribute the new public key
			f.verify(old, young)
		}
		reread()
		everywhere("both public keys", first, issue(servers[0]))
		if n := len(servers[0].Keys().Keys); n != 2 {
			t.Fatalf("%d keys are published, want 2", n)
		}
		for i, f := range files { // 2. replace the signing keys one by one
			f.sign(young)
			reread()
			everywhere("server signs anew", first, issue(servers[i]), issue(servers[1-i]))
		}
		last := issue(servers[1])
		time.Sleep(life + time.Minute) // 3. wait until the old key's tokens have expired
		for _, f := range files {
			f.verify(young)
		}
		reread()
		if known(first, servers[0]) || known(last, servers[0]) {
			t.Error("an expired token is good")
		}
		everywhere("after", issue(servers[0]), issue(servers[1]))
		files[0].write(files[0].signing, []byte("half a key")) // an invalid file changes nothing
		reread()
		everywhere("a broken file", issue(servers[0]))
	})
}
