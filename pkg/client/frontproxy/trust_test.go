package frontproxy_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/access"
	"podium/pkg/client/clienttest"
	"podium/pkg/client/frontproxy"
)

var now = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

// authority is a CA.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, key: newKey(t)}
	a.cert = a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "front-proxy-ca"}, NotAfter: now.Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) sign(c, parent *x509.Certificate) *x509.Certificate {
	a.t.Helper()
	c.SerialNumber, c.NotBefore = big.NewInt(1), now.Add(-time.Hour)
	key := a.key
	if parent == nil {
		parent = c
	} else {
		key = newKey(a.t)
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	out, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return out
}

func (a *authority) client(name string, until time.Duration, usage x509.ExtKeyUsage) *x509.Certificate {
	return a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: name}, NotAfter: now.Add(until), ExtKeyUsage: []x509.ExtKeyUsage{usage}}, a.cert)
}

func (a *authority) settings() map[string]string {
	return map[string]string{
		"requestheader-client-ca-file":       string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})),
		"requestheader-allowed-names":        `["front"]`,
		"requestheader-username-headers":     `["X-Remote-User"]`,
		"requestheader-uid-headers":          `["X-Remote-Uid"]`,
		"requestheader-group-headers":        `["X-Remote-Group"]`,
		"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
	}
}

func request(header http.Header, certs ...*x509.Certificate) *http.Request {
	return &http.Request{Header: header, TLS: &tls.ConnectionState{PeerCertificates: certs}}
}

func named() http.Header {
	return http.Header{
		"X-Remote-User": {"ann"}, "X-Remote-Uid": {"7"}, "X-Remote-Group": {"ops", "system:authenticated"},
		"X-Remote-Extra-Example.com%2fscopes": {"a", "b"}, "X-Other": {"c"},
	}
}

func TestUser(t *testing.T) {
	proxies, clients := newAuthority(t), newAuthority(t)
	trust, err := frontproxy.Parse(proxies.settings())
	if err != nil {
		t.Fatal(err)
	}
	const ofClient = x509.ExtKeyUsageClientAuth
	ann := &access.User{Name: "ann", UID: "7", Groups: []string{"ops", "system:authenticated"}, Extra: map[string][]string{"example.com/scopes": {"a", "b"}}}
	for name, row := range map[string]struct {
		reason string
		header http.Header
		certs  []*x509.Certificate
		want   *access.User
		bad    bool
	}{
		"Proxy":       {"it names the user", named(), []*x509.Certificate{proxies.client("front", time.Hour, ofClient)}, ann, false},
		"NoHeaders":   {"a proxy that names no user is like any client", http.Header{"X-Remote-Group": {"system:masters"}}, []*x509.Certificate{proxies.client("front", time.Hour, ofClient)}, nil, false},
		"AnotherCA":   {"a client cannot name users", named(), []*x509.Certificate{clients.client("front", time.Hour, ofClient)}, nil, true},
		"AnotherName": {"nor can other clients of the CA", named(), []*x509.Certificate{proxies.client("back", time.Hour, ofClient)}, nil, true},
		"Expired":     {"the connection outlives the certificate", named(), []*x509.Certificate{proxies.client("front", -time.Minute, ofClient)}, nil, true},
		"Server":      {"a serving certificate is not for clients", named(), []*x509.Certificate{proxies.client("front", time.Hour, x509.ExtKeyUsageServerAuth)}, nil, true},
		"None":        {"headers alone prove nothing", named(), nil, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := trust.User(request(row.header, row.certs...), now)
			if (err != nil) != row.bad || err != nil && !errors.Is(err, access.ErrUnknown) {
				t.Fatalf("%s: %v", row.reason, err)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", row.reason, diff)
			}
		})
	}
}

func TestParseSettings(t *testing.T) {
	if trust, err := frontproxy.Parse(map[string]string{"client-ca-file": "x"}); trust != nil || err != nil {
		t.Errorf("without front proxies: %v, %v", trust, err)
	}
	for key, text := range map[string]string{"requestheader-allowed-names": "front", "requestheader-client-ca-file": "no certificate"} {
		data := newAuthority(t).settings()
		data[key] = text
		if _, err := frontproxy.Parse(data); err == nil {
			t.Errorf("%s=%q is accepted", key, text)
		}
	}
}

// TestFollowerKeepsTheLastValidSettings follows the ConfigMap through an invalid one.
func TestFollowerKeepsTheLastValidSettings(t *testing.T) {
	proxies := newAuthority(t)
	synctest.Test(t, func(t *testing.T) {
		api := clienttest.New()
		maps := client.For[*corev1.ConfigMap](api.Client(t)).In("kube-system")
		f := frontproxy.NewFollower(api.Client(t), slog.New(slog.DiscardHandler), func() time.Time { return now })
		done := make(chan error, 1)
		go func() { done <- f.Run(t.Context()) }()
		ask := func() string {
			synctest.Wait()
			u, err := f.User(request(named(), proxies.client("front", time.Hour, x509.ExtKeyUsageClientAuth)))
			switch {
			case err != nil:
				return "refused"
			case u == nil:
				return "none"
			}
			return u.Name
		}
		if got := ask(); got != "none" || f.Ready() == nil {
			t.Errorf("without settings: %s, ready: %v", got, f.Ready())
		}
		m, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "extension-apiserver-authentication"}, Data: proxies.settings()})
		if err != nil {
			t.Fatal(err)
		}
		if got := ask(); got != "ann" || f.Ready() != nil {
			t.Errorf("with settings: %s, ready: %v", got, f.Ready())
		}
		update := func(data map[string]string) {
			t.Helper()
			m = m.DeepCopy()
			m.Data = data
			if m, err = maps.Update(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		update(map[string]string{"requestheader-client-ca-file": "?"})
		if got := ask(); got != "ann" {
			t.Errorf("with invalid settings: %s", got)
		}
		update(newAuthority(t).settings())
		if got := ask(); got != "refused" {
			t.Errorf("with a new CA: %s", got)
		}
	})
}
