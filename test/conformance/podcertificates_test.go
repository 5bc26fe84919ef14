package conformance

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"testing"
	"time"
)

// podCertificates tries the API of PodCertificateRequests: a request with a key of its
// own, and a certificate for this key in the status.
func podCertificates(t *testing.T, ctx context.Context, namespace string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now().UTC().Truncate(time.Second)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: begin, NotAfter: begin.Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	issued, err := json.Marshal(map[string]any{"status": map[string]any{
		"certificateChain": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		"notBefore":        begin, "notAfter": template.NotAfter, "beginRefreshAt": begin.Add(12 * time.Hour),
		"conditions": []any{map[string]any{"type": "Issued", "status": "True", "reason": "Signed", "message": "m", "lastTransitionTime": begin}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	lifecycle(kindTest{
		groupVersion: "certificates.k8s.io/v1", resource: "podcertificaterequests",
		object: fmt.Sprintf(`{spec: {signerName: example.com/e2e, podName: p, podUID: u, serviceAccountName: s, serviceAccountUID: u,
			nodeName: m, nodeUID: u, stubPKCS10Request: %s}}`, base64.StdEncoding.EncodeToString(stub)),
		status: string(issued),
		kept:   func(s status) bool { return condition("Issued")(s) && s["certificateChain"] != "" },
	})(t, ctx, namespace)
}
