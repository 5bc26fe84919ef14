package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"

	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/request"
	"podium/pkg/client/answers"
	"podium/pkg/client/kubeconfig"
)

// What a question may cost.
const (
	within      = 10 * time.Second // with all attempts
	attempts    = 3
	firstPause  = 500 * time.Millisecond
	maxAtOnce   = 200
	maxAnswer   = 1 << 20 // bytes
	maxQuestion = 10_000  // bytes: a longer one is asked, but not remembered
	maxAnswers  = 8192    // are remembered
)

// Config says where the webhook is and how long its answers hold.
type Config struct {
	File       string // a kubeconfig: the cluster is the webhook, the user is us
	AllowedTTL time.Duration
	DeniedTTL  time.Duration
	Registry   prometheus.Registerer // optional
	Now        func() time.Time      // optional: time.Now
}

// Authorizer asks the webhook. When it gives no answer the authorizer has no
// opinion: the next is asked, and if there is none the request is refused.
type Authorizer struct {
	cfg     Config
	url     string
	token   func() (string, error)
	client  *http.Client
	cache   *answers.Cache[string, answer]
	places  chan struct{}
	metrics *metrics
}

// answer is what the webhook has said.
type answer struct {
	decision authz.Decision
	reason   string
}

// New reads the file.
func New(cfg Config) (*Authorizer, error) {
	file, err := kubeconfig.Load(cfg.File)
	if err != nil {
		return nil, fmt.Errorf("authorization webhook: %w", err)
	}
	to, _, err := file.Client("")
	if err != nil {
		return nil, fmt.Errorf("authorization webhook: %w", err)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if to.TLS != nil {
		transport.TLSClientConfig = to.TLS
	}
	return &Authorizer{
		cfg: cfg, url: to.Servers[0], token: to.Token,
		client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // a question goes to whom it was meant for
		}},
		cache:   answers.New[string, answer](maxAnswers, cfg.Now),
		places:  make(chan struct{}, maxAtOnce),
		metrics: newMetrics(cfg.Registry),
	}, nil
}

// Authorize asks, unless the answer is known.
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

func (a *Authorizer) remember(question string, decision authz.Decision, reason string) {
	ttl := a.cfg.DeniedTTL
	if decision == authz.Allow {
		ttl = a.cfg.AllowedTTL
	}
	if len(question) <= maxQuestion {
		a.cache.Put(question, answer{decision, reason}, ttl)
	}
}

var errBusy = errors.New("too many questions are open")

// ask sends the question, again when the webhook could not be reached.
func (a *Authorizer) ask(ctx context.Context, question []byte) (*authorizationv1.SubjectAccessReviewStatus, error) {
	select {
	case a.places <- struct{}{}:
		defer func() { <-a.places }()
	default:
		return nil, errBusy
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	pause := firstPause
	for n := 1; ; n++ {
		status, again, err := a.once(ctx, question)
		if err == nil || !again || n == attempts {
			return status, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
		pause = pause * 3 / 2
	}
}

// once sends the question; again says that another attempt may help.
func (a *Authorizer) once(ctx context.Context, question []byte) (status *authorizationv1.SubjectAccessReviewStatus, again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url, bytes.NewReader(question))
	if err != nil {
		return nil, false, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if a.token != nil {
		token, err := a.token()
		if err != nil {
			return nil, false, err
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, true, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, true, err
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500:
		return nil, true, fmt.Errorf("the webhook answers %s", resp.Status)
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusCreated:
		return nil, false, fmt.Errorf("the webhook answers %s", resp.Status)
	}
	status, err = read(body)
	return status, false, err
}

// read takes an answer apart. One that says yes and no is none.
func read(body []byte) (*authorizationv1.SubjectAccessReviewStatus, error) {
	if len(body) > maxAnswer {
		return nil, fmt.Errorf("the webhook's answer has more than %d bytes", maxAnswer)
	}
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
