package volumes

import (
	"context"
	"fmt"
	"hash/fnv"
	"io/fs"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/kubelet/podspec"
)

// tokenKey identifies a token of one pod.
type tokenKey struct {
	serviceAccount, audience string
	seconds                  int64
}

const (
	tokenSeconds = 3600           // upstream's default lifetime
	tokenMaxAge  = 24 * time.Hour // a token is renewed after this time even if it is valid for longer
	tokenSpread  = 10 * time.Second
)

// token adds a service account token that is bound to the pod.
func (r *reader) token(ctx context.Context, p *corev1.ServiceAccountTokenProjection, mode fs.FileMode) error {
	token, err := r.freshToken(ctx, p)
	if err != nil {
		return fmt.Errorf("failed to fetch token: %w", err)
	}
	owner := commonUser(r.v.Pod)
	if owner != nil || fsGroup(r.v.Pod) != nil {
		mode = 0o600 // own adds the bits of the group
	}
	r.files[clean(p.Path)] = file{data: []byte(token), mode: mode, uid: owner}
	return nil
}

// freshToken returns the token of a projection.
func (r *reader) freshToken(ctx context.Context, p *corev1.ServiceAccountTokenProjection) (string, error) {
	t, err := r.v.Token(ctx, p.Audience, p.ExpirationSeconds)
	if err != nil {
		return "", err
	}
	return t.Status.Token, nil
}

// Token returns the current token of the pod's service account for an audience; "" is
// that of the API server. seconds is its lifetime; nil is upstream's default. It requests
// a new token when renewAt has passed. If that fails, it returns the old one until it
// expires. The caller is the driver, in a call for this volume.
func (v *Volume) Token(ctx context.Context, audience string, seconds *int64) (*authenticationv1.TokenRequest, error) {
	key := tokenKey{v.Pod.Spec.ServiceAccountName, audience, tokenSeconds}
	if seconds != nil {
		key.seconds = *seconds
	}
	now := v.host.Now()
	have := v.tokens[key]
	if have != nil && !have.due(now, v.Pod.UID) {
		return have.TokenRequest, nil
	}
	var audiences []string
	if key.audience != "" {
		audiences = []string{key.audience}
	}
	got, err := v.host.Sources.Token(ctx, v.Pod.Namespace, key.serviceAccount, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			Audiences:         audiences,
			ExpirationSeconds: &key.seconds,
			BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: v.Pod.Name, UID: v.Pod.UID},
		},
	})
	if err != nil {
		if have != nil && now.Before(have.Status.ExpirationTimestamp.Time) {
			v.host.Log.Warn("service account token could not be renewed; the present one is still good",
				"pod", v.Pod.Namespace+"/"+v.Pod.Name, "expires", have.Status.ExpirationTimestamp.Time, "err", err)
			return have.TokenRequest, nil
		}
		return nil, err
	}
	got = got.DeepCopy()
	if got.Spec.ExpirationSeconds == nil {
		got.Spec.ExpirationSeconds = &key.seconds
	}
	v.tokens[key] = &heldToken{got, now}
	return got, nil
}

// heldToken is a token with the time of its receipt.
type heldToken struct {
	*authenticationv1.TokenRequest
	got time.Time
}

// due reports whether a token is older than 80% of its lifetime, or than a day. It spreads
// pods that started together over some seconds. The age counts from the receipt: the clock
// of the API server may differ from this one. If the clock was set since then, forward or
// back, the token is due when either the time that has passed or the clock says so, and when
// the clock shows a time before the receipt.
func (t *heldToken) due(now time.Time, pod types.UID) bool {
	life := time.Duration(*t.Spec.ExpirationSeconds) * time.Second
	h := fnv.New32a()
	h.Write([]byte(pod))
	early := time.Duration(h.Sum32()) * time.Millisecond % tokenSpread
	byClock := now.Round(0).Sub(t.got.Round(0))
	return byClock < 0 || max(byClock, now.Sub(t.got)) >= min(life*8/10, tokenMaxAge)-early
}

// commonUser returns the user that all containers of the pod run as; nil if the spec
// does not set one user for all.
func commonUser(pod *corev1.Pod) *int64 {
	var podUser, user *int64
	if sc := pod.Spec.SecurityContext; sc != nil {
		podUser = sc.RunAsUser
	}
	same := true
	visit := func(sc *corev1.SecurityContext) {
		u := podUser
		if sc != nil && sc.RunAsUser != nil {
			u = sc.RunAsUser
		}
		if u == nil || user != nil && *u != *user {
			same = false
			return
		}
		user = u
	}
	for c := range podspec.Containers(pod) {
		visit(c.SecurityContext)
	}
	if !same {
		return nil
	}
	return user
}
