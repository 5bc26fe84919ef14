package certfile

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"
)

// checkEvery is the minimum time between two checks of the files.
const checkEvery = time.Second

// Value is loaded from files and reloaded when they change. If reloading fails (a
// file is half written, say), Value keeps the old value and tries again. It is safe
// for concurrent use.
type Value[T any] struct {
	files []string
	load  func() (T, error)

	mu      sync.Mutex
	value   T
	stamps  []stamp
	checked time.Time
}

type stamp struct {
	modified time.Time
	size     int64
}

// NewValue loads a value from files. It returns an error if a file does not exist or
// load fails.
func NewValue[T any](load func() (T, error), files ...string) (*Value[T], error) {
	w := &Value[T]{files: files, load: load}
	stamps, err := w.stat()
	if err != nil {
		return nil, err
	}
	if w.value, err = load(); err != nil {
		return nil, err
	}
	w.stamps, w.checked = stamps, time.Now()
	return w, nil
}

// Get returns the current value. A change of the files shows after at most a second.
func (w *Value[T]) Get() T {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.checked) < checkEvery {
		return w.value
	}
	w.checked = time.Now()
	stamps, err := w.stat()
	if err != nil || equal(stamps, w.stamps) {
		return w.value
	}
	if value, err := w.load(); err == nil {
		w.value, w.stamps = value, stamps
	}
	return w.value
}

func (w *Value[T]) stat() ([]stamp, error) {
	stamps := make([]stamp, len(w.files))
	for i, name := range w.files {
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		stamps[i] = stamp{info.ModTime(), info.Size()}
	}
	return stamps, nil
}

func equal(a, b []stamp) bool {
	for i := range a {
		if a[i].size != b[i].size || !a[i].modified.Equal(b[i].modified) {
			return false
		}
	}
	return true
}

// Pair is a certificate and its private key.
type Pair struct{ w *Value[*tls.Certificate] }

// NewPair loads a certificate and its key from PEM files.
func NewPair(certFile, keyFile string) (*Pair, error) {
	w, err := NewValue(func() (*tls.Certificate, error) {
		cert, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, fmt.Errorf("certificate %s, key %s: %w", certFile, keyFile, err)
		}
		return &cert, nil
	}, certFile, keyFile)
	if err != nil {
		return nil, err
	}
	return &Pair{w}, nil
}

// Get returns the current certificate. It is shared: callers must not modify it.
func (p *Pair) Get() *tls.Certificate { return p.w.Get() }

// Pool is a set of CA certificates.
type Pool struct{ w *Value[*x509.CertPool] }

// NewPool loads a file of PEM certificates.
func NewPool(caFile string) (*Pool, error) {
	w, err := NewValue(func() (*x509.CertPool, error) {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, err
		}
		return ParsePool(pem, caFile)
	}, caFile)
	if err != nil {
		return nil, err
	}
	return &Pool{w}, nil
}

// Get returns the current set.
func (p *Pool) Get() *x509.CertPool { return p.w.Get() }

// ParsePool parses PEM certificates; from names their source in errors.
func ParsePool(pem []byte, from string) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no PEM certificate", from)
	}
	return pool, nil
}

// Text is a file's content.
type Text struct{ w *Value[[]byte] }

// NewText loads the file.
func NewText(name string) (*Text, error) {
	w, err := NewValue(func() ([]byte, error) { return os.ReadFile(name) }, name)
	if err != nil {
		return nil, err
	}
	return &Text{w}, nil
}

// Get returns the current content. Callers must not modify it.
func (t *Text) Get() []byte { return t.w.Get() }
