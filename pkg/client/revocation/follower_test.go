package revocation_test

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/clienttest"
	"podium/pkg/client/revocation"
)

func newFollower(t *testing.T, api *clienttest.Server, ca, file string) *revocation.Follower {
	t.Helper()
	f, err := revocation.NewFollower(revocation.Config{Client: api.Client(t), ClientCA: ca, File: file, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// run runs a follower in a bubble until stop is called.
func run(t *testing.T, f *revocation.Follower) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

func published(list []byte) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: revocation.Namespace, Name: revocation.ConfigMap}, Data: map[string]string{revocation.Key: string(list)}}
}

func caFile(t *testing.T, authorities ...*authority) string {
	t.Helper()
	var text []byte
	for _, a := range authorities {
		text = append(text, a.pem()...)
	}
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t, "ca")
		bad, worse := []*x509.Certificate{a.issue("bad")}, []*x509.Certificate{a.issue("worse")}
		api := clienttest.New()
		maps := client.For[*corev1.ConfigMap](api.Client(t)).In(revocation.Namespace)
		ca, file := caFile(t, a), filepath.Join(t.TempDir(), "revoked.crl")

		f := newFollower(t, api, ca, file)
		if _, known := f.Present(); known {
			t.Error("it knows a list before it has asked")
		}
		stop := run(t, f)
		time.Sleep(2 * time.Second)
		if list, known := f.Present(); !known || list.Any(bad) {
			t.Errorf("nothing is published: known is %v", known)
		}
		m, err := maps.Create(t.Context(), published(a.list(bad...)))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if !f.List().Any(bad) || f.List().Any(worse) {
			t.Error("the published list is not in force")
		}
		m.Data[revocation.Key] = string(a.list(worse...)) // an older list of another server
		if m, err = maps.Update(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if !f.List().Any(bad) || !f.List().Any(worse) {
			t.Error("a list that lacks something has un-revoked it")
		}
		if err := maps.Delete(t.Context(), m.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if !f.List().Any(bad) {
			t.Error("its deletion has un-revoked everything")
		}
		stop()
		// A new follower uses the stored list when the API is unreachable.
		api.Before = func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") }
		f = newFollower(t, api, ca, file)
		defer run(t, f)()
		if list, known := f.Present(); !known || !list.Any(bad) || !list.Any(worse) {
			t.Errorf("after a restart: known is %v", known)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the file: %v, %v", info, err)
		}
	})
}

// Without a stored list and without the API, the follower has no list.
func TestNothingIsKnownWithoutTheAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var up atomic.Bool
		api := clienttest.New()
		api.Before = func(*http.Request) (*http.Response, error) {
			if !up.Load() {
				return nil, errors.New("connection refused")
			}
			return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: http.NoBody}, nil
		}
		f := newFollower(t, api, caFile(t, newAuthority(t, "ca")), "")
		defer run(t, f)()
		time.Sleep(time.Minute)
		if _, known := f.Present(); known {
			t.Error("it says that it knows")
		}
		up.Store(true) // an API server that forbids reading it publishes no list
		time.Sleep(time.Minute)
		if _, known := f.Present(); !known {
			t.Error("an API server without the role keeps everybody out")
		}
	})
}

// A list counts as soon as its authority is trusted.
func TestAListOfAnAuthorityThatIsTrustedLater(t *testing.T) {
	a, b := newAuthority(t, "old"), newAuthority(t, "new")
	bad := []*x509.Certificate{b.issue("bad")}
	api := clienttest.New()
	if _, err := client.For[*corev1.ConfigMap](api.Client(t)).In(revocation.Namespace).Create(t.Context(), published(b.list(bad...))); err != nil {
		t.Fatal(err)
	}
	ca := caFile(t, a)
	f := newFollower(t, api, ca, "")
	defer run(t, f)()
	for {
		if _, known := f.Present(); known {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if f.List().Any(bad) {
		t.Error("an authority that is not trusted revokes")
	}
	if err := os.WriteFile(ca, append(a.pem(), b.pem()...), 0o600); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); !f.List().Any(bad); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the authority is trusted, its list is not")
		}
	}
	if strings.Contains(string(f.List().PEM()), "CERTIFICATE") {
		t.Error("the list holds something else")
	}
}
