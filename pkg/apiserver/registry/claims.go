package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/scheme"
	"podium/pkg/storage"
)

// A ledger says who owns which of a stock of names that all apiservers share:
// one key a name, made by create-if-absent, so that two can never own one.
type ledger struct {
	store  storage.Store
	prefix string
	encode func(name string, c claim) ([]byte, error)
	decode func(data []byte) (claim, error)
}

// claim is what stands in the ledger under a name.
type claim struct {
	Namespace string    `json:"namespace"` // of the Service
	Name      string    `json:"name"`
	Since     time.Time `json:"since"`

	revision int64
}

func (c claim) owner() string { return c.Namespace + "/" + c.Name }

var errTaken = errors.New("already allocated")

// take writes the claim under name, or returns errTaken and the present one.
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
		return claim{}, errTaken // just given back; who asks again may have it
	}
	if err != nil {
		return claim{}, err
	}
	return holder, errTaken
}

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

// giveBack frees name if owner has it. Twice is fine.
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

// drop frees name unless its claim is not c any more.
func (l *ledger) drop(ctx context.Context, name string, c claim) error {
	_, err := l.store.Delete(ctx, l.prefix+name, c.revision)
	var conflict *storage.ConflictError
	if errors.As(err, &conflict) || errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	return err
}

// all is the whole ledger.
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

// portLedger keeps node ports.
func portLedger(store storage.Store) *ledger {
	return &ledger{
		store:  store,
		prefix: "/registry/servicenodeports/",
		encode: func(_ string, c claim) ([]byte, error) { return json.Marshal(c) },
		decode: func(data []byte) (c claim, err error) { return c, json.Unmarshal(data, &c) },
	}
}

// Labels of the IPAddress objects that are made for Services, as upstream has them.
const (
	labelIPFamily    = "ipaddress.kubernetes.io/ip-family"
	labelIPManagedBy = "ipaddress.kubernetes.io/managed-by"
	ipManager        = "ipallocator.k8s.io"
)

// addressLedger keeps cluster IPs, as the networking.k8s.io IPAddress objects
// that upstream keeps.
func addressLedger(store storage.Store, s *scheme.Scheme, family string) *ledger {
	return &ledger{
		store:  store,
		prefix: "/registry/ipaddresses.networking.k8s.io/",
		encode: func(name string, c claim) ([]byte, error) {
			return s.Encode(&networkingv1.IPAddress{
				ObjectMeta: metav1.ObjectMeta{
					Name:              name,
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
			return claim{Namespace: ip.Spec.ParentRef.Namespace, Name: ip.Spec.ParentRef.Name, Since: ip.CreationTimestamp.Time}, nil
		},
	}
}
