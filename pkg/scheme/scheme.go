package scheme

import (
	"fmt"
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// Scheme is the set of kinds, found by resource, by kind or by Go type. It is
// read-only after New and safe for concurrent use.
type Scheme struct {
	*runtime.Scheme // Go types by GVK; also those only used as request bodies

	kinds  []*Kind
	byGVR  map[schema.GroupVersionResource]*Kind
	byGVK  map[schema.GroupVersionKind]*Kind
	byType map[reflect.Type]*Kind

	codecs
}

// New builds the scheme of everything the API serves.
func New() *Scheme {
	s := &Scheme{
		Scheme: runtime.NewScheme(),
		kinds:  kinds(),
		byGVR:  map[schema.GroupVersionResource]*Kind{},
		byGVK:  map[schema.GroupVersionKind]*Kind{},
		byType: map[reflect.Type]*Kind{},
	}
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, certificatesv1.AddToScheme, coordinationv1.AddToScheme, discoveryv1.AddToScheme,
		policyv1.AddToScheme, networkingv1.AddToScheme, autoscalingv1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme,
		rbacv1.AddToScheme,
		metav1.AddMetaToScheme,
	} {
		utilruntime.Must(add(s.Scheme)) // only fails when two Go types claim one kind
	}
	metav1.AddToGroupVersion(s.Scheme, schema.GroupVersion{Version: "v1"})
	for _, k := range s.kinds {
		s.byGVR[k.GVR()] = k
		s.byGVK[k.GroupVersionKind] = k
		s.byType[reflect.TypeOf(k.New())] = k
	}
	s.codecs = newCodecs(s.Scheme)
	return s
}

// Kinds lists the served kinds in discovery order. Not to be modified.
func (s *Scheme) Kinds() []*Kind { return s.kinds }

// ByResource finds a served kind by its URL, nil if there is none.
func (s *Scheme) ByResource(gvr schema.GroupVersionResource) *Kind { return s.byGVR[gvr] }

// ByKind finds a served kind by its name, nil if there is none.
func (s *Scheme) ByKind(gvk schema.GroupVersionKind) *Kind { return s.byGVK[gvk] }

// KindOf finds the served kind of T, the pointer type of an API struct. It
// panics on a type that is not served: that is a mistake in the program.
func KindOf[T Object](s *Scheme) *Kind {
	t := reflect.TypeFor[T]()
	k := s.byType[t]
	if k == nil {
		panic(fmt.Sprintf("scheme: %v is not a served kind", t))
	}
	return k
}

// GVKOf is the group, version and kind of any registered Go type, served or
// only used as a body (Status, Scale, Eviction, ...).
func (s *Scheme) GVKOf(obj runtime.Object) (schema.GroupVersionKind, error) {
	gvks, _, err := s.ObjectKinds(obj)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	return gvks[0], nil
}
