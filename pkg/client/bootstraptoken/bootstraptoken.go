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

// Where tokens are kept, and under which names.
// https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/
const (
	Namespace    = metav1.NamespaceSystem
	SecretType   = corev1.SecretTypeBootstrapToken
	SecretPrefix = "bootstrap-token-"

	UserPrefix = "system:bootstrap:"
	Group      = "system:bootstrappers" // of every bootstrap token's user

	keyID          = "token-id"
	keySecret      = "token-secret"
	keyExpiration  = "expiration"
	keyDescription = "description"
	keyGroups      = "auth-extra-groups"
	usagePrefix    = "usage-bootstrap-"
)

// The usages of a token.
const (
	Authentication = "authentication" // its bearer is a user
	Signing        = "signing"        // cluster-info is signed with it
)

// Token is the two halves of a token: an id, which is public, and a secret.
type Token struct{ ID, Secret string }

// String is the token as it is shown to a machine. It is secret.
func (t Token) String() string { return t.ID + "." + t.Secret }

// SecretName is the Secret that keeps the token.
func (t Token) SecretName() string { return SecretPrefix + t.ID }

const (
	idLength     = 6
	secretLength = 16
	letters      = "0123456789abcdefghijklmnopqrstuvwxyz"
)

// Parse reads a token. ok is false if the text does not have the form of one.
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

// New draws a token.
func New() (Token, error) {
	id, err := draw(idLength)
	if err != nil {
		return Token{}, err
	}
	secret, err := draw(secretLength)
	return Token{id, secret}, err
}

func draw(length int) (string, error) {
	const fair = 256 - 256%len(letters) // above it some letters would be likelier
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

// Spec is what a token's Secret says.
type Spec struct {
	Token
	Expires     time.Time // zero: never
	Description string
	Groups      []string // besides Group
	Usages      []string
}

// ToSecret writes the Secret that makes the token good.
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

// FromSecret reads a token's Secret. An error says what is wrong with it, and
// nothing of what is secret.
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
			return spec, fmt.Errorf("secret %s: %s is no time like 2006-01-02T15:04:05Z", s.Name, keyExpiration)
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

// Expired says whether the token's time is over.
func (s Spec) Expired(now time.Time) bool { return !s.Expires.IsZero() && !now.Before(s.Expires) }

// Left is how long the token of a Secret is still good; ends is false if that
// is for ever. A time that cannot be read is over.
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

// For says whether the token may be used so.
func (s Spec) For(usage string) bool { return slices.Contains(s.Usages, usage) }
