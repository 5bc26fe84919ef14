package scheme

import (
	"reflect"

	registrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Object is implemented by every kind: a pointer to a struct with type and object
// metadata.
type Object interface {
	runtime.Object
	metav1.Object
}

// Kind describes one served kind and creates empty values of it.
type Kind struct {
	schema.GroupVersionKind

	Resource   string // plural in lower case, as in the URL
	Singular   string
	List       string // kind of lists; "": that of the objects with "List" appended
	ShortNames []string
	Categories []string
	Namespaced bool
	Computed   bool // objects are not stored: the server computes them for each read, such as ComponentStatus

	New     func() Object         // returns an empty object
	NewList func() runtime.Object // returns an empty list; nil: there are no lists, such as of SubjectAccessReviews
}

// Stored reports whether objects of the kind are stored. If not, the kind supports
// only create, which returns the object with a status, or, if objects are computed,
// only get and list.
func (k *Kind) Stored() bool { return k.NewList != nil && !k.Computed }

// ListGVK returns the group, version and kind of lists.
func (k *Kind) ListGVK() schema.GroupVersionKind {
	if k.List != "" {
		return k.GroupVersion().WithKind(k.List)
	}
	return k.GroupVersion().WithKind(k.Kind + "List")
}

// GVR returns the group, version and resource of the kind.
func (k *Kind) GVR() schema.GroupVersionResource {
	return k.GroupVersion().WithResource(k.Resource)
}

// As returns a copy of k in another group version, in which objects have the Go
// type T and lists L.
func As[T, L any, P interface {
	*T
	Object
}, PL interface {
	*L
	runtime.Object
}](k *Kind, gv schema.GroupVersion) *Kind {
	out := *k
	out.GroupVersionKind = gv.WithKind(k.Kind)
	out.New = func() Object { return P(new(T)) }
	out.NewList = func() runtime.Object { return PL(new(L)) }
	return &out
}

// Untyped returns k as a kind without a Go type: its objects are
// *unstructured.Unstructured, encoded only as JSON.
func Untyped(k Kind) *Kind {
	k.New = func() Object { return &unstructured.Unstructured{Object: map[string]any{}} }
	k.NewList = func() runtime.Object { return &unstructured.UnstructuredList{} }
	return &k
}

// IsUntyped reports whether the kind has no Go type of its own.
func (k *Kind) IsUntyped() bool {
	_, untyped := k.New().(runtime.Unstructured)
	return untyped
}

// kinds returns the served kinds in discovery order.
func kinds() []*Kind {
	return []*Kind{
		of[corev1.ComponentStatus, corev1.ComponentStatusList](corev1.SchemeGroupVersion, "componentstatuses", singular("componentstatus"), short("cs"), computed),
		of[corev1.ConfigMap, corev1.ConfigMapList](corev1.SchemeGroupVersion, "configmaps", namespaced, short("cm")),
		of[corev1.Endpoints, corev1.EndpointsList](corev1.SchemeGroupVersion, "endpoints", namespaced, singular("endpoints"), short("ep")),
		of[corev1.Event, corev1.EventList](corev1.SchemeGroupVersion, "events", namespaced, short("ev")),
		of[corev1.LimitRange, corev1.LimitRangeList](corev1.SchemeGroupVersion, "limitranges", namespaced, short("limits")),
		of[corev1.Namespace, corev1.NamespaceList](corev1.SchemeGroupVersion, "namespaces", short("ns")),
		of[corev1.Node, corev1.NodeList](corev1.SchemeGroupVersion, "nodes", short("no")),
		of[corev1.PersistentVolumeClaim, corev1.PersistentVolumeClaimList](corev1.SchemeGroupVersion, "persistentvolumeclaims", namespaced, short("pvc")),
		of[corev1.PersistentVolume, corev1.PersistentVolumeList](corev1.SchemeGroupVersion, "persistentvolumes", short("pv")),
		of[corev1.Pod, corev1.PodList](corev1.SchemeGroupVersion, "pods", namespaced, short("po"), all),
		of[corev1.PodTemplate, corev1.PodTemplateList](corev1.SchemeGroupVersion, "podtemplates", namespaced),
		of[corev1.ReplicationController, corev1.ReplicationControllerList](corev1.SchemeGroupVersion, "replicationcontrollers", namespaced, short("rc"), all),
		of[corev1.ResourceQuota, corev1.ResourceQuotaList](corev1.SchemeGroupVersion, "resourcequotas", namespaced, short("quota")),
		of[corev1.Secret, corev1.SecretList](corev1.SchemeGroupVersion, "secrets", namespaced),
		of[corev1.ServiceAccount, corev1.ServiceAccountList](corev1.SchemeGroupVersion, "serviceaccounts", namespaced, short("sa")),
		of[corev1.Service, corev1.ServiceList](corev1.SchemeGroupVersion, "services", namespaced, short("svc"), all),
		of[appsv1.ControllerRevision, appsv1.ControllerRevisionList](appsv1.SchemeGroupVersion, "controllerrevisions", namespaced),
		of[appsv1.DaemonSet, appsv1.DaemonSetList](appsv1.SchemeGroupVersion, "daemonsets", namespaced, short("ds"), all),
		of[appsv1.Deployment, appsv1.DeploymentList](appsv1.SchemeGroupVersion, "deployments", namespaced, short("deploy"), all),
		of[appsv1.ReplicaSet, appsv1.ReplicaSetList](appsv1.SchemeGroupVersion, "replicasets", namespaced, short("rs"), all),
		of[appsv1.StatefulSet, appsv1.StatefulSetList](appsv1.SchemeGroupVersion, "statefulsets", namespaced, short("sts"), all),
		of[apiextensionsv1.CustomResourceDefinition, apiextensionsv1.CustomResourceDefinitionList](apiextensionsv1.SchemeGroupVersion, "customresourcedefinitions", short("crd", "crds"), category("api-extensions")),
		asked[authenticationv1.SelfSubjectReview](authenticationv1.SchemeGroupVersion, "selfsubjectreviews"),
		asked[authenticationv1.TokenReview](authenticationv1.SchemeGroupVersion, "tokenreviews"),
		asked[authorizationv1.LocalSubjectAccessReview](authorizationv1.SchemeGroupVersion, "localsubjectaccessreviews", namespaced),
		asked[authorizationv1.SelfSubjectAccessReview](authorizationv1.SchemeGroupVersion, "selfsubjectaccessreviews"),
		asked[authorizationv1.SelfSubjectRulesReview](authorizationv1.SchemeGroupVersion, "selfsubjectrulesreviews"),
		asked[authorizationv1.SubjectAccessReview](authorizationv1.SchemeGroupVersion, "subjectaccessreviews"),
		of[apiregistrationv1.APIService, apiregistrationv1.APIServiceList](apiregistrationv1.SchemeGroupVersion, "apiservices", category("api-extensions")),
		of[autoscalingv2.HorizontalPodAutoscaler, autoscalingv2.HorizontalPodAutoscalerList](autoscalingv2.SchemeGroupVersion, "horizontalpodautoscalers", namespaced, short("hpa"), all),
		of[batchv1.CronJob, batchv1.CronJobList](batchv1.SchemeGroupVersion, "cronjobs", namespaced, short("cj"), all),
		of[batchv1.Job, batchv1.JobList](batchv1.SchemeGroupVersion, "jobs", namespaced, all),
		of[certificatesv1.CertificateSigningRequest, certificatesv1.CertificateSigningRequestList](certificatesv1.SchemeGroupVersion, "certificatesigningrequests", short("csr")),
		of[certificatesv1.PodCertificateRequest, certificatesv1.PodCertificateRequestList](certificatesv1.SchemeGroupVersion, "podcertificaterequests", namespaced),
		of[coordinationv1.Lease, coordinationv1.LeaseList](coordinationv1.SchemeGroupVersion, "leases", namespaced),
		of[discoveryv1.EndpointSlice, discoveryv1.EndpointSliceList](discoveryv1.SchemeGroupVersion, "endpointslices", namespaced),
		of[flowcontrolv1.FlowSchema, flowcontrolv1.FlowSchemaList](flowcontrolv1.SchemeGroupVersion, "flowschemas"),
		of[flowcontrolv1.PriorityLevelConfiguration, flowcontrolv1.PriorityLevelConfigurationList](flowcontrolv1.SchemeGroupVersion, "prioritylevelconfigurations"),
		of[networkingv1.IPAddress, networkingv1.IPAddressList](networkingv1.SchemeGroupVersion, "ipaddresses", singular("ipaddress"), short("ip")),
		of[networkingv1.Ingress, networkingv1.IngressList](networkingv1.SchemeGroupVersion, "ingresses", namespaced, singular("ingress"), short("ing")),
		of[networkingv1.IngressClass, networkingv1.IngressClassList](networkingv1.SchemeGroupVersion, "ingressclasses", singular("ingressclass")),
		of[networkingv1.NetworkPolicy, networkingv1.NetworkPolicyList](networkingv1.SchemeGroupVersion, "networkpolicies", namespaced, singular("networkpolicy"), short("netpol")),
		of[networkingv1.ServiceCIDR, networkingv1.ServiceCIDRList](networkingv1.SchemeGroupVersion, "servicecidrs"),
		of[nodev1.RuntimeClass, nodev1.RuntimeClassList](nodev1.SchemeGroupVersion, "runtimeclasses", singular("runtimeclass")),
		of[policyv1.PodDisruptionBudget, policyv1.PodDisruptionBudgetList](policyv1.SchemeGroupVersion, "poddisruptionbudgets", namespaced, short("pdb")),
		of[rbacv1.ClusterRoleBinding, rbacv1.ClusterRoleBindingList](rbacv1.SchemeGroupVersion, "clusterrolebindings"),
		of[rbacv1.ClusterRole, rbacv1.ClusterRoleList](rbacv1.SchemeGroupVersion, "clusterroles"),
		of[rbacv1.RoleBinding, rbacv1.RoleBindingList](rbacv1.SchemeGroupVersion, "rolebindings", namespaced),
		of[rbacv1.Role, rbacv1.RoleList](rbacv1.SchemeGroupVersion, "roles", namespaced),
		of[registrationv1.MutatingAdmissionPolicy, registrationv1.MutatingAdmissionPolicyList](registrationv1.SchemeGroupVersion, "mutatingadmissionpolicies", singular("mutatingadmissionpolicy")),
		of[registrationv1.MutatingAdmissionPolicyBinding, registrationv1.MutatingAdmissionPolicyBindingList](registrationv1.SchemeGroupVersion, "mutatingadmissionpolicybindings"),
		of[registrationv1.MutatingWebhookConfiguration, registrationv1.MutatingWebhookConfigurationList](registrationv1.SchemeGroupVersion, "mutatingwebhookconfigurations"),
		of[registrationv1.ValidatingAdmissionPolicy, registrationv1.ValidatingAdmissionPolicyList](registrationv1.SchemeGroupVersion, "validatingadmissionpolicies", singular("validatingadmissionpolicy")),
		of[registrationv1.ValidatingAdmissionPolicyBinding, registrationv1.ValidatingAdmissionPolicyBindingList](registrationv1.SchemeGroupVersion, "validatingadmissionpolicybindings"),
		of[registrationv1.ValidatingWebhookConfiguration, registrationv1.ValidatingWebhookConfigurationList](registrationv1.SchemeGroupVersion, "validatingwebhookconfigurations"),
		of[resourcev1.DeviceClass, resourcev1.DeviceClassList](resourcev1.SchemeGroupVersion, "deviceclasses", singular("deviceclass")),
		of[resourcev1.DeviceTaintRule, resourcev1.DeviceTaintRuleList](resourcev1.SchemeGroupVersion, "devicetaintrules"),
		of[resourcev1.ResourceClaim, resourcev1.ResourceClaimList](resourcev1.SchemeGroupVersion, "resourceclaims", namespaced),
		of[resourcev1.ResourceClaimTemplate, resourcev1.ResourceClaimTemplateList](resourcev1.SchemeGroupVersion, "resourceclaimtemplates", namespaced),
		of[resourcev1.ResourceSlice, resourcev1.ResourceSliceList](resourcev1.SchemeGroupVersion, "resourceslices"),
		of[schedulingv1.PriorityClass, schedulingv1.PriorityClassList](schedulingv1.SchemeGroupVersion, "priorityclasses", singular("priorityclass"), short("pc")),
		of[storagev1.CSIDriver, storagev1.CSIDriverList](storagev1.SchemeGroupVersion, "csidrivers"),
		of[storagev1.CSINode, storagev1.CSINodeList](storagev1.SchemeGroupVersion, "csinodes"),
		of[storagev1.CSIStorageCapacity, storagev1.CSIStorageCapacityList](storagev1.SchemeGroupVersion, "csistoragecapacities", namespaced, singular("csistoragecapacity")),
		of[storagev1.StorageClass, storagev1.StorageClassList](storagev1.SchemeGroupVersion, "storageclasses", singular("storageclass"), short("sc")),
		of[storagev1.VolumeAttachment, storagev1.VolumeAttachmentList](storagev1.SchemeGroupVersion, "volumeattachments"),
		of[storagev1.VolumeAttributesClass, storagev1.VolumeAttributesClassList](storagev1.SchemeGroupVersion, "volumeattributesclasses", singular("volumeattributesclass"), short("vac")),
		of[migrationv1.StorageVersionMigration, migrationv1.StorageVersionMigrationList](migrationv1.SchemeGroupVersion, "storageversionmigrations"),
	}
}

type option func(*Kind)

func namespaced(k *Kind)           { k.Namespaced = true }
func computed(k *Kind)             { k.Computed = true }
func all(k *Kind)                  { category("all")(k) }
func category(name string) option  { return func(k *Kind) { k.Categories = append(k.Categories, name) } }
func short(names ...string) option { return func(k *Kind) { k.ShortNames = names } }
func singular(name string) option  { return func(k *Kind) { k.Singular = name } }

// of describes a kind whose Go types are T and the list L.
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

// asked describes a kind whose Go type is T and whose objects are not stored: a
// create returns them with a status.
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
