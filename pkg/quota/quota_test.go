package quota_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/quota"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func pod(change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
			Requests: list("cpu", "1", "memory", "1Gi", "example.com/gpu", "2", "hugepages-2Mi", "4Mi"), Limits: list("cpu", "2"),
		}}}},
		Status: corev1.PodStatus{QOSClass: corev1.PodQOSBurstable},
	}
	if change != nil {
		change(p)
	}
	return p
}

func TestUsage(t *testing.T) {
	service := func(kind corev1.ServiceType, allocate *bool, nodePorts ...int32) *corev1.Service {
		s := &corev1.Service{Spec: corev1.ServiceSpec{Type: kind, AllocateLoadBalancerNodePorts: allocate}}
		for _, p := range nodePorts {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{NodePort: p})
		}
		return s
	}
	claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: new("gold"), Resources: corev1.VolumeResourceRequirements{Requests: list("storage", "1Gi")},
	}}
	shrinking := claim.DeepCopy()
	shrinking.Status.AllocatedResources = list("storage", "3Gi")
	deleted := metav1.NewTime(now.Add(-time.Minute))
	exactly := func(class string, mode resourcev1.DeviceAllocationMode, n int64) resourcev1.DeviceRequest {
		return resourcev1.DeviceRequest{Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class, AllocationMode: mode, Count: n}}
	}
	alternative := func(class string, mode resourcev1.DeviceAllocationMode, n int64) resourcev1.DeviceSubRequest {
		return resourcev1.DeviceSubRequest{DeviceClassName: class, AllocationMode: mode, Count: n}
	}
	const counted, all = resourcev1.DeviceAllocationModeExactCount, resourcev1.DeviceAllocationModeAll
	devices := func(requests ...resourcev1.DeviceRequest) *resourcev1.ResourceClaim {
		return &resourcev1.ResourceClaim{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: requests}}}
	}
	for name, row := range map[string]struct {
		resource schema.GroupResource
		obj      metav1.Object
		want     string
	}{
		"Pod": {corev1.Resource("pods"), pod(nil),
			"count/pods=1,cpu=1,hugepages-2Mi=4Mi,limits.cpu=2,memory=1Gi,pods=1,requests.cpu=1,requests.example.com/gpu=2,requests.hugepages-2Mi=4Mi,requests.memory=1Gi"},
		"EndedPod": {corev1.Resource("pods"), pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), "count/pods=1"},
		"LostPod": {corev1.Resource("pods"), pod(func(p *corev1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &deleted, new(int64(30))
		}), "count/pods=1"},
		"Service":       {corev1.Resource("services"), service(corev1.ServiceTypeClusterIP, nil, 0), "count/services=1,services=1,services.loadbalancers=0,services.nodeports=0"},
		"NodePort":      {corev1.Resource("services"), service(corev1.ServiceTypeNodePort, nil, 0, 0), "count/services=1,services=1,services.loadbalancers=0,services.nodeports=2"},
		"LoadBalancer":  {corev1.Resource("services"), service(corev1.ServiceTypeLoadBalancer, nil, 0), "count/services=1,services=1,services.loadbalancers=1,services.nodeports=1"},
		"NoNodePorts":   {corev1.Resource("services"), service(corev1.ServiceTypeLoadBalancer, new(false), 0, 30000), "count/services=1,services=1,services.loadbalancers=1,services.nodeports=1"},
		"Claim":         {corev1.Resource("persistentvolumeclaims"), claim, "count/persistentvolumeclaims=1,gold.storageclass.storage.k8s.io/persistentvolumeclaims=1,gold.storageclass.storage.k8s.io/requests.storage=1Gi,persistentvolumeclaims=1,requests.storage=1Gi"},
		"ShrunkenClaim": {corev1.Resource("persistentvolumeclaims"), shrinking, "count/persistentvolumeclaims=1,gold.storageclass.storage.k8s.io/persistentvolumeclaims=1,gold.storageclass.storage.k8s.io/requests.storage=3Gi,persistentvolumeclaims=1,requests.storage=3Gi"},
		"Devices": {resourcev1.Resource("resourceclaims"), devices(exactly("gpu", counted, 2), exactly("gpu", counted, 1), exactly("nic", all, 0)),
			"count/resourceclaims.resource.k8s.io=1,gpu.deviceclass.resource.k8s.io/devices=3,nic.deviceclass.resource.k8s.io/devices=32"},
		"Alternatives": {resourcev1.Resource("resourceclaims"), devices(exactly("gpu", counted, 1), resourcev1.DeviceRequest{FirstAvailable: []resourcev1.DeviceSubRequest{
			alternative("gpu", counted, 1), alternative("gpu", counted, 4), alternative("gpu", counted, 2), alternative("nic", "Some", 7),
		}}), "count/resourceclaims.resource.k8s.io=1,gpu.deviceclass.resource.k8s.io/devices=5,nic.deviceclass.resource.k8s.io/devices=0"},
		"Secret":       {corev1.Resource("secrets"), nil, "count/secrets=1,secrets=1"},
		"ReplicaSet":   {schema.GroupResource{Group: "apps", Resource: "replicasets"}, nil, "count/replicasets.apps=1"},
		"PodsOfOthers": {schema.GroupResource{Group: "example.com", Resource: "pods"}, nil, "count/pods.example.com=1"},
	} {
		if got := quota.Text(quota.For(row.resource).Usage(row.obj, now)); got != row.want {
			t.Errorf("%s: %s\nwant %s", name, got, row.want)
		}
	}
}

