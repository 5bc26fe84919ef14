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
)

// tokenKey is what tells the tokens of one pod apart.
type tokenKey struct {
	serviceAccount, audience string
	seconds                  int64
}

const (
	tokenSeconds = 3600           // upstream's default lifetime
	tokenMaxAge  = 24 * time.Hour // however long it is good for, a token is renewed after this
	tokenSpread  = 10 * time.Second
)

// token adds a service account's token, bound to the pod.
func (r *reader) token(ctx context.Context, p *corev1.ServiceAccountTokenProjection, mode fs.FileMode) error {
	token, err := r.freshToken(ctx, p)
	if err != nil {
		return fmt.Errorf("failed to fetch token: %w", err)
	}
	owner := soleUser(r.pod)
	if owner != nil || fsGroup(r.pod) != nil {
		mode = 0o600 // the group's bits are added with the group
	}
	r.files[clean(p.Path)] = file{data: []byte(token), mode: mode, uid: owner}
	return nil
}

// freshToken is the pod's present token, or a new one when a fifth or less of
// its life is left. When none can be had, the old one serves until it expires.
func (r *reader) freshToken(ctx context.Context, p *corev1.ServiceAccountTokenProjection) (string, error) {
	key := tokenKey{r.pod.Spec.ServiceAccountName, p.Audience, tokenSeconds}
	if p.ExpirationSeconds != nil {
		key.seconds = *p.ExpirationSeconds
	}
	now := r.m.Now()
	have := r.state.tokens[key]
	if have != nil && now.Before(renewAt(have, r.pod.UID)) {
		return have.Status.Token, nil
	}
	var audiences []string
	if key.audience != "" {
		audiences = []string{key.audience}
	}
	got, err := r.m.Sources.Token(ctx, r.pod.Namespace, key.serviceAccount, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			Audiences:         audiences,
			ExpirationSeconds: &key.seconds,
			BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: r.pod.Name, UID: r.pod.UID},
		},
	})
	if err != nil {
		if have != nil && now.Before(have.Status.ExpirationTimestamp.Time) {
			r.m.Log.Warn("service account token could not be renewed; the present one is still good",
				"pod", r.pod.Namespace+"/"+r.pod.Name, "expires", have.Status.ExpirationTimestamp.Time, "err", err)
			return have.Status.Token, nil
		}
		return "", err
	}
	got = got.DeepCopy()
	if got.Spec.ExpirationSeconds == nil {
		got.Spec.ExpirationSeconds = &key.seconds
	}
	r.state.tokens[key] = got
	return got.Status.Token, nil
}

// renewAt is 80% into a token's life, or a day. Pods started together are
// spread over a few seconds.
func renewAt(t *authenticationv1.TokenRequest, pod types.UID) time.Time {
	life := time.Duration(*t.Spec.ExpirationSeconds) * time.Second
	issued := t.Status.ExpirationTimestamp.Add(-life)
	h := fnv.New32a()
	h.Write([]byte(pod))
	early := time.Duration(h.Sum32()) * time.Millisecond % tokenSpread
	return issued.Add(min(life*8/10, tokenMaxAge) - early)
}

// soleUser is the user that all containers of the pod run as, if its spec says so.
func soleUser(pod *corev1.Pod) *int64 {
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
	for i := range pod.Spec.InitContainers {
		visit(pod.Spec.InitContainers[i].SecurityContext)
	}
	for i := range pod.Spec.Containers {
		visit(pod.Spec.Containers[i].SecurityContext)
	}
	for i := range pod.Spec.EphemeralContainers {
		visit(pod.Spec.EphemeralContainers[i].SecurityContext)
	}
	if !same {
		return nil
	}
	return user
}
