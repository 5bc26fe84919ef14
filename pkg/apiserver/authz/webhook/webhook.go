package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"

	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/request"
	"podium/pkg/apiserver/webhook"
	"podium/pkg/client/ttlcache"
)

// bounds are the limits of a review, in total and concurrently.
var bounds = webhook.Bounds{Within: 10 * time.Second, Tries: 3, Pause: 500 * time.Millisecond, AtOnce: 200}

const (
	maxQuestion = 10_000 // bytes of a review; longer ones are not cached
	maxAnswers  = 8192   // decisions in the cache
)

// Config configures the webhook and the cache.
type Config struct {
	File       string // a kubeconfig: its cluster is the webhook, its user the server's credentials
	AllowedTTL time.Duration
	DeniedTTL  time.Duration
	Registry   prometheus.Registerer // optional
	Now        func() time.Time      // optional: time.Now
}

// Authorizer authorizes requests by calling the webhook. If the call fails its
// decision is NoOpinion, so that the next authorizer decides. It is safe for
// concurrent use.
type Authorizer struct {
	cfg     Config
	service *webhook.Service
	cache   *ttlcache.Cache[string, answer]
	metrics *metrics
}

// answer is a cached decision.
type answer struct {
	decision authz.Decision
	reason   string
}

// New returns an authorizer for the webhook of a kubeconfig. It does not
// connect.
func New(cfg Config) (*Authorizer, error) {
	to, err := webhook.Load(cfg.File)
	if err != nil {
		return nil, fmt.Errorf("authorization webhook: %w", err)
	}
	service, err := webhook.New(to, bounds)
	if err != nil {
		return nil, fmt.Errorf("authorization webhook: %w", err)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Authorizer{
		cfg: cfg, service: service,
		cache:   ttlcache.New[string, answer](maxAnswers, cfg.Now),
		metrics: newMetrics(cfg.Registry),
	}, nil
}

// Authorize implements authz.Authorizer. It returns a cached decision or calls
// the webhook, which blocks.
func (a *Authorizer) Authorize(ctx context.Context, user *request.User, info *request.Info) (authz.Decision, string) {
	review := &authorizationv1.SubjectAccessReview{Spec: authz.Question(user, info)}
	review.SetGroupVersionKind(authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"))
	question, err := json.Marshal(review)
	if err != nil {
		return authz.NoOpinion, ""
	}
	if known, ok := a.cache.Get(string(question)); ok {
		return known.decision, known.reason
	}
	began := time.Now()
	status, err := a.ask(ctx, question)
	a.metrics.observe(err, time.Since(began))
	if err != nil {
		return authz.NoOpinion, "the authorization webhook gave no answer"
	}
	decision := authz.NoOpinion
	switch {
	case status.Allowed:
		decision = authz.Allow
	case status.Denied:
		decision = authz.Deny
	}
	a.remember(string(question), decision, status.Reason)
	return decision, status.Reason
}

// remember caches a decision for the TTL of its kind, unless the review is too
// large.
func (a *Authorizer) remember(question string, decision authz.Decision, reason string) {
	ttl := a.cfg.DeniedTTL
	if decision == authz.Allow {
		ttl = a.cfg.AllowedTTL
	}
	if len(question) <= maxQuestion {
		a.cache.Put(question, answer{decision, reason}, ttl)
	}
}

func (a *Authorizer) ask(ctx context.Context, question []byte) (*authorizationv1.SubjectAccessReviewStatus, error) {
	answer, err := a.service.Post(ctx, question)
	if err != nil {
		return nil, err
	}
	return read(answer)
}

// read decodes a review. It returns an error for one that both allows and
// denies.
func read(body []byte) (*authorizationv1.SubjectAccessReviewStatus, error) {
	review := &authorizationv1.SubjectAccessReview{}
	if err := json.Unmarshal(body, review); err != nil {
		return nil, fmt.Errorf("read the webhook's answer: %w", err)
	}
	if gvk := review.GroupVersionKind(); gvk != authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview") {
		return nil, fmt.Errorf("the webhook answers with a %v", gvk)
	}
	if review.Status.Allowed && review.Status.Denied {
		return nil, errors.New("webhook subject access review returned both allow and deny response")
	}
	return &review.Status, nil
}
