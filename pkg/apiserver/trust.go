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

// trust holds the CAs of clients and of front proxies. Both files are read
// together, since the checks of one depend on the other.
type trust struct {
	clients, proxies       *x509.CertPool // nil: no file is given
	clientsPEM, proxiesPEM []byte
}

// errOverlap has upstream's text.
var errOverlap = errors.New("--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; --requestheader-allowed-names must be specified to ensure regular client certificates cannot set authenticating proxy headers for arbitrary users")

// trustFiles reads the files and returns a function that yields their current
// content, read again when a file changes. If a changed file is invalid, the
// error is logged and the previous content stays in force. Without file names
// it returns nil.
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
			log.Error("reload CA certificates failed; the previous ones stay in use", "err", err)
		}
		return t, err
	}, files...)
	if err != nil {
		return nil, err
	}
	return value.Get, nil
}

// readTrust reads both files. It refuses a CA that is in both unless named is
// set, that is, unless front proxies are recognized by their common names.
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

// readAuthorities reads a PEM file of CAs; all results are nil if file is
// empty. flag is for errors.
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

// parseCertificates returns the certificates of a PEM file and skips those that
// do not parse, as x509.CertPool does.
func parseCertificates(data []byte) (out []*x509.Certificate) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, cert)
		}
	}
	return out
}

// overlap reports whether a CA of proxies also signs clients: it has the same
// key as one of the clients' CAs, or has signed one.
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
