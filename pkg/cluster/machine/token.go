package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/bootstraptoken"
)

// nodeTokenGroup is what new machines may do, by their tokens.
const nodeTokenGroup = "system:bootstrappers:kubeadm:default-node-token"

// joinTTL is how long the token is good that init makes.
const joinTTL = 24 * time.Hour

// parseToken reads ID.SECRET. Its error does not repeat the secret.
func parseToken(text string) (bootstraptoken.Token, error) {
	t, ok := bootstraptoken.Parse(text)
	if !ok {
		return t, errors.New("a token is six lower case letters and digits, a dot, and sixteen more; make one on a control plane's machine: podium token create --print-join-command")
	}
	return t, nil
}

// TokenOptions say what a token is good for.
type TokenOptions struct {
	Token       string        // default: a new one
	TTL         time.Duration // 0: for ever
	Description string
	Groups      []string // default: that of new nodes
	PrintJoin   bool     // print the join command instead of the token
}

// spec checks the options and fills in the rest.
func (o TokenOptions) spec(now time.Time) (bootstraptoken.Spec, error) {
	out := bootstraptoken.Spec{
		Description: o.Description, Groups: o.Groups,
		Usages: []string{bootstraptoken.Authentication, bootstraptoken.Signing},
	}
	if len(out.Groups) == 0 {
		out.Groups = []string{nodeTokenGroup}
	}
	if o.TTL < 0 {
		return out, fmt.Errorf("--ttl %s: a token cannot have ended before it begins; 0: it never ends", o.TTL)
	}
	if o.TTL > 0 {
		out.Expires = now.Add(o.TTL)
	}
	var err error
	if o.Token == "" {
		out.Token, err = bootstraptoken.New()
	} else {
		out.Token, err = parseToken(o.Token)
	}
	if err != nil {
		return out, err
	}
	_, err = bootstraptoken.FromSecret(out.ToSecret()) // what the cluster would not take
	return out, err
}

// CreateToken stores a token and prints it; the cluster forgets it after its TTL.
func CreateToken(ctx context.Context, cfg Config, host Host, o TokenOptions) error {
	m, err := recall(cfg, host)
	if err != nil {
		return err
	}
	text, err := m.createToken(ctx, o)
	if err == nil {
		fmt.Fprintln(cfg.Out, text)
	}
	return err
}

// createToken returns what is to be shown: the token or the join command.
func (m *machine) createToken(ctx context.Context, o TokenOptions) (string, error) {
	spec, err := o.spec(m.Now())
	if err != nil {
		return "", err
	}
	cl, err := m.admin()
	if err != nil {
		return "", err
	}
	_, err = client.For[*corev1.Secret](cl).In(bootstraptoken.Namespace).Create(ctx, spec.ToSecret())
	if apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("a token with the ID %s exists already: podium token list", spec.ID)
	}
	if err != nil || !o.PrintJoin {
		return spec.Token.String(), err
	}
	join, err := m.joinCommand(ctx, cl)
	if err != nil {
		return "", err
	}
	return piped(join, spec.Token.String()), nil
}

// piped is a command that reads secrets from standard input. Shells have an
// echo of their own: no process has the secrets among its arguments, which
// everybody on a machine can read.
func piped(command string, secrets ...string) string {
	return "echo " + strings.Join(secrets, " ") + " | " + command
}

// joinCommand is what is typed on the next machine, with the token on its
// standard input.
func (m *machine) joinCommand(ctx context.Context, cl *client.Client) (string, error) {
	info, err := client.For[*corev1.ConfigMap](cl).In(publicNamespace).Get(ctx, infoName)
	if err != nil {
		return "", fmt.Errorf("ask where the cluster is: %w", err)
	}
	cluster, err := parseInfo(info.Data[infoKey])
	if err != nil {
		return "", err
	}
	hash, err := hashAuthority(cluster.CertificateAuthorityData)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("podium join %s --discovery-token-ca-cert-hash %s --token-file -", strings.TrimPrefix(cluster.Server, "https://"), hash), nil
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
	list, err := client.For[*corev1.Secret](cl).In(bootstraptoken.Namespace).List(ctx,
		metav1.ListOptions{FieldSelector: "type=" + string(bootstraptoken.SecretType)})
	if err != nil {
		return err
	}
	printTokens(cfg.Out, list.Items, m.Now())
	return nil
}

func printTokens(out io.Writer, secrets []*corev1.Secret, now time.Time) {
	slices.SortFunc(secrets, func(a, b *corev1.Secret) int { return cmp.Compare(a.Name, b.Name) })
	fmt.Fprintf(out, "%-8s %-10s %-22s %-56s %s\n", "ID", "TTL", "EXPIRES", "GROUPS", "DESCRIPTION")
	for _, s := range secrets {
		spec, err := bootstraptoken.FromSecret(s)
		if err != nil {
			fmt.Fprintf(out, "%-8s %-10s %v\n", strings.TrimPrefix(s.Name, bootstraptoken.SecretPrefix), "<invalid>", err)
			continue
		}
		ttl, expires := "<forever>", "<never>"
		switch {
		case spec.Expired(now):
			ttl, expires = "<expired>", spec.Expires.UTC().Format(time.RFC3339)
		case !spec.Expires.IsZero():
			ttl, expires = spec.Expires.Sub(now).Round(time.Minute).String(), spec.Expires.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(out, "%-8s %-10s %-22s %-56s %s\n", spec.ID, ttl, expires, strings.Join(spec.Groups, ","), spec.Description)
	}
}

// DeleteToken forgets a token, given as a whole or by its ID.
func DeleteToken(ctx context.Context, cfg Config, host Host, text string) error {
	m, err := recall(cfg, host)
	if err != nil {
		return err
	}
	cl, err := m.admin()
	if err != nil {
		return err
	}
	id, _, _ := strings.Cut(text, ".")
	if err := client.For[*corev1.Secret](cl).In(bootstraptoken.Namespace).Delete(ctx, bootstraptoken.SecretPrefix+id, metav1.DeleteOptions{}); apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no token with the ID %s: podium token list", id)
	} else if err != nil {
		return err
	}
	fmt.Fprintf(cfg.Out, "token %s deleted\n", id)
	return nil
}
