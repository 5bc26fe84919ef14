package security

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/http"
	"testing"
	"time"
)

// issuer signs certificates: a real CA, one with a copied name, or a leaf certificate that must
// not sign.
type issuer struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// masters is a subject that would have all permissions if it were accepted.
var masters = pkix.Name{CommonName: "kubernetes-admin", Organization: []string{"system:masters"}}

// clientCertificate returns the template of a certificate for an attacker.
func clientCertificate(changes ...func(*x509.Certificate)) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		panic(err) // the machine has no randomness
	}
	c := &x509.Certificate{
		SerialNumber: serial, Subject: masters, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, change := range changes {
		change(c)
	}
	return c
}

func authority(c *x509.Certificate) {
	c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign|x509.KeyUsageCRLSign
}

// issue signs a template; with a nil issuer it is self-signed.
func issue(t *testing.T, template *x509.Certificate, by *issuer) (issuer, tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	parent, signer := template, crypto.Signer(key)
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	check(t, err)
	cert, err := x509.ParseCertificate(der)
	check(t, err)
	pair := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	if by != nil {
		pair.Certificate = append(pair.Certificate, by.cert.Raw)
	}
	return issuer{cert, key}, pair
}

// clusterFile returns a certificate of the cluster as an issuer.
func clusterFile(t *testing.T, name string) *issuer {
	t.Helper()
	pair := stolen(t, name)
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	check(t, err)
	return &issuer{cert, pair.PrivateKey.(crypto.Signer)}
}

// badCertificates are client certificates that no daemon may accept.
func badCertificates(t *testing.T) map[string]tls.Certificate {
	t.Helper()
	ca := clusterFile(t, "ca")
	sameName, _ := issue(t, clientCertificate(authority, func(c *x509.Certificate) {
		c.RawSubject, c.SubjectKeyId = ca.cert.RawSubject, ca.cert.SubjectKeyId
	}), nil)
	between, _ := issue(t, clientCertificate(authority, func(c *x509.Certificate) { c.Subject = pkix.Name{CommonName: "between"} }), &sameName)
	real, limited := clusterFile(t, "ca"), pkix.Name{CommonName: "limited"}
	noClients, _ := issue(t, clientCertificate(authority, func(c *x509.Certificate) {
		c.Subject, c.ExtKeyUsage = limited, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}), real)
	noSigning, _ := issue(t, clientCertificate(authority, func(c *x509.Certificate) {
		c.Subject, c.KeyUsage = limited, x509.KeyUsageDigitalSignature
	}), real)

	bad := map[string]tls.Certificate{}
	for what, row := range map[string]struct {
		by     *issuer
		change func(*x509.Certificate)
	}{
		"signed by itself":                           {nil, func(*x509.Certificate) {}},
		"signed by itself, as an authority":          {nil, authority},
		"another authority of the same name":         {&sameName, func(*x509.Certificate) {}},
		"an intermediate of that authority":          {&between, func(*x509.Certificate) {}},
		"signed with a kubelet's key":                {clusterFile(t, "kubelet"), func(*x509.Certificate) {}},
		"signed with the administrator's key":        {clusterFile(t, "admin"), func(*x509.Certificate) {}},
		"signed with the API server's key":           {clusterFile(t, "apiserver"), func(*x509.Certificate) {}},
		"an intermediate that may sign servers only": {&noClients, func(*x509.Certificate) {}},
		"an intermediate that may not sign":          {&noSigning, func(*x509.Certificate) {}},
		"expired":                                    {real, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }},
		"valid in an hour": {real, func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
		}},
		"for servers only":      {real, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }},
		"for signing code only": {real, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning} }},
		"no common name":        {real, func(c *x509.Certificate) { c.Subject.CommonName = "" }},
		"a critical extension that no server knows": {real, func(c *x509.Certificate) {
			c.ExtraExtensions = []pkix.Extension{{Id: []int{1, 3, 6, 1, 4, 1, 99999, 1}, Critical: true, Value: []byte{5, 0}}}
		}},
		"the name in the alternative names, not common": {real, func(c *x509.Certificate) {
			c.Subject, c.DNSNames = pkix.Name{Organization: masters.Organization}, []string{"kubernetes-admin"}
		}},
	} {
		_, bad[what] = issue(t, clientCertificate(row.change), row.by)
	}
	foreign, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	bad["the administrator's, without its key"] = tls.Certificate{Certificate: stolen(t, "admin").Certificate, PrivateKey: foreign}
	_, self := issue(t, clientCertificate(), nil)
	bad["the administrator's, behind one of its own"] = tls.Certificate{Certificate: append(self.Certificate, stolen(t, "admin").Certificate...), PrivateKey: self.PrivateKey}
	return bad
}

// A certificate that the cluster's CA did not issue for this client and this time is refused by
// all daemons: the handshake fails, or the answer is 401.
func TestBadClientCertificates(t *testing.T) {
	t.Parallel()
	_, good := issue(t, clientCertificate(), clusterFile(t, "ca"))
	for base, path := range map[string]string{
		server: "/api/v1/namespaces/kube-system/secrets", "https://127.0.0.1:10257": "/metrics",
		"https://127.0.0.1:10259": "/metrics", "https://" + net.JoinHostPort(nodeIP(t), "10250"): "/pods",
	} {
		shows := func(pair tls.Certificate) (answer, error) {
			// The client's certificate is tested: the server's is not verified.
			cfg := &tls.Config{InsecureSkipVerify: true, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }}
			return newCaller(t, base, cfg, nil).send(t.Context(), "GET", path, "")
		}
		if a, err := shows(good); err != nil || a.code != http.StatusOK {
			t.Fatalf("%s%s: a good certificate gets %d, %v: this test would prove nothing", base, path, a.code, err)
		}
		for what, pair := range badCertificates(t) {
			if a, err := shows(pair); err == nil && a.code != http.StatusUnauthorized {
				t.Errorf("%s, at %s: %d, want a failed handshake or 401: %.200s", what, base, a.code, a.body)
			}
		}
	}
}
