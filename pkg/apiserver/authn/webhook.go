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
	"podium/pkg/client/ttlcache"
)

// WebhookConfig configures a token review webhook.
//
// https://kubernetes.io/docs/reference/access-authn-authz/authentication/#webhook-token-authentication
type WebhookConfig struct {
	Service   client.Config    // the service's address and this server's credentials
	Version   string           // of TokenReview: v1 or v1beta1
	CacheTTL  time.Duration    // how long results are cached; 0: not at all
	Audiences []string         // the server's audiences, which tokens have if the service returns none
	Now       func() time.Time // nil: time.Now
}

// Webhook authenticates tokens by a TokenReview sent to a service. It is safe
// for concurrent use.
type Webhook struct {
	cfg     WebhookConfig
	service *webhook.Service
	salt    []byte
	cache   *ttlcache.Cache[[sha256.Size]byte, answer]
}

// answer is a cached result. The key is a keyed hash of the token; tokens are
// not stored.
type answer struct {
	who *Identity
	err error
}

// maxAnswers is the number of cached results.
const maxAnswers = 8192

// webhookBounds limits calls, so that requests waiting for an unresponsive
// service cannot fill the memory.
var webhookBounds = webhook.Bounds{Within: 10 * time.Second, Tries: 3, Pause: 500 * time.Millisecond, AtOnce: 200}

// NewWebhook validates the configuration and returns a Webhook. It does not
// connect.
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
		cache: ttlcache.New[[sha256.Size]byte, answer](maxAnswers, cfg.Now),
	}
	_, err = rand.Read(w.salt)
	return w, err
}

// AuthenticateToken implements TokenAuthenticator. It returns a cached result
// or calls the service, which blocks.
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
	if err == nil || errors.As(err, &said) { // do not cache that the service was unavailable
		w.cache.Put(key, answer{who, err}, w.cfg.CacheTTL)
	}
	return who, err
}

// key returns the cache key of a token with its audiences. Lengths separate the
// parts, so that different inputs have different keys.
func (w *Webhook) key(p Presented) [sha256.Size]byte {
	h := hmac.New(sha256.New, w.salt)
	for _, part := range append([]string{p.Token}, p.Audiences...) {
		fmt.Fprintf(h, "%d:", len(part))
		io.WriteString(h, part)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// refusal is the service's rejection of a token, which may be cached.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

// ask sends a TokenReview and returns its result.
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

// readAnswer decodes a TokenReview. Its errors do not quote the response, which
// may contain the token.
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

// identity returns the identity in a review's status, nil if the service does
// not recognize the token. The error is a refusal.
func (w *Webhook) identity(s *authenticationv1.TokenReviewStatus, p Presented) (*Identity, error) {
	if !s.Authenticated {
		if s.Error != "" {
			return nil, &refusal{"webhook: the service refuses the token"}
		}
		return nil, nil
	}
	audiences := s.Audiences
	if len(audiences) == 0 {
		audiences = w.cfg.Audiences // the service does not support audiences: the token is for this server
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
