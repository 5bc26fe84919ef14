package encryption

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"podium/pkg/storage"
)

// Prefixes of stored values.
const (
	encryptedPrefix = storage.Sealed // of every encrypted value
	gcmPrefix       = "k8s:enc:aesgcm:v1:"
	cbcPrefix       = "k8s:enc:aescbc:v1:"
	boxPrefix       = "k8s:enc:secretbox:v1:"
	kmsPrefix       = "k8s:enc:kms:v2:"
)

var (
	errNoMatch   = errors.New("no matching prefix found: the configuration lacks the provider or the key that wrote the value")
	errEncrypted = errors.New("identity transformer tried to read encrypted data")
)

// provider encrypts and decrypts values. path is the key of the value in the store.
// The methods do not modify their arguments and are safe for concurrent use. stale
// reports that the value should be encrypted again although its provider is the
// first one.
type provider interface {
	seal(ctx context.Context, plain []byte, path string) ([]byte, error)
	open(ctx context.Context, sealed []byte, path string) (plain []byte, stale bool, err error)
}

// local is a provider with its key in memory.
type local struct{ localCipher }

func (l local) seal(_ context.Context, plain []byte, path string) ([]byte, error) {
	return l.localCipher.seal(plain, path)
}

func (l local) open(_ context.Context, sealed []byte, path string) ([]byte, bool, error) {
	plain, err := l.localCipher.open(sealed, path)
	return plain, false, err
}

// identity stores values unencrypted. It returns an error for encrypted ones.
type identity struct{}

func (identity) seal(_ context.Context, plain []byte, _ string) ([]byte, error) {
	if bytes.HasPrefix(plain, []byte(encryptedPrefix)) {
		return nil, fmt.Errorf("a plain value may not begin with %s", encryptedPrefix)
	}
	return plain, nil
}

func (identity) open(_ context.Context, sealed []byte, _ string) ([]byte, bool, error) {
	if bytes.HasPrefix(sealed, []byte(encryptedPrefix)) {
		return nil, false, errEncrypted
	}
	return sealed, false, nil
}

// named is a provider with the prefix of its values.
type named struct {
	provider
	prefix string // of its values: the names of provider and key
	label  string // for metrics: the name of the provider
}

// list holds the providers of a resource: the first one writes, all read.
type list struct {
	resource string // for metrics
	entries  []named
	metrics  *metrics
}

// seal encrypts with the first provider.
func (l *list) seal(ctx context.Context, plain []byte, path string) ([]byte, error) {
	first := &l.entries[0]
	began := time.Now()
	sealed, err := first.seal(ctx, plain, path)
	l.metrics.transformed(l.resource, "to_storage", first.label, began, err)
	if err != nil {
		return nil, fmt.Errorf("encrypt %s: %w", path, err)
	}
	if first.prefix == "" {
		return sealed, nil
	}
	return append([]byte(first.prefix), sealed...), nil
}

// open decrypts with the first provider that succeeds. Two providers may have the
// same prefix while a key is replaced by another one with the same name.
func (l *list) open(ctx context.Context, sealed []byte, path string) (plain []byte, stale bool, err error) {
	began := time.Now()
	var errs []error
	for i := range l.entries {
		e := &l.entries[i]
		if !bytes.HasPrefix(sealed, []byte(e.prefix)) {
			continue
		}
		plain, stale, err := e.open(ctx, sealed[len(e.prefix):], path)
		if errors.Is(err, errEncrypted) {
			continue
		}
		l.metrics.transformed(l.resource, "from_storage", e.label, began, err)
		if err == nil {
			return plain, stale || i > 0, nil
		}
		errs = append(errs, err)
	}
	if err = errors.Join(errs...); err == nil {
		err = errNoMatch
		l.metrics.transformed(l.resource, "from_storage", "unknown", began, err)
	}
	return nil, false, fmt.Errorf("%s: %w: %w", path, storage.ErrUnreadable, err)
}

// rules map resources to their providers.
type rules struct {
	exact  map[string]*list // by name: secrets, deployments.apps, *.apps, *., *.*
	wild   bool             // exact has wildcards
	others *list            // for all other resources: identity
}

// registry is the prefix of all keys in the store.
const registry = "/registry/"

// of returns the list for a key in the store: /registry/secrets/...,
// /registry/deployments.apps/...
func (r *rules) of(path string) *list {
	folder, _, _ := strings.Cut(strings.TrimPrefix(path, registry), "/")
	if l := r.exact[folder]; l != nil {
		return l
	}
	if !r.wild {
		return r.others
	}
	if l := r.exact[wildcardOf(folder)]; l != nil {
		return l
	}
	if l := r.exact[everything]; l != nil {
		return l
	}
	return r.others
}

// newRules builds the rules of a valid configuration. It calls plugin for each KMS
// provider.
func newRules(c *Configuration, m *metrics, plugin func(*KMSConfiguration) (provider, error)) (*rules, error) {
	r := &rules{exact: map[string]*list{}, others: &list{entries: []named{{provider: identity{}}}}}
	for _, rc := range c.Resources {
		var entries []named
		for _, p := range rc.Providers {
			more, err := p.entries(plugin)
			if err != nil {
				return nil, err
			}
			entries = append(entries, more...)
		}
		for _, name := range rc.Resources {
			r.wild = r.wild || strings.HasPrefix(name, "*.")
			if r.exact[name] == nil {
				r.exact[name] = &list{resource: name, metrics: m}
			}
			r.exact[name].entries = append(r.exact[name].entries, entries...)
		}
	}
	return r, nil
}

// entries returns an entry for each key of the provider.
func (p *ProviderConfiguration) entries(plugin func(*KMSConfiguration) (provider, error)) ([]named, error) {
	switch {
	case p.AESGCM != nil:
		return p.AESGCM.entries(gcmPrefix, newGCM)
	case p.AESCBC != nil:
		return p.AESCBC.entries(cbcPrefix, newCBC)
	case p.Secretbox != nil:
		return p.Secretbox.entries(boxPrefix, newBox)
	case p.KMS != nil:
		kms, err := plugin(p.KMS)
		if err != nil {
			return nil, fmt.Errorf("KMS provider %s: %w", p.KMS.Name, err)
		}
		prefix := kmsPrefix + p.KMS.Name + ":"
		return []named{{kms, prefix, prefix}}, nil
	}
	return []named{{provider: identity{}, label: "identity"}}, nil
}

func (c *KeysConfiguration) entries(prefix string, cipher func([]byte) (localCipher, error)) ([]named, error) {
	var out []named
	for _, key := range c.Keys {
		secret, err := base64.StdEncoding.DecodeString(key.Secret)
		if err != nil {
			return nil, fmt.Errorf("key %s: its secret must be base64", key.Name)
		}
		made, err := cipher(secret)
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", key.Name, err)
		}
		out = append(out, named{local{made}, prefix + key.Name + ":", prefix})
	}
	return out, nil
}
