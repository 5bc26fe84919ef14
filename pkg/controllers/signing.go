package controllers

import (
	"crypto"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	certificatesv1 "k8s.io/api/certificates/v1"

	"podium/pkg/client/certfile"
)

// Signing is what certificate signing requests are signed with.
type Signing struct {
	// Authorities has the present authority of each signer. A signer that is
	// not in it signs nothing.
	Authorities map[string]func() *tls.Certificate
	Longest     time.Duration // life of a certificate
}

const signingDuration = 365 * 24 * time.Hour

// pairFlags are the files of one authority.
type pairFlags struct{ flag, certFile, keyFile string }

// signingFlags are those of the signers: one authority for all, or one for each.
type signingFlags struct {
	all      pairFlags
	bySigner map[string]*pairFlags
}

// signerFlags are upstream's names of the flags for one signer.
func signerFlags() map[string]string {
	return map[string]string{
		certificatesv1.KubeletServingSignerName:             "kubelet-serving",
		certificatesv1.KubeAPIServerClientKubeletSignerName: "kubelet-client",
		certificatesv1.KubeAPIServerClientSignerName:        "kube-apiserver-client",
		"kubernetes.io/legacy-unknown":                      "legacy-unknown",
	}
}

func (f *signingFlags) add(fs *pflag.FlagSet, s *Signing) {
	f.all.add(fs, "cluster-signing", "all signers of kubernetes.io; excludes the flags for one signer")
	f.bySigner = map[string]*pairFlags{}
	for signer, name := range signerFlags() {
		f.bySigner[signer] = &pairFlags{}
		f.bySigner[signer].add(fs, "cluster-signing-"+name, "the signer "+signer)
	}
	fs.DurationVar(&s.Longest, "cluster-signing-duration", s.Longest, "longest life of a certificate, and that of one whose request does not say")
}

func (p *pairFlags) add(fs *pflag.FlagSet, flag, what string) {
	p.flag = flag
	fs.StringVar(&p.certFile, flag+"-cert-file", "", "certificate of the CA of "+what)
	fs.StringVar(&p.keyFile, flag+"-key-file", "", "private key of the CA of "+what)
}

func (p *pairFlags) given() bool { return p.certFile != "" || p.keyFile != "" }

// open reads the pair, and again when its files change.
func (p *pairFlags) open() (func() *tls.Certificate, error) {
	if p.certFile == "" || p.keyFile == "" {
		return nil, fmt.Errorf("--%s-cert-file and --%[1]s-key-file must be given together", p.flag)
	}
	pair, err := certfile.NewPair(p.certFile, p.keyFile)
	if err != nil {
		return nil, fmt.Errorf("--%s-cert-file: %w", p.flag, err)
	}
	return pair.Get, nil
}

func (f *signingFlags) complete(s *Signing) error {
	if s.Longest < 10*time.Minute {
		return fmt.Errorf("--cluster-signing-duration is %s: must be 10m or more", s.Longest)
	}
	s.Authorities = map[string]func() *tls.Certificate{}
	var errs []error
	for signer, pair := range f.bySigner {
		switch {
		case f.all.given() && pair.given(): // upstream's text
			return errors.New("cannot specify --cluster-signing-{cert,key}-file and other --cluster-signing-*-file flags at the same time")
		case f.all.given():
			pair = &f.all
		case !pair.given():
			continue
		}
		authority, err := pair.open()
		if err != nil && (pair != &f.all || len(errs) == 0) {
			errs = append(errs, err)
		}
		s.Authorities[signer] = authority
	}
	return errors.Join(errs...)
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
