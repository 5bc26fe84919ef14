package registry

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/request"
	"podium/pkg/podspec"
	"podium/pkg/scheme"
)

func serviceAccounts(k *scheme.Kind, cfg Config) *Kind {
	doc := corev1.ServiceAccount{}.SwaggerDoc()
	return Of[*corev1.ServiceAccount]{
		Columns: columns(column("Secrets", doc["secrets"]), ageColumn()),
		Row: func(s *corev1.ServiceAccount, now time.Time) []any {
			return []any{s.Name, int64(len(s.Secrets)), age(s.CreationTimestamp, now)}
		},
		AllowUnconditionalUpdate: true,
		ReturnDeleted:            true,
		Subresources: []*Subresource{{
			Name: "token", GVK: authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"),
			Act: func(ctx context.Context, b Backend, namespace, name string, body runtime.Object, _ *metav1.CreateOptions) (runtime.Object, error) {
				return requestToken(ctx, b, cfg, namespace, name, body.(*authenticationv1.TokenRequest))
			},
		}},
	}.Kind(k)
}

const (
	tokenSeconds    = 60 * 60
	minTokenSeconds = 10 * 60
	maxTokenSeconds = 1 << 32
)

// requestToken signs a token for a service account. If the request names an object,
// the token is bound to it and becomes invalid when the object is deleted.
func requestToken(ctx context.Context, b Backend, cfg Config, namespace, name string, req *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	if req.Spec.ExpirationSeconds == nil {
		req.Spec.ExpirationSeconds = new(int64(tokenSeconds))
	}
	if len(req.Spec.Audiences) == 0 {
		req.Spec.Audiences = cfg.TokenAudiences
	}
	seconds := *req.Spec.ExpirationSeconds
	if errs := validateTokenSeconds(seconds); len(errs) > 0 {
		return nil, apierrors.NewInvalid(authenticationv1.SchemeGroupVersion.WithKind("TokenRequest").GroupKind(), "", errs)
	}
	if len(req.Spec.Attestations) > 0 {
		errs := field.ErrorList{field.Forbidden(field.NewPath("spec", "attestations"), podspec.Unsupported)}
		return nil, apierrors.NewInvalid(authenticationv1.SchemeGroupVersion.WithKind("TokenRequest").GroupKind(), "", errs)
	}
	if most := int64(cfg.MaxTokenLife / time.Second); most > 0 && seconds > most {
		request.Warn(ctx, fmt.Sprintf("requested expiration of %d seconds shortened to %d seconds", seconds, most))
		seconds = most
		req.Spec.ExpirationSeconds = &seconds
	}
	account, err := b.Get(ctx, corev1.SchemeGroupVersion.WithResource("serviceaccounts"), namespace, name)
	if err != nil {
		return nil, err
	}
	now := cfg.Now().Truncate(time.Second)
	claims := authn.Claims{
		ID: uuid.NewString(), Namespace: namespace,
		ServiceAccount: authn.Ref{Name: account.GetName(), UID: account.GetUID()},
		Audiences:      req.Spec.Audiences,
		IssuedAt:       now, Expires: now.Add(time.Duration(seconds) * time.Second),
	}
	if req.Spec.BoundObjectRef != nil {
		if err := bindToken(ctx, b, &claims, req.Spec.BoundObjectRef); err != nil {
			return nil, err
		}
	}
	token, err := cfg.Tokens.SignToken(ctx, claims)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("sign token: %w", err))
	}
	req.ObjectMeta = metav1.ObjectMeta{Name: name, Namespace: namespace, CreationTimestamp: metav1.NewTime(now)}
	req.Status = authenticationv1.TokenRequestStatus{Token: token, ExpirationTimestamp: metav1.NewTime(claims.Expires)}
	return req, nil
}

func validateTokenSeconds(seconds int64) field.ErrorList {
	path := field.NewPath("spec", "expirationSeconds")
	switch {
	case seconds < minTokenSeconds:
		return field.ErrorList{field.Invalid(path, seconds, "may not specify a duration less than 10 minutes")}
	case seconds > maxTokenSeconds:
		return field.ErrorList{field.Invalid(path, seconds, "may not specify a duration larger than 2^32 seconds")}
	}
	return nil
}

// bindToken looks up the object of ref and adds it to the claims. A token bound to
// a Pod is also bound to its node.
func bindToken(ctx context.Context, b Backend, claims *authn.Claims, ref *authenticationv1.BoundObjectReference) error {
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	resource := map[schema.GroupVersionKind]string{
		corev1.SchemeGroupVersion.WithKind("Pod"):    "pods",
		corev1.SchemeGroupVersion.WithKind("Secret"): "secrets",
		corev1.SchemeGroupVersion.WithKind("Node"):   "nodes",
	}[gvk]
	if resource == "" {
		return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to type %s", claims.ServiceAccount.Name, gvk))
	}
	namespace := claims.Namespace
	if resource == "nodes" {
		namespace = ""
	}
	obj, err := b.Get(ctx, corev1.SchemeGroupVersion.WithResource(resource), namespace, ref.Name)
	if err != nil {
		return err
	}
	if ref.UID != "" && ref.UID != obj.GetUID() {
		return apierrors.NewConflict(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, ref.Name,
			fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID))
	}
	bound := &authn.Ref{Name: obj.GetName(), UID: obj.GetUID()}
	switch o := obj.(type) {
	case *corev1.Secret:
		claims.Secret = bound
	case *corev1.Node:
		claims.Node = bound
	case *corev1.Pod:
		if o.Spec.ServiceAccountName != claims.ServiceAccount.Name {
			return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", claims.ServiceAccount.Name))
		}
		claims.Pod = bound
		if o.Spec.NodeName != "" {
			claims.Node = &authn.Ref{Name: o.Spec.NodeName, UID: nodeUID(ctx, b, o.Spec.NodeName)}
		}
	}
	return nil
}

// nodeUID returns the UID of a node, or "" if it cannot be read: a pod may be bound
// before its node is registered, and may outlive it.
func nodeUID(ctx context.Context, b Backend, name string) types.UID {
	node, err := b.Get(ctx, corev1.SchemeGroupVersion.WithResource("nodes"), "", name)
	if err != nil {
		return ""
	}
	return node.GetUID()
}
