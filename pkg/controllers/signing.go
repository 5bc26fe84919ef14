package controllers

import (
	"crypto"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"

	"podium/pkg/client/certfile"
)

// Signing is what certificate signing requests are signed with.
type Signing struct {
	Authority func() *tls.Certificate // nil: nothing is signed
	Longest   time.Duration           // life of a certificate
}

const signingDuration = 365 * 24 * time.Hour

// signingFlags are those of the signer.
type signingFlags struct{ certFile, keyFile string }

func (f *signingFlags) add(fs *pflag.FlagSet, s *Signing) {
	fs.StringVar(&f.certFile, "cluster-signing-cert-file", "", "authority that signs certificate signing requests; without it none is signed")
	fs.StringVar(&f.keyFile, "cluster-signing-key-file", "", "the authority's key")
	fs.DurationVar(&s.Longest, "cluster-signing-duration", s.Longest, "longest life of a certificate, and that of one whose request does not say")
}

func (f *signingFlags) complete(s *Signing) error {
	if s.Longest < 10*time.Minute {
		return fmt.Errorf("--cluster-signing-duration is %s: must be 10m or more", s.Longest)
	}
	if f.certFile == "" && f.keyFile == "" {
		return nil
	}
	if f.certFile == "" || f.keyFile == "" {
		return errors.New("--cluster-signing-cert-file and --cluster-signing-key-file belong together")
	}
	pair, err := certfile.NewPair(f.certFile, f.keyFile)
	if err != nil {
		return fmt.Errorf("--cluster-signing-cert-file: %w", err)
	}
	s.Authority = pair.Get
	return nil
}

// tokenKey reads the key that signs the tokens kept in secrets.
func tokenKey(file string) (func() crypto.Signer, error) {
	key, err := certfile.NewValue(func() (crypto.Signer, error) {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		signer, err := certfile.ParsePrivateKey(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		return signer, nil
	}, file)
	if err != nil {
		return nil, err
	}
	return key.Get, nil
}
