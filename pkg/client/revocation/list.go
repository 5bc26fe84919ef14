package revocation

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"
)

// The lists are published in a ConfigMap that upstream's API servers have, too, under
// a key of podium's own.
const (
	Namespace = "kube-system"
	ConfigMap = "extension-apiserver-authentication"
	Key       = "client-crl-file"
)

const pemType = "X509 CRL"

// List is an immutable set of revoked certificates. A nil *List is empty.
type List struct {
	parts   []part
	revoked map[string]bool // by issuer and serial number
}

// part is one signed list.
type part struct {
	der     []byte
	revoked []string
}

// Entry is a revoked certificate.
type Entry struct {
	Issuer string
	Serial *big.Int
	Since  time.Time
}

func key(rawIssuer []byte, number *big.Int) string {
	return string(rawIssuer) + "\x00" + string(number.Bytes())
}

// Any reports whether a certificate of the chain is revoked.
func (l *List) Any(chain []*x509.Certificate) bool {
	if l == nil {
		return false
	}
	return slices.ContainsFunc(chain, func(c *x509.Certificate) bool { return l.revoked[key(c.RawIssuer, c.SerialNumber)] })
}

// Covers reports whether l revokes everything that other revokes.
func (l *List) Covers(other *List) bool {
	if other == nil {
		return true
	}
	for k := range other.revoked {
		if l == nil || !l.revoked[k] {
			return false
		}
	}
	return true
}

// Parse parses lists in PEM form. Each must be signed by one of the authorities. An
// expired list is accepted, because waiting must not undo a revocation. If some lists
// are invalid, Parse returns the content of the valid ones together with an error.
func Parse(data []byte, authorities []*x509.Certificate) (*List, error) {
	var parts []part
	var errs []error
	for rest := data; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return newList(parts), errors.Join(errs...)
		}
		p, err := parsePart(block, authorities)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		parts = append(parts, p)
	}
}

func parsePart(block *pem.Block, authorities []*x509.Certificate) (part, error) {
	if block.Type != pemType {
		return part{}, fmt.Errorf("a PEM block of type %q is no revocation list", block.Type)
	}
	list, err := x509.ParseRevocationList(block.Bytes)
	if err != nil {
		return part{}, fmt.Errorf("parse revocation list: %w", err)
	}
	if err := check(list, authorities); err != nil {
		return part{}, fmt.Errorf("revocation list of %s: %w", list.Issuer, err)
	}
	p := part{der: block.Bytes}
	for _, entry := range list.RevokedCertificateEntries {
		p.revoked = append(p.revoked, key(list.RawIssuer, entry.SerialNumber))
	}
	return p, nil
}

func check(list *x509.RevocationList, authorities []*x509.Certificate) error {
	for _, e := range list.Extensions {
		if e.Critical { // a delta list, or one for a part of the certificates
			return fmt.Errorf("the critical extension %v is not understood", e.Id)
		}
	}
	for _, a := range authorities {
		// The key usage "CRL sign" is not required: CAs of earlier versions lack it.
		if bytes.Equal(a.RawSubject, list.RawIssuer) && a.CheckSignature(list.SignatureAlgorithm, list.RawTBSRevocationList, list.Signature) == nil {
			return nil
		}
	}
	return errors.New("it is signed by none of the client authorities")
}

// Merge returns the union of two lists: a itself if b adds nothing.
func Merge(a, b *List) *List {
	if a.Covers(b) {
		return a
	}
	if a == nil {
		return b
	}
	return newList(slices.Concat(a.parts, b.parts))
}

// newList drops the parts that revoke nothing beyond the longer ones.
func newList(parts []part) *List {
	slices.SortFunc(parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(len(b.revoked), len(a.revoked)), bytes.Compare(a.der, b.der))
	})
	l := &List{revoked: map[string]bool{}}
	for _, p := range parts {
		if !slices.ContainsFunc(p.revoked, func(k string) bool { return !l.revoked[k] }) {
			continue
		}
		l.parts = append(l.parts, p)
		for _, k := range p.revoked {
			l.revoked[k] = true
		}
	}
	return l
}

// PEM encodes the list for Parse, without the parts that newList drops.
func (l *List) PEM() []byte {
	if l == nil {
		return nil
	}
	var out []byte
	for _, p := range l.parts {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: p.der})...)
	}
	return out
}

// Entries returns the revoked certificates in the order of their revocation.
func (l *List) Entries() (out []Entry) {
	if l == nil {
		return nil
	}
	seen := map[string]bool{}
	for _, p := range l.parts {
		list, err := x509.ParseRevocationList(p.der)
		if err != nil {
			continue // Parse has checked it
		}
		for _, e := range list.RevokedCertificateEntries {
			if k := key(list.RawIssuer, e.SerialNumber); !seen[k] {
				seen[k] = true
				out = append(out, Entry{Issuer: list.Issuer.CommonName, Serial: e.SerialNumber, Since: e.RevocationTime})
			}
		}
	}
	slices.SortFunc(out, func(a, b Entry) int { return cmp.Or(a.Since.Compare(b.Since), a.Serial.Cmp(b.Serial)) })
	return out
}
