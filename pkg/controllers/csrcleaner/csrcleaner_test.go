package csrcleaner

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDue(t *testing.T) {
	made := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: made.Add(20 * time.Minute)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	short := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, row := range map[string]struct {
		condition   certificatesv1.RequestConditionType
		certificate []byte
		want        time.Duration // since creation; 0: never
	}{
		"pending":                        {"", nil, 24 * time.Hour},
		"approved, not signed yet":       {certificatesv1.CertificateApproved, nil, 0},
		"denied":                         {certificatesv1.CertificateDenied, nil, 70 * time.Minute},
		"failed":                         {certificatesv1.CertificateFailed, nil, 70 * time.Minute},
		"signed":                         {certificatesv1.CertificateApproved, []byte("what we cannot read"), 70 * time.Minute},
		"the certificate expires before": {certificatesv1.CertificateApproved, short, 20 * time.Minute},
	} {
		c := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(made)}}
		c.Status.Certificate = row.certificate
		if row.condition != "" {
			c.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: row.condition, Status: corev1.ConditionTrue, LastUpdateTime: metav1.NewTime(made.Add(10 * time.Minute))}}
		}
		end, ends := due(c)
		if ends != (row.want != 0) || ends && !end.Equal(made.Add(row.want)) {
			t.Errorf("%s: %v after %s", name, ends, end.Sub(made))
		}
	}
}
