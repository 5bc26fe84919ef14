package scheme

import (
	"fmt"
	"reflect"

	registrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	migrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Scheme is the set of kinds, by resource, by kind and by Go type. It is read-only
// after New and safe for concurrent use.
type Scheme struct {
	*runtime.Scheme // Go types by GVK, including those used only as request bodies

	kinds  []*Kind
	byGVR  map[schema.GroupVersionResource]*Kind
	byGVK  map[schema.GroupVersionKind]*Kind
	byType map[reflect.Type]*Kind

	codecs
}

// New builds the scheme of all kinds that the API serves.
func New() *Scheme {
	s := &Scheme{
		Scheme: runtime.NewScheme(),
		kinds:  kinds(),
		byGVR:  map[schema.GroupVersionResource]*Kind{},
		byGVK:  map[schema.GroupVersionKind]*Kind{},
		byType: map[reflect.Type]*Kind{},
	}
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme, certificatesv1.AddToScheme, coordinationv1.AddToScheme, discoveryv1.AddToScheme,
		policyv1.AddToScheme, networkingv1.AddToScheme, autoscalingv1.AddToScheme, autoscalingv2.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme,
		rbacv1.AddToScheme, eventsv1.AddToScheme,
		flowcontrolv1.AddToScheme, nodev1.AddToScheme, resourcev1.AddToScheme, schedulingv1.AddToScheme, storagev1.AddToScheme, migrationv1.AddToScheme,
		apiregistrationv1.AddToScheme,
		apiextensionsv1.AddToScheme,
		registrationv1.AddToScheme,
		metav1.AddMetaToScheme,
	} {
		utilruntime.Must(add(s.Scheme)) // fails only if two Go types are registered for one kind
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

// Kinds returns the served kinds in discovery order. The slice must not be
// modified.
func (s *Scheme) Kinds() []*Kind { return s.kinds }

// ByResource returns the served kind of a resource, or nil.
func (s *Scheme) ByResource(gvr schema.GroupVersionResource) *Kind { return s.byGVR[gvr] }

// ByKind returns the served kind with this GVK, or nil.
func (s *Scheme) ByKind(gvk schema.GroupVersionKind) *Kind { return s.byGVK[gvk] }

// KindOf returns the served kind of T, the pointer type of an API struct. It panics
// if the type is not served.
func KindOf[T Object](s *Scheme) *Kind {
	t := reflect.TypeFor[T]()
	k := s.byType[t]
	if k == nil {
		panic(fmt.Sprintf("scheme: %v is not a served kind", t))
	}
	return k
}

// GVKOf returns the group, version and kind of a registered Go type, including
// those used only as bodies (Status, Scale, Eviction, ...).
func (s *Scheme) GVKOf(obj runtime.Object) (schema.GroupVersionKind, error) {
	gvks, _, err := s.ObjectKinds(obj)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	return gvks[0], nil
}
