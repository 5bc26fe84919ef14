package daemon

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
)

// EnsureSelfSigned writes a self-signed serving certificate and its key, unless both
// files exist. It is valid for the host name, loopback and addresses. It returns an
// error if only one of the files exists.
func EnsureSelfSigned(certFile, keyFile string, addresses ...netip.Addr) error {
	_, certErr := os.Stat(certFile)
	_, keyErr := os.Stat(keyFile)
	switch missing := errors.Is(certErr, fs.ErrNotExist); {
	case certErr == nil && keyErr == nil:
		return nil
	case missing != errors.Is(keyErr, fs.ErrNotExist):
		return fmt.Errorf("only one of %s and %s exists", certFile, keyFile)
	case !missing:
		return errors.Join(certErr, keyErr)
	}
	cert, err := selfSigned(addresses...)
	if err != nil {
		return err
	}
	return writePair(cert, certFile, keyFile)
}

func writePair(cert *tls.Certificate, certFile, keyFile string) error {
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(certFile), 0o755); err != nil {
		return err
	}
	// Write the key first: if the certificate exists, so does its key.
	if err := os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600); err != nil {
		return err
	}
	return os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), 0o644)
}
