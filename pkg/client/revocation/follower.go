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

	"podium/pkg/backoff"
	"podium/pkg/client"
	"podium/pkg/client/certfile"
	"podium/pkg/client/informer"
	"podium/pkg/scheme"
)

// Config configures a Follower.
type Config struct {
	Client   *client.Client
	ClientCA string // file with the client CAs, which sign the lists
	File     string // stores the last list across restarts; "": not stored
	Log      *slog.Logger
}

// Follower reads the list that the API servers publish. Until it has read one, from its
// file or from the API, Present reports known as false. It is safe for concurrent use.
type Follower struct {
	cfg         Config
	authorities *certfile.Value[*authorities]

	mu     sync.Mutex
	known  bool
	list   *List
	text   string       // the published list
	signed *authorities // the CAs that text was verified with
}

type authorities struct{ certs []*x509.Certificate }

// NewFollower loads the CAs and the stored list, if there is one. It does nothing else
// until Run.
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
	if err != nil { // a damaged copy: the list is read from the API instead
		cfg.Log.Warn("read stored revocation list failed", "file", cfg.File, "error", err)
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

// ParseCertificates parses the certificates of PEM data and skips everything else.
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
		f.verifyLocked(present) // a new CA may have signed a list that was not accepted before
	}
	return f.list, f.known
}

// List returns the list of Present, for Connections.Run.
func (f *Follower) List() *List {
	list, _ := f.Present()
	return list
}

// Run follows the published list until ctx ends.
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

// firstLook is how often forbidden asks the API until it has an answer.
const firstLook = time.Second

// forbidden handles API servers that do not publish a list, as upstream's: they do not
// let nodes read this ConfigMap. The follower then treats nothing as revoked.
func (f *Follower) forbidden(ctx context.Context, maps client.Resource[*corev1.ConfigMap]) error {
	for {
		if _, known := f.Present(); known {
			return nil
		}
		if _, err := maps.Get(ctx, ConfigMap); apierrors.IsForbidden(err) {
			f.cfg.Log.Warn("read revoked certificates forbidden", "error", err)
			f.learn("")
			return nil
		}
		if backoff.Sleep(ctx, firstLook) != nil {
			return nil
		}
	}
}

// learn merges the published list into the current one; "" means that none is published.
func (f *Follower) learn(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known = true
	if text != "" {
		f.text = text
		f.verifyLocked(f.authorities.Get())
	}
}

// verifyLocked parses the published list with the given CAs, merges it into the current
// list and, if that changes, stores the result. It logs invalid lists.
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
		f.cfg.Log.Error("store revocation list failed; after a restart it is missing until the API server is reachable", "error", err)
	}
}

// store replaces a file atomically.
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
