package authn_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
)

// objects are the objects that tokens are bound to, by resource/namespace/name.
type objects map[string]scheme.Object

func (o objects) Get(_ context.Context, gvr schema.GroupVersionResource, namespace, name string) (scheme.Object, error) {
	if obj := o[gvr.Resource+"/"+namespace+"/"+name]; obj != nil {
		return obj, nil
	}
	return nil, apierrors.NewNotFound(gvr.GroupResource(), name)
}

// behind are objects with a stale cache.
type behind struct{ objects, copy objects }

func (b behind) Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (scheme.Object, error) {
	return b.objects.Get(ctx, gvr, namespace, name)
}

func (b behind) Recent(_ context.Context, gvr schema.GroupVersionResource, namespace, name string) scheme.Object {
	return b.copy[gvr.Resource+"/"+namespace+"/"+name]
}

// A stale cache does not invalidate a token; a positive result from it
// suffices.
func TestTokensOfWhatWasJustMade(t *testing.T) {
	now := time.Now()
	tokens := newTokens(t, "https://us", newKey(t), now)
	account := func(uid types.UID) *corev1.ServiceAccount {
		return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{UID: uid}}
	}
	token, err := tokens.SignToken(t.Context(), authn.Claims{
		Namespace: "ns", ServiceAccount: authn.Ref{Name: "sa", UID: "2"}, Audiences: []string{"https://us"}, IssuedAt: now, Expires: now.Add(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
	const key = "serviceaccounts/ns/sa"
	for name, tc := range map[string]struct {
		have behind
		ok   bool
	}{
		"seen":                       {behind{nil, objects{key: account("2")}}, true},
		"made just now":              {behind{objects{key: account("2")}, nil}, true},
		"made again just now":        {behind{objects{key: account("2")}, objects{key: account("1")}}, true},
		"neither here nor there":     {behind{nil, nil}, false},
		"another, here and there":    {behind{objects{key: account("1")}, objects{key: account("1")}}, false},
		"another, and not even seen": {behind{objects{key: account("1")}, nil}, false},
	} {
		who, err := tokens.AuthenticateToken(t.Context(), tc.have, authn.Presented{Token: token, Audiences: []string{"https://us"}})
		if (who != nil) != tc.ok || (err == nil) != tc.ok {
			t.Errorf("%s: %v, %v", name, who, err)
		}
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newTokens(t testing.TB, issuer string, key *ecdsa.PrivateKey, now time.Time) *authn.Tokens {
	keys, err := authn.NewKeySet(key)
	if err != nil {
		t.Fatal(err)
	}
	return authn.NewTokens(authn.TokenConfig{Issuers: []string{issuer}, Keys: func() *authn.KeySet { return keys }, Now: func() time.Time { return now }})
}

func TestTokens(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	key := newKey(t)
	meta := func(name, uid string, deleted time.Duration) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid)}
		if deleted != 0 {
			at := metav1.NewTime(now.Add(-deleted))
			m.DeletionTimestamp = &at
		}
		return m
	}
	have := objects{
		"serviceaccounts/ns/sa": &corev1.ServiceAccount{ObjectMeta: meta("sa", "1", 0)},
		"pods/ns/lives":         &corev1.Pod{ObjectMeta: meta("lives", "2", 0)},
		"pods/ns/ends":          &corev1.Pod{ObjectMeta: meta("ends", "3", 30*time.Second)},
		"secrets/ns/lock":       &corev1.Secret{ObjectMeta: meta("lock", "6", 0)},
		"nodes//host":           &corev1.Node{ObjectMeta: meta("host", "7", 0)},
		"pods/ns/ended":         &corev1.Pod{ObjectMeta: meta("ended", "4", 2*time.Minute)},
	}
	claims := func(change func(*authn.Claims)) authn.Claims {
		c := authn.Claims{
			ID: "id", Namespace: "ns", ServiceAccount: authn.Ref{Name: "sa", UID: "1"},
			Audiences: []string{"https://us"}, IssuedAt: now.Add(-time.Minute), Expires: now.Add(time.Hour),
		}
		if change != nil {
			change(&c)
		}
		return c
	}
	pod := func(name, uid string) func(*authn.Claims) {
		return func(c *authn.Claims) { c.Pod = &authn.Ref{Name: name, UID: types.UID(uid)} }
	}
	signer := newTokens(t, "https://us", key, now)
	for _, tc := range []struct {
		name   string
		by     *authn.Tokens
		change func(*authn.Claims)
		ok     bool
	}{
		{"good", signer, nil, true},
		{"bound to a pod", signer, pod("lives", "2"), true},
		{"bound to a pod that is going", signer, pod("ends", "3"), true},
		{"bound to a pod that went", signer, pod("ended", "4"), false},
		{"bound to no pod", signer, pod("absent", "5"), false},
		{"bound to a pod of that name before", signer, pod("lives", "9"), false},
		{"bound to a secret", signer, func(c *authn.Claims) { c.Secret = &authn.Ref{Name: "lock", UID: "6"} }, true},
		{"bound to no secret", signer, func(c *authn.Claims) { c.Secret = &authn.Ref{Name: "key", UID: "6"} }, false},
		{"bound to a node", signer, func(c *authn.Claims) { c.Node = &authn.Ref{Name: "host", UID: "7"} }, true},
		{"bound to a node of that name before", signer, func(c *authn.Claims) { c.Node = &authn.Ref{Name: "host", UID: "0"} }, false},
		{"of a pod whose node is gone", signer, func(c *authn.Claims) {
			c.Pod, c.Node = &authn.Ref{Name: "lives", UID: "2"}, &authn.Ref{Name: "gone", UID: "0"}
		}, true},
		{"expired by a faster clock", signer, func(c *authn.Claims) { c.Expires = now.Add(-time.Second) }, true},
		{"expired", signer, func(c *authn.Claims) { c.Expires = now.Add(-2 * time.Minute) }, false},
		{"issued by a faster clock", signer, func(c *authn.Claims) { c.IssuedAt = now.Add(time.Second) }, true},
		{"not yet", signer, func(c *authn.Claims) { c.IssuedAt = now.Add(2 * time.Minute) }, false},
		{"for others", signer, func(c *authn.Claims) { c.Audiences = []string{"vault"} }, false},
		{"of an account deleted and made again", signer, func(c *authn.Claims) { c.ServiceAccount.UID = "0" }, false},
		{"of another issuer", newTokens(t, "https://them", key, now), nil, false},
		{"of another key", newTokens(t, "https://us", newKey(t), now), nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			token, err := tc.by.SignToken(context.Background(), claims(tc.change))
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("Authorization", "Bearer "+token)
			user, err := authn.Bearer(signer, have, signer.Audiences()).Authenticate(r)
			if (user != nil) != tc.ok || (err == nil) != tc.ok {
				t.Fatalf("user %+v, error %v", user, err)
			}
			if err != nil && strings.Contains(err.Error(), strings.Split(token, ".")[2]) {
				t.Errorf("the error tells the token: %v", err)
			}
		})
	}
	t.Run("who it is", func(t *testing.T) {
		token, err := signer.SignToken(context.Background(), claims(pod("lives", "2")))
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		user, err := authn.Bearer(signer, have, signer.Audiences()).Authenticate(r)
		if err != nil {
			t.Fatal(err)
		}
		want := &request.User{
			Name: "system:serviceaccount:ns:sa", UID: "1",
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"},
			Extra: map[string][]string{
				"authentication.kubernetes.io/credential-id": {"JTI=id"},
				"authentication.kubernetes.io/pod-name":      {"lives"}, "authentication.kubernetes.io/pod-uid": {"2"},
			},
		}
		if diff := cmp.Diff(want, user); diff != "" {
			t.Error(diff)
		}
	})
}

func FuzzToken(f *testing.F) {
	now := time.Now()
	tokens := newTokens(f, "https://us", newKey(f), now)
	good, err := tokens.SignToken(context.Background(), authn.Claims{Namespace: "a", ServiceAccount: authn.Ref{Name: "b"}, Audiences: []string{"https://us"}, IssuedAt: now, Expires: now.Add(time.Hour)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add("a.b.c")
	check := authn.Bearer(tokens, objects{"serviceaccounts/a/b": &corev1.ServiceAccount{}}, tokens.Audiences())
	f.Fuzz(func(t *testing.T, token string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		if user, _ := check.Authenticate(r); user != nil && user.Name != "system:serviceaccount:a:b" {
			t.Fatalf("%q is %+v", token, user)
		}
	})
}
