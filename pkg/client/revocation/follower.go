package revocation

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"podium/pkg/client"
	"podium/pkg/client/certfile"
	"podium/pkg/client/informer"
	"podium/pkg/scheme"
)

// Config says what a Follower follows.
type Config struct {
	Client   *client.Client
	ClientCA string // file with the clients' authorities, which sign the lists
	File     string // keeps the last list over restarts; "": none does
	Log      *slog.Logger
}

// Follower has the list that the API servers publish. Until it has read one,
// from its file or from the API, it knows none.
type Follower struct {
	cfg         Config
	authorities *certfile.Value[*authorities]

	mu     sync.Mutex
	known  bool
	list   *List
	text   string       // what is published
	signed *authorities // those that text was verified with
}

type authorities struct{ certs []*x509.Certificate }

// NewFollower reads the authorities and, if there is one, the last list. It
// does nothing else until Run.
func NewFollower(cfg Config) (*Follower, error) {
	f := &Follower{cfg: cfg}
	var err error
	f.authorities, err = certfile.NewValue(func() (*authorities, error) { return readAuthorities(cfg.ClientCA) }, cfg.ClientCA)
	if err != nil {
		return nil, err
	}
	if cfg.File == "" {
		return f, nil
	}
	data, err := os.ReadFile(cfg.File)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	list, err := Parse(data, f.authorities.Get().certs)
	if err != nil { // a damaged copy: the API has the original
		cfg.Log.Warn("stored revocation list not read whole", "file", cfg.File, "error", err)
	}
	f.list, f.known = list, err == nil
	return f, nil
}

func readAuthorities(file string) (*authorities, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	out := &authorities{ParseCertificates(data)}
	if len(out.certs) == 0 {
		return nil, fmt.Errorf("%s holds no certificate", file)
	}
	return out, nil
}

// ParseCertificates reads the certificates of a PEM file and leaves out what is
// none.
func ParseCertificates(data []byte) (out []*x509.Certificate) {
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return out
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, cert)
		}
	}
}

// Present returns the current list. While known is false, the follower has not
// seen a list: no certificate can be accepted.
func (f *Follower) Present() (list *List, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if present := f.authorities.Get(); f.signed != nil && f.signed != present {
		f.verifyLocked(present) // a list may be signed by an authority that is new
	}
	return f.list, f.known
}

// List is Present for who cuts connections.
func (f *Follower) List() *List {
	list, _ := f.Present()
	return list
}

// Run follows the API until ctx ends.
func (f *Follower) Run(ctx context.Context) error {
	maps := client.For[*corev1.ConfigMap](f.cfg.Client).In(Namespace)
	follow := informer.New(maps, informer.Options{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, ConfigMap).String(), Log: f.cfg.Log,
		Transform: func(obj scheme.Object) { obj.SetManagedFields(nil) },
	})
	follow.OnChange(func(_, m *corev1.ConfigMap) {
		if m != nil {
			f.learn(m.Data[Key])
		}
	})
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return follow.Run(ctx) })
	g.Go(func() error {
		if follow.WaitSynced(ctx) == nil {
			f.learn("")
		}
		return nil
	})
	g.Go(func() error { return f.forbidden(ctx, maps) })
	return g.Wait()
}

// firstLook is how often the API is asked until it has answered once.
const firstLook = time.Second

// forbidden looks whether the list may be read at all. API servers that publish
// none, as upstream's, keep nodes from this ConfigMap: nothing is revoked then,
// as far as can be known.
func (f *Follower) forbidden(ctx context.Context, maps client.Resource[*corev1.ConfigMap]) error {
	tick := time.NewTicker(firstLook)
	defer tick.Stop()
	for {
		if _, known := f.Present(); known {
			return nil
		}
		if _, err := maps.Get(ctx, ConfigMap); apierrors.IsForbidden(err) {
			f.cfg.Log.Warn("revoked certificates are not known: the API server does not let them be read", "error", err)
			f.learn("")
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// learn adds what is published to what is known.
func (f *Follower) learn(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known = true
	if text != "" {
		f.text = text
		f.verifyLocked(f.authorities.Get())
	}
}

func (f *Follower) verifyLocked(by *authorities) {
	f.signed = by
	published, err := Parse([]byte(f.text), by.certs)
	if err != nil {
		f.cfg.Log.Warn("published revocation list not accepted", "error", err)
	}
	merged := Merge(f.list, published)
	if merged == f.list {
		return
	}
	f.list = merged
	f.cfg.Log.Info("certificates revoked", "count", len(merged.revoked))
	if f.cfg.File == "" {
		return
	}
	if err := store(f.cfg.File, merged.PEM()); err != nil {
		f.cfg.Log.Error("store the revocation list failed; it is lost with a restart while the API is out of reach", "error", err)
	}
}

// store replaces a file in one step.
func store(file string, data []byte) error {
	next, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = next.Write(data)
	err = errors.Join(err, next.Sync(), next.Close())
	if err == nil {
		err = os.Rename(next.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next.Name()))
	}
	return nil
}
