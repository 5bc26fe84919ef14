package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/scheme"
	"podium/pkg/storage"
)

// ledger records which Service owns which name of a pool that all API servers
// share, such as an address. Each name has one key in the store, which is only
// created if absent, so that a name never has two owners. Safe for concurrent use.
type ledger struct {
	store  storage.Store
	prefix string
	encode func(name string, c claim) ([]byte, error)
	decode func(data []byte) (claim, error)
}

// claim is the ledger's entry for a name.
type claim struct {
	Namespace string    `json:"namespace"` // of the Service
	Name      string    `json:"name"`
	Since     time.Time `json:"since"`

	revision int64
	foreign  bool // made by a user for other purposes: never released
}

func (c claim) owner() string { return c.Namespace + "/" + c.Name }

var errTaken = errors.New("already allocated")

// take stores the claim under name. If the name is taken, it returns errTaken and
// the present claim, or an empty claim if that was released meanwhile.
func (l *ledger) take(ctx context.Context, name string, c claim) (holder claim, err error) {
	data, err := l.encode(name, c)
	if err != nil {
		return claim{}, fmt.Errorf("claim %s: %w", l.prefix+name, err)
	}
	_, err = l.store.Create(ctx, l.prefix+name, data)
	if !errors.Is(err, storage.ErrExists) {
		return claim{}, err
	}
	holder, err = l.get(ctx, name)
	if errors.Is(err, storage.ErrNotFound) {
		return claim{}, errTaken // just released; a retry may succeed
	}
	if err != nil {
		return claim{}, err
	}
	return holder, errTaken
}

// get returns the claim of name, or storage.ErrNotFound.
func (l *ledger) get(ctx context.Context, name string) (claim, error) {
	kv, err := l.store.Get(ctx, l.prefix+name)
	if err != nil {
		return claim{}, err
	}
	return l.read(kv)
}

func (l *ledger) read(kv storage.KV) (claim, error) {
	c, err := l.decode(kv.Value)
	if err != nil {
		return claim{}, fmt.Errorf("read claim %s: %w", kv.Key, err)
	}
	c.revision = kv.Revision
	return c, nil
}

// giveBack releases name if owner holds it. A second call does nothing.
func (l *ledger) giveBack(ctx context.Context, name, owner string) error {
	c, err := l.get(ctx, name)
	if errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	if err != nil || c.owner() != owner {
		return err
	}
	return l.drop(ctx, name, c)
}

// drop releases name unless its claim has changed since c was read.
func (l *ledger) drop(ctx context.Context, name string, c claim) error {
	_, err := l.store.Delete(ctx, l.prefix+name, c.revision)
	var conflict *storage.ConflictError
	if errors.As(err, &conflict) || errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	return err
}

// all returns all claims by name.
func (l *ledger) all(ctx context.Context) (map[string]claim, error) {
	page, err := l.store.List(ctx, l.prefix, storage.ListOptions{})
	if err != nil {
		return nil, err
	}
	claims := make(map[string]claim, len(page.KVs))
	for _, kv := range page.KVs {
		c, err := l.read(kv)
		if err != nil {
			return nil, err
		}
		claims[strings.TrimPrefix(kv.Key, l.prefix)] = c
	}
	return claims, nil
}

// portLedger returns the ledger of node ports.
func portLedger(store storage.Store) *ledger {
	return &ledger{
		store:  store,
		prefix: "/registry/servicenodeports/",
		encode: func(_ string, c claim) ([]byte, error) { return json.Marshal(c) },
		decode: func(data []byte) (c claim, err error) { return c, json.Unmarshal(data, &c) },
	}
}

// Labels of the IPAddress objects for Services, as upstream.
const (
	labelIPFamily    = "ipaddress.kubernetes.io/ip-family"
	labelIPManagedBy = "ipaddress.kubernetes.io/managed-by"
	ipManager        = "ipallocator.k8s.io"
)

// addressLedger returns the ledger of cluster IPs. Its entries are
// networking.k8s.io IPAddress objects, as upstream.
func addressLedger(store storage.Store, s *scheme.Scheme, family string) *ledger {
	return &ledger{
		store:  store,
		prefix: "/registry/ipaddresses.networking.k8s.io/",
		encode: func(name string, c claim) ([]byte, error) {
			return s.Encode(&networkingv1.IPAddress{
				ObjectMeta: metav1.ObjectMeta{
					Name:              name,
					UID:               types.UID(uuid.NewString()),
					CreationTimestamp: metav1.NewTime(c.Since),
					Labels:            map[string]string{labelIPFamily: family, labelIPManagedBy: ipManager},
				},
				Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{
					Resource: "services", Namespace: c.Namespace, Name: c.Name}},
			}, scheme.Protobuf)
		},
		decode: func(data []byte) (claim, error) {
			obj, _, err := s.Decode(data, scheme.Protobuf, nil)
			if err != nil {
				return claim{}, err
			}
			ip, ok := obj.(*networkingv1.IPAddress)
			if !ok || ip.Spec.ParentRef == nil {
				return claim{}, fmt.Errorf("%T is not the address of a Service", obj)
			}
			if ip.Labels[labelIPManagedBy] != ipManager {
				return claim{foreign: true}, nil
			}
			return claim{Namespace: ip.Spec.ParentRef.Namespace, Name: ip.Spec.ParentRef.Name, Since: ip.CreationTimestamp.Time}, nil
		},
	}
}
