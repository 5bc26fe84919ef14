package bootstrapsigner

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/bootstraptoken"
	"podium/pkg/client/informer"
	"podium/pkg/controllers/kit"
	"podium/pkg/controllers/loop"
)

// Controller is the bootstrap signer. Its only key is the ConfigMap.
type Controller struct {
	cfg    kit.Kit
	infos  client.Resource[*corev1.ConfigMap]
	info   *informer.Informer[*corev1.ConfigMap]
	tokens *informer.Informer[*corev1.Secret]
	loop   *loop.Loop
}

// New builds the controller and says what wakes it; the views must not run yet.
func New(cfg kit.Kit) *Controller {
	c := &Controller{cfg: cfg, infos: client.For[*corev1.ConfigMap](cfg.Client).In(metav1.NamespacePublic)}
	c.info = informer.New(c.infos, informer.Options{FieldSelector: "metadata.name=" + bootstraptoken.InfoName, Log: cfg.Log})
	c.tokens = informer.New(client.For[*corev1.Secret](cfg.Client).In(bootstraptoken.Namespace), informer.Options{
		FieldSelector: "type=" + string(bootstraptoken.SecretType), Log: cfg.Log,
	})
	only := loop.Key{Namespace: metav1.NamespacePublic, Name: bootstraptoken.InfoName}
	c.loop = cfg.Loop("bootstrap_signer", 0, c.reconcile, c.info, c.tokens)
	loop.WakeOn(c.loop, c.info, loop.Self)
	loop.WakeOn(c.loop, c.tokens, func(*corev1.Secret) []loop.Key { return []loop.Key{only} })
	return c
}

// Run signs until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.info.Run(ctx) })
	g.Go(func() error { return c.tokens.Run(ctx) })
	g.Go(func() error { return c.loop.Run(ctx) })
	return g.Wait()
}

func (c *Controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	info, ok := c.info.Get(key.Namespace, key.Name)
	if !ok {
		return loop.Done, nil
	}
	tokens, again := valid(c.tokens.List(), time.Now())
	data := signed(info.Data, tokens)
	if !maps.Equal(data, info.Data) {
		next := info.DeepCopy()
		next.Data = data
		got, err := c.infos.Update(ctx, next)
		if apierrors.IsNotFound(err) {
			return loop.Done, nil
		}
		if err != nil {
			return loop.Done, fmt.Errorf("sign %s: %w", bootstraptoken.InfoName, err)
		}
		c.loop.Wrote(key, c.info, got.ResourceVersion)
	}
	if again > 0 {
		return loop.After(again), nil
	}
	return loop.Done, nil
}

// valid are the tokens that may sign now, and how long until one of them may
// not; 0: none ends.
func valid(secrets []*corev1.Secret, now time.Time) (tokens []bootstraptoken.Token, again time.Duration) {
	for _, s := range secrets {
		spec, err := bootstraptoken.FromSecret(s)
		if err != nil || s.DeletionTimestamp != nil || spec.Expired(now) || !spec.For(bootstraptoken.Signing) {
			continue
		}
		tokens = append(tokens, spec.Token)
		if left, ends := bootstraptoken.Left(s, now); ends && (again == 0 || left < again) {
			again = left
		}
	}
	return tokens, again
}

// signed is the ConfigMap's data with the signatures of these tokens and of no
// others.
func signed(data map[string]string, tokens []bootstraptoken.Token) map[string]string {
	out := map[string]string{}
	for key, value := range data {
		if !strings.HasPrefix(key, bootstraptoken.SignaturePrefix) {
			out[key] = value
		}
	}
	text, ok := data[bootstraptoken.InfoKey]
	if !ok {
		return out // nothing to sign yet
	}
	for _, t := range tokens {
		out[bootstraptoken.SignaturePrefix+t.ID] = t.Sign([]byte(text))
	}
	return out
}
