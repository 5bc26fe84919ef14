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

// Where lists are published: a ConfigMap that upstream's API servers have, too,
// with a key of ours.
const (
	Namespace = "kube-system"
	ConfigMap = "extension-apiserver-authentication"
	Key       = "client-crl-file"
)

const pemType = "X509 CRL"

// List is a set of revoked certificates. It does not change; nil is an empty one.
type List struct {
	parts   []part
	revoked map[string]bool // by issuer and number
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

// Any says whether one of a chain's certificates is revoked.
func (l *List) Any(chain []*x509.Certificate) bool {
	if l == nil {
		return false
	}
	return slices.ContainsFunc(chain, func(c *x509.Certificate) bool { return l.revoked[key(c.RawIssuer, c.SerialNumber)] })
}

// Covers says whether all that other revokes is revoked by l, too.
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

// Parse reads lists in PEM form. Each must be signed by one of the authorities.
// A list that is overdue counts nevertheless: what was revoked does not come
// back by waiting. With an error it returns what the valid lists say.
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
		if e.Critical { // a part of a list, or one for others' certificates
			return fmt.Errorf("the critical extension %v is not understood", e.Id)
		}
	}
	for _, a := range authorities {
		// The usage "CRL sign" is not required: authorities of earlier versions
		// lack it.
		if bytes.Equal(a.RawSubject, list.RawIssuer) && a.CheckSignature(list.SignatureAlgorithm, list.RawTBSRevocationList, list.Signature) == nil {
			return nil
		}
	}
	return errors.New("it is signed by none of the client authorities")
}

// Merge is the union of two lists: a itself if b adds nothing.
func Merge(a, b *List) *List {
	if a.Covers(b) {
		return a
	}
	if a == nil {
		return b
	}
	return newList(slices.Concat(a.parts, b.parts))
}

// newList keeps those parts that revoke what none of the longer ones does.
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

// PEM is the list as Parse reads it; lists that revoke nothing are left out.
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

// Entries are the revoked certificates, the first revoked first.
func (l *List) Entries() (out []Entry) {
	if l == nil {
		return nil
	}
	seen := map[string]bool{}
	for _, p := range l.parts {
		list, err := x509.ParseRevocationList(p.der)
		if err != nil {
			continue // it was read before
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