func TestScopes(t *testing.T) {
	crossing := &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
		{PodAffinityTerm: corev1.PodAffinityTerm{NamespaceSelector: &metav1.LabelSelector{}}},
	}}}
	special := pod(func(p *corev1.Pod) {
		p.Spec.ActiveDeadlineSeconds, p.Status.QOSClass, p.Spec.PriorityClassName, p.Spec.Affinity = new(int64(1)), corev1.PodQOSBestEffort, "high", crossing
	})
	type requirement = corev1.ScopedResourceSelectorRequirement
	class := func(op corev1.ScopeSelectorOperator, values ...string) requirement {
		return requirement{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: op, Values: values}
	}
	exists := func(s corev1.ResourceQuotaScope) requirement {
		return requirement{ScopeName: s, Operator: corev1.ScopeSelectorOpExists}
	}
	for _, row := range []struct {
		scope          requirement
		plain, special bool
	}{
		{exists(corev1.ResourceQuotaScopeTerminating), false, true},
		{exists(corev1.ResourceQuotaScopeNotTerminating), true, false},
		{exists(corev1.ResourceQuotaScopeBestEffort), false, true},
		{exists(corev1.ResourceQuotaScopeNotBestEffort), true, false},
		{exists(corev1.ResourceQuotaScopeCrossNamespacePodAffinity), false, true},
		{class(corev1.ScopeSelectorOpExists), false, true},
		{class(corev1.ScopeSelectorOpDoesNotExist), true, false},
		{class(corev1.ScopeSelectorOpIn, "high"), false, true},
		{class(corev1.ScopeSelectorOpIn, "low"), false, false},
		{class(corev1.ScopeSelectorOpNotIn, "high"), true, false},
	} {
		q := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []requirement{row.scope}}}}
		q.Status.Hard = list("pods", "1")
		e := quota.For(corev1.Resource("pods"))
		if p, s := e.Matches(q, pod(nil)), e.Matches(q, special); p != row.plain || s != row.special {
			t.Errorf("%+v: %v, %v, want %v, %v", row.scope, p, s, row.plain, row.special)
		}
		q.Status.Hard = list("secrets", "1")
		if quota.For(corev1.Resource("secrets")).Matches(q, &corev1.Secret{}) {
			t.Errorf("%+v: a Secret is in a scope", row.scope)
		}
	}
}

