package pki_test

import (
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"podium/pkg/cluster/pki"
)

func TestRevoke(t *testing.T) {
	dir := t.TempDir()
	ca, err := pki.OpenAuthority(dir, "ca", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "ca.crl")
	for step, tc := range []struct {
		serials     []int64
		added, want int
		number      int64
	}{
		{nil, 0, 0, 1},
		{nil, 0, 0, 1},
		{[]int64{7, 8}, 2, 2, 2},
		{[]int64{8, 9}, 1, 3, 3},
		{[]int64{9}, 0, 3, 3},
	} {
		var serials []*big.Int
		for _, n := range tc.serials {
			serials = append(serials, big.NewInt(n))
		}
		added, err := ca.Revoke(file, serials...)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(data)
		list, err := x509.ParseRevocationList(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if len(added) != tc.added || len(list.RevokedCertificateEntries) != tc.want || list.Number.Int64() != tc.number {
			t.Errorf("step %d: %d added, %d on list %v", step, len(added), len(list.RevokedCertificateEntries), list.Number)
		}
		if err := ca.Cert.CheckSignature(list.SignatureAlgorithm, list.RawTBSRevocationList, list.Signature); err != nil {
			t.Error(err)
		}
	}
	other, err := pki.OpenAuthority(dir, "other", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Revoke(file, big.NewInt(1)); err == nil {
		t.Error("an authority has taken over another's list")
	}
}
