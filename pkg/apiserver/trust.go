package apiserver

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"podium/pkg/client/certfile"
)

// trust is who signs the certificates of clients and of front proxies. Both
// come from one look at the files: what one of them may hold depends on the
// other.
type trust struct {
	clients, proxies       *x509.CertPool // nil: there is no such file
	clientsPEM, proxiesPEM []byte
}

// errOverlap has upstream's words.
var errOverlap = errors.New("--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; --requestheader-allowed-names must be specified to ensure regular client certificates cannot set authenticating proxy headers for arbitrary users")

// trustFiles reads the files, and again when one of them changes. While what is
// there then cannot be used, what was read before stays in force, and the log
// tells. Without file names it is nil.
func trustFiles(clientCA, proxyCA string, proxyNames []string, log *slog.Logger) (func() *trust, error) {
	var files []string
	for _, name := range []string{clientCA, proxyCA} {
		if name != "" {
			files = append(files, name)
		}
	}
	if len(files) == 0 {
		return nil, nil
	}
	read := func() (*trust, error) { return readTrust(clientCA, proxyCA, len(proxyNames) > 0) }
	if _, err := read(); err != nil {
		return nil, err
	}
	value, err := certfile.NewValue(func() (*trust, error) {
		t, err := read()
		if err != nil {
			log.Error("authorities cannot be read again; those read before stay in force", "err", err)
		}
		return t, err
	}, files...)
	if err != nil {
		return nil, err
	}
	return value.Get, nil
}

// readTrust reads both files. Authorities of both are refused unless proxies
// are told from clients by their names.
func readTrust(clientCA, proxyCA string, named bool) (*trust, error) {
	t := &trust{}
	var errs [2]error
	t.clients, t.clientsPEM, errs[0] = readAuthorities("--client-ca-file", clientCA)
	t.proxies, t.proxiesPEM, errs[1] = readAuthorities("--requestheader-client-ca-file", proxyCA)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	if !named && overlap(parseCertificates(t.clientsPEM), parseCertificates(t.proxiesPEM)) {
		return nil, errOverlap
	}
	return t, nil
}

func readAuthorities(flag, file string) (*x509.CertPool, []byte, error) {
	if file == "" {
		return nil, nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", flag, err)
	}
	pool, err := certfile.ParsePool(data, file)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", flag, err)
	}
	return pool, data, nil
}

// parseCertificates returns those of a PEM file that can be parsed: the others are in no
// pool.
func parseCertificates(data []byte) (out []*x509.Certificate) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, cert)
		}
	}
	return out
}

// overlap says whether an authority of proxies also vouches for clients: it has
// the key of one of theirs, or has signed one of theirs.
func overlap(clients, proxies []*x509.Certificate) bool {
	for _, c := range clients {
		for _, p := range proxies {
			if bytes.Equal(c.RawSubjectPublicKeyInfo, p.RawSubjectPublicKeyInfo) || c.CheckSignatureFrom(p) == nil {
				return true
			}
		}
	}
	return false
}
