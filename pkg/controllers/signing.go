package controllers

import (
	"crypto"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/spf13/pflag"
	certificatesv1 "k8s.io/api/certificates/v1"

	"podium/pkg/client/certfile"
	"podium/pkg/controllers/csrsigning"
)

// pairFlags are the certificate and key files of one CA.
type pairFlags struct{ flag, certFile, keyFile string }

// signingFlags are the flags of the signers: one CA for all, or one for each.
type signingFlags struct {
	all      pairFlags
	bySigner map[string]*pairFlags
}

// signerFlags returns upstream's flag names by signer.
func signerFlags() map[string]string {
	return map[string]string{
		certificatesv1.KubeletServingSignerName:             "kubelet-serving",
		certificatesv1.KubeAPIServerClientKubeletSignerName: "kubelet-client",
		certificatesv1.KubeAPIServerClientSignerName:        "kube-apiserver-client",
		"kubernetes.io/legacy-unknown":                      "legacy-unknown",
	}
}

func (f *signingFlags) add(fs *pflag.FlagSet, s *csrsigning.Options) {
	f.all.add(fs, "cluster-signing", "all kubernetes.io signers; excludes the flags for a single signer")
	f.bySigner = map[string]*pairFlags{}
	names := signerFlags()
	for _, signer := range slices.Sorted(maps.Keys(names)) {
		f.bySigner[signer] = &pairFlags{}
		f.bySigner[signer].add(fs, "cluster-signing-"+names[signer], "the signer "+signer)
	}
	fs.DurationVar(&s.MaxDuration, "cluster-signing-duration", s.MaxDuration, "maximum lifetime of signed certificates, and the lifetime if a request does not set one")
}

func (p *pairFlags) add(fs *pflag.FlagSet, flag, what string) {
	p.flag = flag
	fs.StringVar(&p.certFile, flag+"-cert-file", "", "file with the CA certificate for "+what)
	fs.StringVar(&p.keyFile, flag+"-key-file", "", "file with the CA private key for "+what)
}

func (p *pairFlags) given() bool { return p.certFile != "" || p.keyFile != "" }

// open loads the pair and reloads it when the files change.
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

func (f *signingFlags) complete(s *csrsigning.Options) error {
	if s.MaxDuration < 10*time.Minute {
		return fmt.Errorf("--cluster-signing-duration is %s: must be 10m or more", s.MaxDuration)
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

// tokenKey loads the key that signs the tokens in Secrets, and reloads it when the file
// changes.
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
