package security

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/scheme"
)

// The attacked cluster.
var (
	pkiDir string
	server string
	roots  *x509.CertPool
	admin  *client.Client
)

func TestMain(m *testing.M) {
	if err := open(os.Getenv("KUBECONFIG")); err != nil {
		fmt.Fprintln(os.Stderr, "security:", err)
		os.Exit(1)
	}
	if lasts, err := time.ParseDuration(os.Getenv(observerEnv)); err == nil {
		if err := runObserver(lasts); err != nil {
			fmt.Fprintln(os.Stderr, "observer:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	go followMemory()
	os.Exit(m.Run())
}

func open(file string) error {
	if file == "" {
		return fmt.Errorf("KUBECONFIG names no cluster: run this by hack/test security, or under hack/with-cluster")
	}
	config, err := kubeconfig.Load(file)
	if err != nil {
		return err
	}
	cfg, _, err := config.Client("")
	if err != nil {
		return err
	}
	pkiDir, server, roots = filepath.Join(filepath.Dir(file), "pki"), cfg.Servers[0], cfg.TLS.RootCAs
	admin, err = client.New(scheme.New(), cfg)
	return err
}

// withCertificate returns a client with a certificate from the cluster's files.
func withCertificate(t *testing.T, name string) *client.Client {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(pkiDir, name+".crt"), filepath.Join(pkiDir, name+".key"))
	check(t, err)
	return connect(t, client.Config{TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}}})
}

// withToken returns a client with a bearer token.
func withToken(t *testing.T, token string) *client.Client {
	t.Helper()
	return connect(t, client.Config{
		TLS:   &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		Token: func() (string, error) { return token, nil },
	})
}

// impersonating returns the administrator's client impersonating a user.
func impersonating(t *testing.T, user string, groups ...string) *client.Client {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(pkiDir, "admin.crt"), filepath.Join(pkiDir, "admin.key"))
	check(t, err)
	return connect(t, client.Config{
		TLS:    &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}},
		Header: http.Header{"Impersonate-User": {user}, "Impersonate-Group": groups},
	})
}

func connect(t *testing.T, cfg client.Config) *client.Client {
	t.Helper()
	cfg.Servers = []string{server}
	c, err := client.New(scheme.New(), cfg)
	check(t, err)
	t.Cleanup(c.CloseIdle)
	return c
}

// space creates a namespace for a test.
func space(t *testing.T) string {
	t.Helper()
	namespaces := client.For[*corev1.Namespace](admin)
	ns, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "abuse-"}})
	check(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := namespaces.Delete(ctx, ns.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the namespace has its service account", func() error {
		_, err := client.For[*corev1.ServiceAccount](admin).In(ns.Name).Get(t.Context(), "default")
		return err
	})
	return ns.Name
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// forbidden checks that err is a 403.
func forbidden(t *testing.T, what string, err error) {
	t.Helper()
	if !apierrors.IsForbidden(err) {
		t.Errorf("%s: got %v, want it to be forbidden", what, err)
	}
}

func eventually(t *testing.T, what string, ok func() error) {
	t.Helper()
	end, tick := time.After(time.Minute), time.NewTicker(50*time.Millisecond)
	defer tick.Stop()
	for {
		err := ok()
		if err == nil {
			return
		}
		select {
		case <-end:
			t.Fatalf("%s: not within a minute: %v", what, err)
		case <-tick.C:
		}
	}
}
