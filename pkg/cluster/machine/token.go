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
	"podium/pkg/cluster/machine/join"
)

// nodeTokenGroup is the group of bootstrap tokens for new machines; grant binds
// its roles.
const nodeTokenGroup = "system:bootstrappers:kubeadm:default-node-token"

// joinTTL is the lifetime of the token that Init creates.
const joinTTL = 24 * time.Hour

// parseToken parses ID.SECRET. Its error does not contain the secret.
func parseToken(text string) (bootstraptoken.Token, error) {
	t, ok := bootstraptoken.Parse(text)
	if !ok {
		return t, errors.New("a token is six lower case letters and digits, a dot, and sixteen more; make one on a control plane's machine: podium token create --print-join-command")
	}
	return t, nil
}

// TokenOptions describe a bootstrap token.
type TokenOptions struct {
	Token       string        // ID.SECRET; default: a random one
	TTL         time.Duration // 0: the token does not expire
	Description string
	Groups      []string // default: the group for new nodes
	PrintJoin   bool     // print the join command instead of the token
}

// spec validates the options and applies the defaults. now is the start of the
// TTL.
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
	_, err = bootstraptoken.FromSecret(out.ToSecret()) // the cluster rejects what this rejects
	return out, err
}

// CreateToken stores a bootstrap token in the cluster and prints it, or the
// join command, to cfg.Out. The cluster deletes it after its TTL. It works on
// control planes only.
func CreateToken(ctx context.Context, cfg Config, host Host, o TokenOptions) error {
	m, err := loadMachine(cfg, host)
	if err != nil {
		return err
	}
	text, err := m.createToken(ctx, o)
	if err == nil {
		fmt.Fprintln(cfg.Out, text)
	}
	return err
}

// createToken stores a token and returns the text to print: the token or the
// join command.
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

// piped returns a command line that passes secrets on standard input. echo is
// built into shells, so that the secrets are not in the arguments of a process,
// which every user of the machine can read.
func piped(command string, secrets ...string) string {
	return "echo " + strings.Join(secrets, " ") + " | " + command
}

// joinCommand returns the command to run on the next machine, with the token on
// its standard input.
func (m *machine) joinCommand(ctx context.Context, cl *client.Client) (string, error) {
	info, err := client.For[*corev1.ConfigMap](cl).In(metav1.NamespacePublic).Get(ctx, bootstraptoken.InfoName)
	if err != nil {
		return "", fmt.Errorf("read the cluster's address: %w", err)
	}
	cluster, err := join.ParseInfo(info.Data[bootstraptoken.InfoKey])
	if err != nil {
		return "", err
	}
	hash, err := join.HashCA(cluster.CertificateAuthorityData)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("podium join %s --discovery-token-ca-cert-hash %s --token-file -", strings.TrimPrefix(cluster.Server, "https://"), hash), nil
}

// ListTokens prints the bootstrap tokens, without their secrets, to cfg.Out.
func ListTokens(ctx context.Context, cfg Config, host Host) error {
	m, err := loadMachine(cfg, host)
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

// DeleteToken deletes a bootstrap token, given as ID.SECRET or by its ID. It
// returns an error if there is none.
func DeleteToken(ctx context.Context, cfg Config, host Host, text string) error {
	m, err := loadMachine(cfg, host)
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
