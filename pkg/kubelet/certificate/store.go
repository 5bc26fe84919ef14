package certificate

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Store is the certificate Name in directory Dir: NAME-DATE.pem holds a
// certificate and its key, and NAME-current.pem is a link to the newest. Only
// one process may write to it at a time.
type Store struct{ Dir, Name string }

// keep is how many certificate files remain: the present and the one before.
const keep = 2

// Path returns the path of the present certificate and its key.
func (s Store) Path() string { return filepath.Join(s.Dir, s.Name+"-current.pem") }

// keyPath returns the path of a private key whose certificate is not issued yet.
func (s Store) keyPath() string { return filepath.Join(s.Dir, s.Name+".key.tmp") }

// Load reads the present certificate. It returns nil and no error if there is
// none.
func (s Store) Load() (*tls.Certificate, error) {
	text, err := os.ReadFile(s.Path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	cert, err := ParsePair(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Path(), err)
	}
	return cert, nil
}

// ParsePair parses a PEM text that holds a certificate and its private key.
func ParsePair(text []byte) (*tls.Certificate, error) {
	cert, err := tls.X509KeyPair(text, text)
	if err != nil {
		return nil, err
	}
	return &cert, nil
}

// Key returns the stored key whose certificate is not issued yet. If there is
// none, Key generates and stores one.
func (s Store) Key() (crypto.Signer, error) {
	if text, err := os.ReadFile(s.keyPath()); err == nil {
		if key, err := parseKey(text); err == nil && !s.has(key) {
			return key, nil
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	text, err := keyText(key)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, err
	}
	return key, writeWhole(s.keyPath(), text)
}

// has reports whether the present certificate is for key. Then the process that
// stored the certificate was killed before it removed the key's own file.
func (s Store) has(key crypto.Signer) bool {
	present, err := s.Load()
	if err != nil || present == nil {
		return false
	}
	own, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	signer, signs := present.PrivateKey.(crypto.Signer)
	return ok && signs && own.Equal(signer.Public())
}

// DropKey removes the key whose certificate is not issued yet, if there is one.
func (s Store) DropKey() error {
	return removeIfThere(s.keyPath())
}

func removeIfThere(file string) error {
	err := os.Remove(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func parseKey(text []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("no PEM block")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a %T cannot sign", key)
	}
	return signer, nil
}

// RenewFile returns the path of a file that makes the kubelet request a new
// certificate although the present one is valid. An administrator creates the
// file after replacing the CA; Save removes it. The kubelet checks for it when
// it starts and whenever it checks if a renewal is due.
func (s Store) RenewFile() string { return filepath.Join(s.Dir, s.Name+".renew") }

func (s Store) renewalRequested() bool {
	_, err := os.Stat(s.RenewFile())
	return err == nil
}

func keyText(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// Save stores a certificate with its key and makes it the present one. If only
// the clean-up failed, Save returns the certificate together with the error.
func (s Store) Save(certificate []byte, key crypto.Signer, now time.Time) (*tls.Certificate, error) {
	text, err := keyText(key)
	if err != nil {
		return nil, err
	}
	text = append(slices.Clone(certificate), text...)
	cert, err := ParsePair(text)
	if err != nil {
		return nil, fmt.Errorf("the certificate does not fit its key: %w", err)
	}
	file := fmt.Sprintf("%s-%s.pem", s.Name, now.UTC().Format("2006-01-02-15-04-05"))
	if err := writeWhole(filepath.Join(s.Dir, file), text); err != nil {
		return nil, err
	}
	if err := s.link(file); err != nil {
		return nil, err
	}
	return cert, errors.Join(s.DropKey(), removeIfThere(s.RenewFile()), s.prune(file))
}

// link makes the link to the present certificate point to file, atomically.
func (s Store) link(file string) error {
	next := filepath.Join(s.Dir, s.Name+"-updated.pem")
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(file, next); err != nil {
		return err
	}
	if err := os.Rename(next, s.Path()); err != nil {
		return err
	}
	return syncDir(s.Dir)
}

// prune removes all but the newest keep certificate files; it never removes
// present.
func (s Store) prune(present string) error {
	files, err := filepath.Glob(filepath.Join(s.Dir, s.Name+"-[0-9]*.pem"))
	if err != nil {
		return err
	}
	slices.Sort(files) // the dates are in the names
	var errs []error
	for i, file := range files {
		if i < len(files)-keep && filepath.Base(file) != present {
			errs = append(errs, os.Remove(file))
		}
	}
	return errors.Join(errs...)
}

// writeWhole replaces a file: after a crash it has the old or the new content.
func writeWhole(file string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(filepath.Dir(file))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
