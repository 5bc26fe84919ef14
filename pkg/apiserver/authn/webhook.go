package authn

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/request"
	"podium/pkg/apiserver/webhook"
	"podium/pkg/client"
	"podium/pkg/client/access"
	"podium/pkg/client/answers"
)

// WebhookConfig is a service that is asked whose a token is.
// https://kubernetes.io/docs/reference/access-authn-authz/authentication/#webhook-token-authentication
type WebhookConfig struct {
	Service   client.Config    // where it is and how it knows us
	Version   string           // of authentication.k8s.io that it speaks: v1 or v1beta1
	CacheTTL  time.Duration    // how long an answer is good for; 0: it is asked every time
	Audiences []string         // the server's own names: for these are tokens of a service that knows no audiences
	Now       func() time.Time // nil: time.Now
}

// Webhook knows users by asking a service.
type Webhook struct {
	cfg     WebhookConfig
	service *webhook.Service
	salt    []byte
	cache   *answers.Cache[[sha256.Size]byte, answer]
}

// answer is what the service has said of a token. Tokens themselves are not
// kept: answers are found by a keyed hash.
type answer struct {
	who *Identity
	err error
}

const maxAnswers = 8192

// webhookBounds: a service that hangs must not fill the memory with those who wait.
var webhookBounds = webhook.Bounds{Within: 10 * time.Second, Tries: 3, Pause: 500 * time.Millisecond, AtOnce: 200}

// NewWebhook checks the configuration; the service is not asked yet.
func NewWebhook(cfg WebhookConfig) (*Webhook, error) {
	if cfg.Version != "v1" && cfg.Version != "v1beta1" {
		return nil, fmt.Errorf("--authentication-token-webhook-version=%s is neither v1 nor v1beta1", cfg.Version)
	}
	service, err := webhook.New(cfg.Service, webhookBounds)
	if err != nil {
		return nil, fmt.Errorf("--authentication-token-webhook-config-file: %w", err)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	w := &Webhook{
		cfg: cfg, service: service, salt: make([]byte, sha256.Size),
		cache: answers.New[[sha256.Size]byte, answer](maxAnswers, cfg.Now),
	}
	_, err = rand.Read(w.salt)
	return w, err
}

// AuthenticateToken asks the service, or remembers what it said.
func (w *Webhook) AuthenticateToken(ctx context.Context, _ Objects, p Presented) (*Identity, error) {
	if w.cfg.CacheTTL <= 0 {
		return w.ask(ctx, p)
	}
	key := w.key(p)
	if have, ok := w.cache.Get(key); ok {
		return have.who, have.err
	}
	who, err := w.ask(ctx, p)
	var said *refusal
	if err == nil || errors.As(err, &said) { // a service that was not there may be there next time
		w.cache.Put(key, answer{who, err}, w.cfg.CacheTTL)
	}
	return who, err
}

func (w *Webhook) key(p Presented) [sha256.Size]byte {
	h := hmac.New(sha256.New, w.salt)
	for _, part := range append([]string{p.Token}, p.Audiences...) {
		fmt.Fprintf(h, "%d:", len(part))
		io.WriteString(h, part)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// refusal is the service's own word on a token.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

// ask sends the token and reads whose it is.
func (w *Webhook) ask(ctx context.Context, p Presented) (*Identity, error) {
	question, err := json.Marshal(&authenticationv1.TokenReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/" + w.cfg.Version, Kind: "TokenReview"},
		Spec:     authenticationv1.TokenReviewSpec{Token: p.Token, Audiences: p.Audiences},
	})
	if err != nil {
		return nil, fmt.Errorf("webhook: encode the question: %w", err)
	}
	text, err := w.service.Post(ctx, question)
	if err != nil {
		return nil, fmt.Errorf("webhook: %w: %w", ErrUnavailable, err)
	}
	status, err := readAnswer(text, w.cfg.Version)
	if err != nil {
		return nil, fmt.Errorf("webhook: %w: %w", ErrUnavailable, err)
	}
	return w.identity(status, p)
}

// readAnswer reads a TokenReview. The texts of its problems do not repeat it:
// it may hold the token.
func readAnswer(text []byte, version string) (*authenticationv1.TokenReviewStatus, error) {
	var review authenticationv1.TokenReview
	if err := json.Unmarshal(text, &review); err != nil {
		return nil, errors.New("the answer is no TokenReview")
	}
	if review.Kind != "TokenReview" || review.APIVersion != "authentication.k8s.io/"+version {
		return nil, fmt.Errorf("the answer is no TokenReview of authentication.k8s.io/%s", version)
	}
	if review.Status.Authenticated && review.Status.User.Username == "" {
		return nil, errors.New("the answer is an authenticated user without a name")
	}
	return &review.Status, nil
}

func (w *Webhook) identity(s *authenticationv1.TokenReviewStatus, p Presented) (*Identity, error) {
	if !s.Authenticated {
		if s.Error != "" {
			return nil, &refusal{"webhook: the service refuses the token"}
		}
		return nil, nil
	}
	audiences := s.Audiences
	if len(audiences) == 0 {
		audiences = w.cfg.Audiences // it knows no audiences: what it vouches for is for this server
	}
	if audiences = common(p.Audiences, audiences); len(audiences) == 0 {
		return nil, &refusal{"webhook: the token is for other audiences"}
	}
	u := &request.User{
		Name: s.User.Username, UID: s.User.UID, Groups: slices.Clone(s.User.Groups), Extra: access.Extra[[]string](s.User.Extra),
	}
	if !u.In(Authenticated) {
		u.Groups = append(u.Groups, Authenticated)
	}
	return &Identity{User: u, Audiences: audiences}, nil
}
