package scheme

import (
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object is what every kind is: a pointer to a struct with type and
// object metadata.
type Object interface {
	runtime.Object
	metav1.Object
}

// Kind names one served kind and makes empty values of it.
type Kind struct {
	schema.GroupVersionKind

	Resource   string // plural, lower case, as in the URL
	Singular   string
	ShortNames []string
	Categories []string
	Namespaced bool

	New     func() Object         // an empty object
	NewList func() runtime.Object // an empty list; nil: the kind is asked, not stored
}

// Stored says whether there are objects of the kind. Without, there is only the
// question that a create asks, and its answer.
func (k *Kind) Stored() bool { return k.NewList != nil }

// GVR is the kind's group, version and resource.
func (k *Kind) GVR() schema.GroupVersionResource {
	return k.GroupVersion().WithResource(k.Resource)
}

// kinds is the table of what the API serves, in the order discovery shows it.
func kinds() []*Kind {
	return []*Kind{
		of[corev1.ConfigMap, corev1.ConfigMapList](corev1.SchemeGroupVersion, "configmaps", namespaced, short("cm")),
		of[corev1.Endpoints, corev1.EndpointsList](corev1.SchemeGroupVersion, "endpoints", namespaced, singular("endpoints"), short("ep")),
		of[corev1.Event, corev1.EventList](corev1.SchemeGroupVersion, "events", namespaced, short("ev")),
		of[corev1.Namespace, corev1.NamespaceList](corev1.SchemeGroupVersion, "namespaces", short("ns")),
		of[corev1.Node, corev1.NodeList](corev1.SchemeGroupVersion, "nodes", short("no")),
		of[corev1.Pod, corev1.PodList](corev1.SchemeGroupVersion, "pods", namespaced, short("po"), all),
		of[corev1.Secret, corev1.SecretList](corev1.SchemeGroupVersion, "secrets", namespaced),
		of[corev1.ServiceAccount, corev1.ServiceAccountList](corev1.SchemeGroupVersion, "serviceaccounts", namespaced, short("sa")),
		of[corev1.Service, corev1.ServiceList](corev1.SchemeGroupVersion, "services", namespaced, short("svc"), all),
		of[appsv1.Deployment, appsv1.DeploymentList](appsv1.SchemeGroupVersion, "deployments", namespaced, short("deploy"), all),
		of[appsv1.ReplicaSet, appsv1.ReplicaSetList](appsv1.SchemeGroupVersion, "replicasets", namespaced, short("rs"), all),
		asked[authenticationv1.SelfSubjectReview](authenticationv1.SchemeGroupVersion, "selfsubjectreviews"),
		asked[authenticationv1.TokenReview](authenticationv1.SchemeGroupVersion, "tokenreviews"),
		asked[authorizationv1.LocalSubjectAccessReview](authorizationv1.SchemeGroupVersion, "localsubjectaccessreviews", namespaced),
		asked[authorizationv1.SelfSubjectAccessReview](authorizationv1.SchemeGroupVersion, "selfsubjectaccessreviews"),
		asked[authorizationv1.SelfSubjectRulesReview](authorizationv1.SchemeGroupVersion, "selfsubjectrulesreviews"),
		asked[authorizationv1.SubjectAccessReview](authorizationv1.SchemeGroupVersion, "subjectaccessreviews"),
		of[certificatesv1.CertificateSigningRequest, certificatesv1.CertificateSigningRequestList](certificatesv1.SchemeGroupVersion, "certificatesigningrequests", short("csr")),
		of[coordinationv1.Lease, coordinationv1.LeaseList](coordinationv1.SchemeGroupVersion, "leases", namespaced),
		of[discoveryv1.EndpointSlice, discoveryv1.EndpointSliceList](discoveryv1.SchemeGroupVersion, "endpointslices", namespaced),
		of[rbacv1.ClusterRoleBinding, rbacv1.ClusterRoleBindingList](rbacv1.SchemeGroupVersion, "clusterrolebindings"),
		of[rbacv1.ClusterRole, rbacv1.ClusterRoleList](rbacv1.SchemeGroupVersion, "clusterroles"),
		of[rbacv1.RoleBinding, rbacv1.RoleBindingList](rbacv1.SchemeGroupVersion, "rolebindings", namespaced),
		of[rbacv1.Role, rbacv1.RoleList](rbacv1.SchemeGroupVersion, "roles", namespaced),
	}
}

type option func(*Kind)

func namespaced(k *Kind)           { k.Namespaced = true }
func all(k *Kind)                  { k.Categories = append(k.Categories, "all") }
func short(names ...string) option { return func(k *Kind) { k.ShortNames = names } }
func singular(name string) option  { return func(k *Kind) { k.Singular = name } }

// of describes the kind whose Go types are T and its list L.
func of[T, L any, P interface {
	*T
	Object
}, PL interface {
	*L
	runtime.Object
}](gv schema.GroupVersion, resource string, options ...option) *Kind {
	k := asked[T, P](gv, resource, options...)
	k.NewList = func() runtime.Object { return PL(new(L)) }
	return k
}

// asked describes the kind whose Go type is T and which is not stored: what is
// created is a question, and the answer to it comes back.
func asked[T any, P interface {
	*T
	Object
}](gv schema.GroupVersion, resource string, options ...option) *Kind {
	k := &Kind{
		GroupVersionKind: gv.WithKind(reflect.TypeFor[T]().Name()),
		Resource:         resource,
		Singular:         resource[:len(resource)-1],
		New:              func() Object { return P(new(T)) },
	}
	for _, o := range options {
		o(k)
	}
	return k
}
