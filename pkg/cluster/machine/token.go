package machine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

// What a bootstrap token's Secret is called, and the group that its user is in.
const (
	tokenSecretPrefix = "bootstrap-token-"
	nodeTokenGroup    = "system:bootstrappers:kubeadm:default-node-token"
	systemNamespace   = "kube-system"
	publicNamespace   = "kube-public"
)

var tokenForm = regexp.MustCompile(`^([a-z0-9]{6})\.([a-z0-9]{16})$`)

// Token is a bootstrap token: what a new machine shows before it has a
// certificate. The ID may be seen by anybody.
type Token struct{ ID, Secret string }

func (t Token) String() string { return t.ID + "." + t.Secret }

// ParseToken reads ID.SECRET. Its error does not repeat the secret.
func ParseToken(text string) (Token, error) {
	m := tokenForm.FindStringSubmatch(text)
	if m == nil {
		return Token{}, errors.New("a token is six lower case letters and digits, a dot, and sixteen more; make one on a control plane's machine: podium token create --print-join-command")
	}
	return Token{m[1], m[2]}, nil
}

// NewToken makes one that nobody can guess.
func NewToken() (Token, error) {
	word := func(n int) (string, error) {
		const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
		var b strings.Builder
		for range n {
			i, err := rand.Int(rand.Reader, big.NewInt(int64(len(letters))))
			if err != nil {
				return "", err
			}
			b.WriteByte(letters[i.Int64()])
		}
		return b.String(), nil
	}
	id, err := word(6)
	if err != nil {
		return Token{}, err
	}
	secret, err := word(16)
	return Token{id, secret}, err
}

// TokenOptions say what a token is good for.
type TokenOptions struct {
	Token       Token         // default: a new one
	TTL         time.Duration // 0: for ever
	Description string
	Groups      []string // default: that of new nodes
	PrintJoin   bool     // print the join command instead of the token
	Certificate string   // with PrintJoin: the key for a control plane's certificates
}

var tokenGroup = regexp.MustCompile(`^system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]$`)

// CreateToken stores a token; the cluster forgets it after its TTL.
func CreateToken(ctx context.Context, cfg Config, host Host, o TokenOptions) error {
	m, err := recall(cfg, host)
	if err != nil {
		return err
	}
	if o.Token == (Token{}) {
		if o.Token, err = NewToken(); err != nil {
			return err
		}
	}
	if err := m.createToken(ctx, o); err != nil {
		return err
	}
	if !o.PrintJoin {
		fmt.Fprintln(cfg.Out, o.Token)
		return nil
	}
	command, err := m.joinCommand(ctx, o.Token, o.Certificate)
	if err != nil {
		return err
	}
	fmt.Fprintln(cfg.Out, command)
	return nil
}

func (m *machine) createToken(ctx context.Context, o TokenOptions) error {
	secret, err := o.secret(m.Now())
	if err != nil {
		return err
	}
	cl, err := m.admin()
	if err != nil {
		return err
	}
	_, err = client.For[*corev1.Secret](cl).In(systemNamespace).Create(ctx, secret)
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("a token with the ID %s exists already: podium token list", o.Token.ID)
	}
	return err
}

// secret is the token as upstream's clusters store it.
func (o TokenOptions) secret(now time.Time) (*corev1.Secret, error) {
	if o.TTL < 0 {
		return nil, fmt.Errorf("--ttl %s: a token cannot have ended before it begins; 0: it never ends", o.TTL)
	}
	groups := o.Groups
	if len(groups) == 0 {
		groups = []string{nodeTokenGroup}
	}
	for _, g := range groups {
		if !tokenGroup.MatchString(g) {
			return nil, fmt.Errorf("--groups %q: a token's groups begin with system:bootstrappers:", g)
		}
	}
	data := map[string]string{
		"token-id": o.Token.ID, "token-secret": o.Token.Secret,
		"usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
		"auth-extra-groups": strings.Join(groups, ","),
	}
	if o.Description != "" {
		data["description"] = o.Description
	}
	if o.TTL > 0 {
		data["expiration"] = now.Add(o.TTL).UTC().Format(time.RFC3339)
	}
	bytes := map[string][]byte{}
	for k, v := range data {
		bytes[k] = []byte(v)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: tokenSecretPrefix + o.Token.ID, Namespace: systemNamespace},
		Type:       corev1.SecretTypeBootstrapToken, Data: bytes,
	}, nil
}

// ListTokens prints the tokens, without their secrets.
func ListTokens(ctx context.Context, cfg Config, host Host) error {
	m, err := recall(cfg, host)
	if err != nil {
		return err
	}
	cl, err := m.admin()
	if err != nil {
		return err
	}
	list, err := client.For[*corev1.Secret](cl).In(systemNamespace).List(ctx, metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeBootstrapToken)})
	if err != nil {
		return err
	}
	printTokens(cfg.Out, list.Items, m.Now())
	return nil
}

func printTokens(out io.Writer, secrets []*corev1.Secret, now time.Time) {
	slices.SortFunc(secrets, func(a, b *corev1.Secret) int { return strings.Compare(a.Name, b.Name) })
	fmt.Fprintf(out, "%-8s %-10s %-22s %-56s %s\n", "ID", "TTL", "EXPIRES", "GROUPS", "DESCRIPTION")
	for _, s := range secrets {
		ttl, expires := "<forever>", "<never>"
		if text := string(s.Data["expiration"]); text != "" {
			ttl, expires = "<invalid>", text
			if t, err := time.Parse(time.RFC3339, text); err == nil {
				ttl = t.Sub(now).Round(time.Minute).String()
				if !t.After(now) {
					ttl = "<expired>"
				}
			}
		}
		fmt.Fprintf(out, "%-8s %-10s %-22s %-56s %s\n", s.Data["token-id"], ttl, expires, s.Data["auth-extra-groups"], s.Data["description"])
	}
}

// DeleteToken forgets a token, given as a whole or by its ID.
func DeleteToken(ctx context.Context, cfg Config, host Host, text string) error {
	id, _, _ := strings.Cut(text, ".")
	if !regexp.MustCompile(`^[a-z0-9]{6}$`).MatchString(id) {
		return fmt.Errorf("%q is not the ID of a token (six lower case letters and digits): podium token list", id)
	}
	m, err := recall(cfg, host)
	if err != nil {
		return err
	}
	cl, err := m.admin()
	if err != nil {
		return err
	}
	err = client.For[*corev1.Secret](cl).In(systemNamespace).Delete(ctx, tokenSecretPrefix+id, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no token with the ID %s: podium token list", id)
	}
	if err == nil {
		fmt.Fprintf(cfg.Out, "token %s deleted\n", id)
	}
	return err
}
