package bootstrapsigner

import (
	"context"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client/bootstraptoken"
	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
)

// Spec describes the bootstrap signer.
func Spec() controller.Spec {
	return controller.Spec{Name: "bootstrap-signer-controller", Account: "bootstrap-signer", Workers: 1, New: build}
}

// reconciler has a single key: the ConfigMap.
type reconciler struct {
	*loop.Loop
	info   *informer.Informer[*corev1.ConfigMap]
	tokens *informer.Informer[*corev1.Secret]
	writer controller.Writer[*corev1.ConfigMap]
}

func build(c controller.Context) (controller.Runner, error) {
	r := &reconciler{
		info: informers.Select[*corev1.ConfigMap](c.Own, informers.Selection{
			Namespace: metav1.NamespacePublic, FieldSelector: "metadata.name=" + bootstraptoken.InfoName}),
		tokens: informers.Select[*corev1.Secret](c.Own, informers.Selection{
			Namespace: bootstraptoken.Namespace, FieldSelector: "type=" + string(bootstraptoken.SecretType)}),
	}
	r.Loop = c.NewLoop("bootstrap_signer", 0, r.reconcile, r.info, r.tokens)
	r.writer = controller.NewWriter(c, r.Loop, r.info)
	loop.WakeOn(r.Loop, r.info, loop.Self)
	loop.WakeOn(r.Loop, r.tokens, func(*corev1.Secret) []loop.Key {
		return []loop.Key{{Namespace: metav1.NamespacePublic, Name: bootstraptoken.InfoName}}
	})
	return r, nil
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	info, ok := r.info.Get(key.Namespace, key.Name)
	if !ok {
		return loop.Done, nil
	}
	tokens, again := valid(r.tokens.List(), time.Now())
	if data := signed(info.Data, tokens); !maps.Equal(data, info.Data) {
		next := info.DeepCopy()
		next.Data = data
		if _, err := r.writer.Update(ctx, key, next); err != nil {
			return loop.Done, err
		}
	}
	if again > 0 {
		return loop.After(again), nil
	}
	return loop.Done, nil
}

// valid returns the tokens that may sign now, and the time until the first of them expires;
// 0 means that none expires.
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

// signed returns the ConfigMap's data with the signatures of exactly these tokens.
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