func TestScopesOfClaims(t *testing.T) {
	type requirement = corev1.ScopedResourceSelectorRequirement
	class := func(op corev1.ScopeSelectorOperator, values ...string) requirement {
		return requirement{ScopeName: corev1.ResourceQuotaScopeVolumeAttributesClass, Operator: op, Values: values}
	}
	claim := func(spec, current *string, target string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			Spec: corev1.PersistentVolumeClaimSpec{VolumeAttributesClassName: spec},
			Status: corev1.PersistentVolumeClaimStatus{
				CurrentVolumeAttributesClassName: current, ModifyVolumeStatus: &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: target},
			},
		}
	}
	plain, gold := claim(nil, new(""), ""), claim(new("gold"), nil, "")
	for _, row := range []struct {
		scope requirement
		claim *corev1.PersistentVolumeClaim
		want  bool
	}{
		{class(corev1.ScopeSelectorOpExists), plain, false},
		{class(corev1.ScopeSelectorOpExists), gold, true},
		{class(corev1.ScopeSelectorOpDoesNotExist), plain, true},
		{class(corev1.ScopeSelectorOpDoesNotExist), gold, false},
		{class(corev1.ScopeSelectorOpIn, "gold"), plain, false},
		{class(corev1.ScopeSelectorOpIn, "gold"), gold, true},
		{class(corev1.ScopeSelectorOpIn, "gold"), claim(new("iron"), new("gold"), ""), true},
		{class(corev1.ScopeSelectorOpIn, "gold"), claim(new("iron"), nil, "gold"), true},
		{class(corev1.ScopeSelectorOpIn, "gold"), claim(new("iron"), nil, "iron"), false},
		{class(corev1.ScopeSelectorOpNotIn, "gold"), plain, true},
		{class(corev1.ScopeSelectorOpNotIn, "gold"), gold, false},
		{class(corev1.ScopeSelectorOpNotIn, "gold"), claim(new("gold"), new("iron"), ""), true},
		{requirement{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpExists}, gold, false},
	} {
		q := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []requirement{row.scope}}}}
		if got := quota.For(corev1.Resource("persistentvolumeclaims")).InScopes(q, row.claim); got != row.want {
			t.Errorf("%+v, %+v: %v", row.scope, row.claim, got)
		}
	}
}

func TestSources(t *testing.T) {
	got := quota.Sources(list("pods", "1", "limits.cpu", "1", "services.nodeports", "1", "gold.storageclass.storage.k8s.io/requests.storage", "1",
		"secrets", "1", "count/jobs.batch", "1", "requests.example.com/gpu", "1", "example.com/unknown", "1", "gpu.deviceclass.resource.k8s.io/devices", "1"))
	want := []schema.GroupResource{{Group: "batch", Resource: "jobs"}, {Resource: "persistentvolumeclaims"}, {Resource: "pods"}, {Group: "resource.k8s.io", Resource: "resourceclaims"}, {Resource: "secrets"}, {Resource: "services"}}
	slices.SortFunc(want, func(a, b schema.GroupResource) int { return slices.Compare([]byte(a.String()), []byte(b.String())) })
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestArithmetic(t *testing.T) {
	used := list("cpu", "1", "exact", "0.0000000001")
	before := used["exact"]
	quota.Add(used, list("cpu", "500m", "exact", "1", "new", "2"))
	if got := quota.Text(quota.Select(used, []corev1.ResourceName{"cpu", "new", "absent"})); got != "cpu=1500m,new=2" {
		t.Error(got)
	}
	if before.Cmp(resource.MustParse("0.0000000001")) != 0 {
		t.Errorf("a sum changed its operand to %s", before.String())
	}
	if got := quota.Text(quota.Growth(list("a", "3", "b", "1", "c", "1"), list("a", "1", "b", "2", "d", "1"))); got != "a=2,c=1" {
		t.Error(got)
	}
	if got := quota.Exceeded(list("a", "1", "b", "1"), list("a", "1", "b", "1", "c", "1"), list("a", "1", "b", "2")); !slices.Equal(got, []corev1.ResourceName{"a"}) {
		t.Error(got)
	}
}

// Resources of the pod itself stand for those of its containers.
func TestPodLevelResources(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "a"}, {Name: "b"}},
		Resources: &corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"memory": resource.MustParse("1Gi")}, Limits: corev1.ResourceList{"memory": resource.MustParse("2Gi")},
		},
	}}
	if err := quota.Missing([]corev1.ResourceName{"requests.memory", "limits.memory", "memory"}, pod); err != nil {
		t.Error(err)
	}
	if err := quota.Missing([]corev1.ResourceName{"requests.cpu"}, pod); err == nil || err.Error() != "must specify requests.cpu for: a,b" {
		t.Errorf("nothing of the pod requests CPU: %v", err)
	}
	used := quota.For(corev1.Resource("pods")).Usage(pod, time.Time{})
	requests, limits := used["requests.memory"], used["limits.memory"]
	if requests.String() != "1Gi" || limits.String() != "2Gi" {
		t.Errorf("it uses %v", used)
	}
}
