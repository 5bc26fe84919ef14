package bootstraptoken

import (
	"crypto/rand"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Namespace, type and names of the token Secrets.
// https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/
const (
	Namespace    = metav1.NamespaceSystem
	SecretType   = corev1.SecretTypeBootstrapToken
	SecretPrefix = "bootstrap-token-"

	UserPrefix = "system:bootstrap:"
	Group      = "system:bootstrappers" // group of all bootstrap tokens' users

	keyID          = "token-id"
	keySecret      = "token-secret"
	keyExpiration  = "expiration"
	keyDescription = "description"
	keyGroups      = "auth-extra-groups"
	usagePrefix    = "usage-bootstrap-"
)

// The usages of a token.
const (
	Authentication = "authentication" // the token authenticates its bearer
	Signing        = "signing"        // the token signs cluster-info
)

// Token is the two halves of a token: an id, which is public, and a secret.
type Token struct{ ID, Secret string }

// String returns the token as ID.SECRET, the form given to a new machine. The result
// is secret.
func (t Token) String() string { return t.ID + "." + t.Secret }

// SecretName returns the name of the Secret that holds the token.
func (t Token) SecretName() string { return SecretPrefix + t.ID }

const (
	idLength     = 6
	secretLength = 16
	letters      = "0123456789abcdefghijklmnopqrstuvwxyz"
)

// Parse parses a token. ok is false if text is not in the form of a token.
func Parse(text string) (t Token, ok bool) {
	id, secret, ok := strings.Cut(text, ".")
	if !ok || !spelled(id, idLength) || !spelled(secret, secretLength) {
		return Token{}, false
	}
	return Token{id, secret}, true
}

func spelled(s string, length int) bool {
	return len(s) == length && strings.Trim(s, letters) == ""
}

// New generates a random token.
func New() (Token, error) {
	id, err := draw(idLength)
	if err != nil {
		return Token{}, err
	}
	secret, err := draw(secretLength)
	return Token{id, secret}, err
}

func draw(length int) (string, error) {
	const fair = 256 - 256%len(letters) // rejecting larger bytes keeps all letters equally likely
	out := make([]byte, 0, length)
	for b := make([]byte, 1); len(out) < length; {
		if _, err := rand.Read(b); err != nil {
			return "", fmt.Errorf("draw a bootstrap token: %w", err)
		}
		if int(b[0]) < fair {
			out = append(out, letters[int(b[0])%len(letters)])
		}
	}
	return string(out), nil
}

// Spec is the content of a token's Secret.
type Spec struct {
	Token
	Expires     time.Time // zero: never
	Description string
	Groups      []string // besides Group
	Usages      []string
}

// ToSecret returns the Secret that makes the token valid once it is created.
func (s Spec) ToSecret() *corev1.Secret {
	out := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: s.SecretName()},
		Type:       SecretType,
		Data:       map[string][]byte{keyID: []byte(s.ID), keySecret: []byte(s.Secret)},
	}
	if !s.Expires.IsZero() {
		out.Data[keyExpiration] = []byte(s.Expires.UTC().Format(time.RFC3339))
	}
	if s.Description != "" {
		out.Data[keyDescription] = []byte(s.Description)
	}
	if len(s.Groups) > 0 {
		out.Data[keyGroups] = []byte(strings.Join(s.Groups, ","))
	}
	for _, u := range s.Usages {
		out.Data[usagePrefix+u] = []byte("true")
	}
	return out
}

// FromSecret parses a token's Secret. Its errors contain nothing secret.
func FromSecret(s *corev1.Secret) (Spec, error) {
	text := func(key string) string { return string(s.Data[key]) }
	spec := Spec{Token: Token{text(keyID), text(keySecret)}, Description: text(keyDescription)}
	switch {
	case s.Type != SecretType:
		return spec, fmt.Errorf("secret %s is not of type %s", s.Name, SecretType)
	case !spelled(spec.ID, idLength) || !spelled(spec.Secret, secretLength):
		return spec, fmt.Errorf("secret %s: %s and %s do not make a token", s.Name, keyID, keySecret)
	case s.Name != spec.SecretName():
		return spec, fmt.Errorf("secret %s is not named %s and the token's id", s.Name, SecretPrefix)
	}
	if at := text(keyExpiration); at != "" {
		var err error
		if spec.Expires, err = time.Parse(time.RFC3339, at); err != nil {
			return spec, fmt.Errorf("secret %s: invalid %s: want a time like 2006-01-02T15:04:05Z", s.Name, keyExpiration)
		}
	}
	if list := text(keyGroups); list != "" {
		spec.Groups = strings.Split(list, ",")
	}
	for _, g := range spec.Groups {
		if !groupName().MatchString(g) {
			return spec, fmt.Errorf("secret %s: the group %q does not begin with %s: or has forbidden characters", s.Name, g, Group)
		}
	}
	for key, value := range s.Data {
		if usage, ok := strings.CutPrefix(key, usagePrefix); ok && string(value) == "true" {
			spec.Usages = append(spec.Usages, usage)
		}
	}
	slices.Sort(spec.Usages)
	return spec, nil
}

func groupName() *regexp.Regexp {
	return regexp.MustCompile(`\A` + Group + `:[a-z0-9:-]{0,255}[a-z0-9]\z`)
}

// Expired reports whether the token has expired.
func (s Spec) Expired(now time.Time) bool { return !s.Expires.IsZero() && !now.Before(s.Expires) }

// Left returns the remaining lifetime of the token in a Secret; ends is false if the
// token never expires. A token with an unreadable expiration has expired.
func Left(s *corev1.Secret, now time.Time) (left time.Duration, ends bool) {
	text, ok := s.Data[keyExpiration]
	if !ok || len(text) == 0 {
		return 0, false
	}
	at, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		return 0, true
	}
	return max(at.Sub(now), 0), true
}

// For reports whether the token has the given usage.
func (s Spec) For(usage string) bool { return slices.Contains(s.Usages, usage) }
