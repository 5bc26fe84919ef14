package metricsserver

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"podium/pkg/backoff"
	"podium/pkg/client"
	"podium/pkg/client/informer"
	"podium/pkg/client/revocation"
)

// identity is a serving certificate that this process makes for its Service, and that
// API servers verify by the caBundle of the APIService. Its key never leaves the
// process. A replica adds its certificate to those of the others.
type identity struct {
	service  types.NamespacedName
	services client.Resource[*apiregistrationv1.APIService]
	watch    *informer.Informer[*apiregistrationv1.APIService]
	log      *slog.Logger
	now      func() time.Time

	changed   chan struct{} // of capacity 1
	current   atomic.Pointer[tls.Certificate]
	published atomic.Bool
}

// apiService is the name of the APIService of this API.
const apiService = "v1beta1.metrics.k8s.io"

const (
	certificateLife = 90 * 24 * time.Hour
	// renewBefore the end of its life, a certificate is replaced.
	renewBefore = 30 * 24 * time.Hour
	// backdate makes a certificate valid for API servers whose clocks are behind.
	backdate = 5 * time.Minute
	// maxBundle is the maximum number of certificates in the caBundle: replicas that
	// were killed do not remove theirs.
	maxBundle = 8
)

func newIdentity(c *client.Client, service types.NamespacedName, log *slog.Logger, now func() time.Time) (*identity, error) {
	i := &identity{
		service: service, services: client.For[*apiregistrationv1.APIService](c), log: log, now: now, changed: make(chan struct{}, 1),
	}
	i.watch = informer.New(i.services, informer.Options{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, apiService).String(), Log: log,
	})
	i.watch.OnChange(func(_, _ *apiregistrationv1.APIService) {
		select {
		case i.changed <- struct{}{}:
		default:
		}
	})
	first, err := i.issue()
	if err != nil {
		return nil, err
	}
	i.current.Store(first)
	return i, nil
}

// certificate returns the present certificate; it is daemon.Serving's Certificate.
func (i *identity) certificate() (*tls.Certificate, error) { return i.current.Load(), nil }

// ready returns nil when API servers trust the certificate.
func (i *identity) ready() error {
	if !i.published.Load() {
		return fmt.Errorf("waiting for the APIService %s", apiService)
	}
	return nil
}

// issue makes a self-signed certificate for the Service.
func (i *identity) issue() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the serving key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	name := i.service.Name + "." + i.service.Namespace + ".svc"
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		DNSNames:     []string{name},
		NotBefore:    i.now().Add(-backdate),
		NotAfter:     i.now().Add(certificateLife),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the serving certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse the serving certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// checkEvery is how often the age of the certificate is looked at.
const checkEvery = time.Hour

// run keeps the certificate fresh, and published, until ctx ends.
func (i *identity) run(ctx context.Context) error {
	retry := backoff.Backoff{Initial: time.Second, Max: time.Minute}
	for {
		wait := checkEvery
		err := i.reconcile(ctx)
		if err != nil && ctx.Err() == nil {
			i.log.Warn("publish the serving certificate failed", "apiservice", apiService, "err", err)
			wait = retry.Next()
		} else {
			retry.Reset()
		}
		if backoff.SleepOrWake(ctx, wait, i.changed) != nil {
			return nil
		}
	}
}

// reconcile replaces a certificate that is about to expire, and writes the caBundle. It
// serves a certificate only after API servers have been told of it.
func (i *identity) reconcile(ctx context.Context) error {
	own := i.current.Load()
	if own.Leaf.NotAfter.Sub(i.now()) < renewBefore {
		next, err := i.issue()
		if err != nil {
			return err
		}
		own = next
	}
	s, ok := i.watch.Get("", apiService)
	if !ok {
		i.published.Store(false)
		return nil
	}
	if to := s.Spec.Service; to == nil || to.Namespace != i.service.Namespace || to.Name != i.service.Name {
		i.published.Store(false)
		return fmt.Errorf("it does not refer to the Service %s", i.service)
	}
	if !s.Spec.InsecureSkipTLSVerify { // else a caBundle is not allowed
		if bundle := bundleWith(s.Spec.CABundle, own.Leaf, i.now()); !bytes.Equal(bundle, s.Spec.CABundle) {
			if err := i.write(ctx, s.ResourceVersion, bundle); err != nil {
				return err
			}
		}
	}
	i.current.Store(own)
	i.published.Store(true)
	return nil
}

// write sets the caBundle of the APIService that has this resourceVersion.
func (i *identity) write(ctx context.Context, resourceVersion string, bundle []byte) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": resourceVersion}, "spec": map[string]any{"caBundle": bundle},
	})
	if err != nil {
		return fmt.Errorf("encode the caBundle: %w", err)
	}
	if _, err := i.services.Patch(ctx, apiService, types.MergePatchType, patch); err != nil {
		return fmt.Errorf("write the caBundle: %w", err)
	}
	return nil
}

// bundleWith returns a caBundle that contains own. It returns have itself if that does
// and holds no expired certificate; otherwise own comes first, and the others that are
// valid follow, as far as there is space.
func bundleWith(have []byte, own *x509.Certificate, now time.Time) []byte {
	certs := revocation.ParseCertificates(have)
	keep := []*x509.Certificate{own}
	found := false
	for _, c := range certs {
		if c.Equal(own) {
			found = true
		} else if now.Before(c.NotAfter) && len(keep) < maxBundle {
			keep = append(keep, c)
		}
	}
	if found && len(keep) == len(certs) {
		return have
	}
	var out bytes.Buffer
	for _, c := range keep {
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}); err != nil {
			panic(errors.Join(errors.New("a bytes.Buffer takes every write"), err))
		}
	}
	return out.Bytes()
}
