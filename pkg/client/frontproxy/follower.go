package frontproxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"podium/pkg/client"
	"podium/pkg/client/access"
	"podium/pkg/client/informer"
	"podium/pkg/client/revocation"
	"podium/pkg/scheme"
)

// Follower keeps the Trust that the API servers publish. It is safe for concurrent use.
type Follower struct {
	log    *slog.Logger
	now    func() time.Time
	maps   *informer.Informer[*corev1.ConfigMap]
	latest atomic.Pointer[Trust]
}

// NewFollower returns a Follower that trusts no proxy until Run has read the settings.
// The client needs the Role extension-apiserver-authentication-reader.
func NewFollower(c *client.Client, log *slog.Logger, now func() time.Time) *Follower {
	f := &Follower{log: log, now: now}
	f.maps = informer.New(client.For[*corev1.ConfigMap](c).In(revocation.Namespace), informer.Options{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, revocation.ConfigMap).String(), Log: log,
		Transform: func(obj scheme.Object) { obj.SetManagedFields(nil) },
	})
	f.maps.OnChange(func(_, m *corev1.ConfigMap) { f.learn(m) })
	return f
}

// Run follows the settings until ctx ends.
func (f *Follower) Run(ctx context.Context) error { return f.maps.Run(ctx) }

// learn keeps the settings that were valid last if those of m are not, or m is nil: the
// API servers write the ConfigMap again.
func (f *Follower) learn(m *corev1.ConfigMap) {
	if m == nil {
		return
	}
	trust, err := Parse(m.Data)
	if err != nil {
		f.log.Warn("read the settings of front proxies failed", "configmap", revocation.ConfigMap, "err", err)
		return
	}
	f.latest.Store(trust)
}

// Ready returns nil when front proxies are trusted.
func (f *Follower) Ready() error {
	switch {
	case !f.maps.Synced():
		return errors.New("waiting for the settings of front proxies")
	case f.latest.Load() == nil:
		return fmt.Errorf("the ConfigMap %s/%s names no CA of front proxies", revocation.Namespace, revocation.ConfigMap)
	}
	return nil
}

// User authenticates a request; it is access.Config's Proxy.
func (f *Follower) User(r *http.Request) (*access.User, error) {
	trust := f.latest.Load()
	if trust == nil {
		return nil, nil
	}
	return trust.User(r, f.now())
}
