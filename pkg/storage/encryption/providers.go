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

// What stands at the beginning of values on disk.
const (
	encryptedPrefix = storage.Sealed // whatever the provider
	gcmPrefix       = "k8s:enc:aesgcm:v1:"
	cbcPrefix       = "k8s:enc:aescbc:v1:"
	boxPrefix       = "k8s:enc:secretbox:v1:"
	kmsPrefix       = "k8s:enc:kms:v2:"
)

var (
	errNoMatch   = errors.New("no matching prefix found: the configuration lacks the provider or the key that wrote the value")
	errEncrypted = errors.New("identity transformer tried to read encrypted data")
)

// provider encrypts and decrypts values. path is the value's key in the store;
// the bytes given are not modified. stale says that the value should be
// written anew although its provider is the first.
type provider interface {
	seal(ctx context.Context, plain []byte, path string) ([]byte, error)
	open(ctx context.Context, sealed []byte, path string) (plain []byte, stale bool, err error)
}

// local is a provider that has its key at hand.
type local struct{ localCipher }

func (l local) seal(_ context.Context, plain []byte, path string) ([]byte, error) {
	return l.localCipher.seal(plain, path)
}

func (l local) open(_ context.Context, sealed []byte, path string) ([]byte, bool, error) {
	plain, err := l.localCipher.open(sealed, path)
	return plain, false, err
}

// identity leaves values as they are. It refuses those that are encrypted.
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

// named is a provider under what its values begin with.
type named struct {
	provider
	prefix string // of its values: the provider's and the key's name
	label  string // for metrics: the provider's part of it
}

// list is the providers of a resource: the first writes, all read.
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

// open decrypts with the first provider that can. Several may have the same
// prefix while one key replaces another of its name.
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

// rules say which providers a resource has.
type rules struct {
	exact  map[string]*list // by secrets, deployments.apps, *.apps, *., *.*
	wild   bool             // there are wildcards in exact
	others *list            // of all that is not named: identity
}

// registry is what every key in the store begins with.
const registry = "/registry/"

// of is the list for a key in the store: /registry/secrets/..., /registry/deployments.apps/...
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

// newRules builds what a valid configuration says. plugin makes the provider
// of a KMS.
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

// entries are a provider's keys, each an entry of its own.
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
