package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// kindRows returns the rows that try the API of a kind.
func kindRows() []testcase {
	return []testcase{
		{id: "apf-flowschema-api", test: lifecycle(kindTest{
			groupVersion: "flowcontrol.apiserver.k8s.io/v1", resource: "flowschemas", clusterScoped: true,
			object: `{spec: {matchingPrecedence: 10000, priorityLevelConfiguration: {name: global-default}, distinguisherMethod: {type: ByUser},
				rules: [{subjects: [{kind: User, user: {name: example-e2e-non-existent-user}}], nonResourceRules: [{verbs: ["*"], nonResourceURLs: ["*"]}]}]}}`,
			update: `{spec: {matchingPrecedence: 9999}}`,
			status: `{status: {conditions: [{type: Dangling, status: "False", reason: Patched, message: m, lastTransitionTime: "2026-01-01T00:00:00Z"}]}}`, kept: condition("Dangling"),
		})},
		{id: "apf-prioritylevel-api", test: lifecycle(kindTest{
			groupVersion: "flowcontrol.apiserver.k8s.io/v1", resource: "prioritylevelconfigurations", clusterScoped: true,
			object: `{spec: {type: Limited, limited: {nominalConcurrencyShares: 2, limitResponse: {type: Reject}}}}`,
			update: `{spec: {limited: {nominalConcurrencyShares: 4}}}`,
			status: `{status: {conditions: [{type: Concurrency, status: "True", reason: Patched, message: m, lastTransitionTime: "2026-01-01T00:00:00Z"}]}}`, kept: condition("Concurrency"),
		})},
		{id: "csi-inline-volume-pod-api", test: inlineVolume},
		{id: "csidriver-lifecycle", test: lifecycle(kindTest{
			groupVersion: "storage.k8s.io/v1", resource: "csidrivers", clusterScoped: true,
			object: `{spec: {attachRequired: false, podInfoOnMount: true, volumeLifecycleModes: [Persistent, Ephemeral]}}`, update: `{spec: {requiresRepublish: true}}`,
		})},
		{id: "csinode-lifecycle", test: lifecycle(kindTest{
			groupVersion: "storage.k8s.io/v1", resource: "csinodes", clusterScoped: true,
			object: `{spec: {drivers: [{name: d.example.com, nodeID: i, topologyKeys: null}]}}`, update: `{spec: {drivers: []}}`,
		})},
		{id: "csistoragecapacity-api", test: lifecycle(kindTest{
			groupVersion: "storage.k8s.io/v1", resource: "csistoragecapacities",
			object: `{storageClassName: c, nodeTopology: {matchLabels: {a: b}}, capacity: 1Gi}`, update: `{capacity: 2Gi}`,
		})},
		{id: "dra-deviceclass-crud", test: lifecycle(kindTest{
			groupVersion: "resource.k8s.io/v1", resource: "deviceclasses", clusterScoped: true,
			object: `{spec: {selectors: [{cel: {expression: "device.driver == 'd.example.com'"}}]}}`, update: `{spec: {selectors: [{cel: {expression: "true"}}]}}`,
		})},
		{id: "dra-devicetaintrule-crud", test: lifecycle(kindTest{
			groupVersion: "resource.k8s.io/v1", resource: "devicetaintrules", clusterScoped: true,
			object: `{spec: {deviceSelector: {driver: d.example.com}, taint: {key: example.com/k, effect: NoSchedule}}}`, update: `{spec: {taint: {value: v}}}`,
			status: `{status: {conditions: [{type: StatusUpdate, status: "True", reason: E2E, message: m, lastTransitionTime: "2026-01-01T00:00:00Z"}]}}`, kept: condition("StatusUpdate"),
		})},
		{id: "dra-resourceclaim-crud", test: lifecycle(kindTest{
			groupVersion: "resource.k8s.io/v1", resource: "resourceclaims",
			object: `{spec: {devices: {requests: [{name: r, exactly: {deviceClassName: c}}]}}}`,
			status: `{status: {allocation: {devices: {results: [{request: r, driver: d.example.com, pool: p, device: e}]}}}}`,
			kept:   func(s status) bool { return s["allocation"] != nil },
		})},
		{id: "dra-resourceclaimtemplate-crud", test: lifecycle(kindTest{
			groupVersion: "resource.k8s.io/v1", resource: "resourceclaimtemplates",
			object: `{spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: c}}]}}}}`,
		})},
		{id: "dra-resourceslice-crud", test: lifecycle(kindTest{
			groupVersion: "resource.k8s.io/v1", resource: "resourceslices", clusterScoped: true,
			object: `{spec: {driver: d.example.com, pool: {name: p, resourceSliceCount: 1}, nodeName: m, devices: [{name: d}]}}`,
			update: `{spec: {devices: [{name: e}]}}`,
		})},
		{id: "ingress-api", test: lifecycle(kindTest{
			groupVersion: "networking.k8s.io/v1", resource: "ingresses",
			object: `{spec: {defaultBackend: {service: {name: default-backend, port: {number: 80}}}}}`, update: `{spec: {defaultBackend: {service: {port: {number: 81}}}}}`,
			status: `{status: {loadBalancer: {ingress: [{ip: 169.1.1.1}]}}}`,
			kept:   func(s status) bool { return strings.Contains(fmt.Sprint(s), "169.1.1.1") },
		})},
		{id: "ingressclass-api", test: lifecycle(kindTest{
			groupVersion: "networking.k8s.io/v1", resource: "ingressclasses", clusterScoped: true,
			object: `{spec: {controller: example.com/controller}}`, update: `{spec: {parameters: {kind: K, name: m}}}`,
		})},
		{id: "ipaddress-api", test: lifecycle(kindTest{
			groupVersion: "networking.k8s.io/v1", resource: "ipaddresses", clusterScoped: true,
			name:   func(i int) string { return fmt.Sprintf("192.168.254.%d", i) },
			object: `{spec: {parentRef: {resource: services, name: s, namespace: default}}}`,
		})},
		{id: "pv-pvc-lifecycle", test: lifecycle(volumes(), claims())},
		{id: "pv-pvc-status", test: volumeStatus},
		{id: "priorityclass-endpoints", test: priorityClasses},
		{id: "runtimeclass-api", test: lifecycle(kindTest{
			groupVersion: "node.k8s.io/v1", resource: "runtimeclasses", clusterScoped: true,
			object: `{handler: h}`, update: `{scheduling: {nodeSelector: {a: b}}}`,
		})},
		{id: "runtimeclass-deleted-rejected", test: deletedRuntimeClass},
		{id: "runtimeclass-missing-rejected", test: func(t *testing.T, ctx context.Context, namespace string) { refusesClass(t, ctx, namespace, namespace) }},
		{id: "runtimeclass-overhead", test: func(t *testing.T, ctx context.Context, namespace string) {
			schedulesClass(t, ctx, namespace, &nodev1.Overhead{PodFixed: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("1Mi")}})
		}},
		{id: "runtimeclass-scheduled", test: func(t *testing.T, ctx context.Context, namespace string) { schedulesClass(t, ctx, namespace, nil) }},
		{id: "servicecidr-api", test: lifecycle(kindTest{
			groupVersion: "networking.k8s.io/v1", resource: "servicecidrs", clusterScoped: true,
			object: `{spec: {cidrs: [10.196.196.0/24]}}`,
			status: `{status: {conditions: [{type: StatusUpdate, status: "True", reason: E2E, message: m, lastTransitionTime: "2026-01-01T00:00:00Z"}]}}`, kept: condition("StatusUpdate"),
		})},
		{id: "storageclass-lifecycle", test: lifecycle(kindTest{
			groupVersion: "storage.k8s.io/v1", resource: "storageclasses", clusterScoped: true,
			object: `{provisioner: d.example.com}`, update: `{allowVolumeExpansion: true}`,
		})},
		{id: "storageversionmigration-crud", test: lifecycle(kindTest{
			groupVersion: "storagemigration.k8s.io/v1", resource: "storageversionmigrations", clusterScoped: true,
			object: `{spec: {resource: {group: example.com, resource: absent}}}`,
			// The controller may have set Failed already, which nothing may take back.
			status: `{status: {conditions: [
				{type: Failed, status: "True", reason: E2E, message: m, lastTransitionTime: "2026-01-01T00:00:00Z"},
				{type: StatusUpdate, status: "True", reason: E2E, message: m, lastTransitionTime: "2026-01-01T00:00:00Z"}]}}`, kept: condition("StatusUpdate"),
		})},
		{id: "volumeattachment-lifecycle", test: lifecycle(attachments())},
		{id: "volumeattachment-status", test: lifecycle(attachments())},
		{id: "volumeattributesclass-lifecycle", test: lifecycle(kindTest{
			groupVersion: "storage.k8s.io/v1", resource: "volumeattributesclasses", clusterScoped: true,
			object: `{driverName: d.example.com, parameters: {iops: "5"}}`,
		})},
	}
}

// condition returns a function that wants the status to have the condition.
func condition(kind string) func(status) bool {
	return func(s status) bool {
		list, _ := s["conditions"].([]any)
		return slices.ContainsFunc(list, func(c any) bool {
			m, _ := c.(map[string]any)
			return m["type"] == kind
		})
	}
}

func volumes() kindTest {
	return kindTest{
		groupVersion: "v1", resource: "persistentvolumes", clusterScoped: true,
		object: `{spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: none, csi: {driver: d.example.com, volumeHandle: h}}}`,
		update: `{spec: {persistentVolumeReclaimPolicy: Delete}}`,
		status: `{status: {reason: E2E, message: StatusPatched}}`,
		kept:   func(s status) bool { return s["message"] == "StatusPatched" && s["phase"] != nil },
	}
}

func claims() kindTest {
	return kindTest{
		groupVersion: "v1", resource: "persistentvolumeclaims",
		object: `{spec: {accessModes: [ReadWriteOnce], storageClassName: none, resources: {requests: {storage: 2Gi}}}}`,
		status: `{status: {conditions: [{type: StatusUpdate, status: "True", reason: E2E, message: m}]}}`,
		kept:   func(s status) bool { return s["phase"] != nil && condition("StatusUpdate")(s) },
	}
}

// attachments begin detached; the status is set to attached and back.
func attachments() kindTest {
	return kindTest{
		groupVersion: "storage.k8s.io/v1", resource: "volumeattachments", clusterScoped: true,
		object: `{spec: {attacher: d.example.com, nodeName: m, source: {persistentVolumeName: v}}}`,
		before: func(s status) bool { return s["attached"] == false },
		status: `{status: {attached: true}}`,
		kept:   func(s status) bool { return s["attached"] == true },
		final:  status{"attached": false},
	}
}

// volumeStatus checks that volumes and claims have a phase before their status is
// written.
func volumeStatus(t *testing.T, ctx context.Context, namespace string) {
	phased := func(phases ...string) func(status) bool {
		return func(s status) bool { return slices.Contains(phases, fmt.Sprint(s["phase"])) }
	}
	v, c := volumes(), claims()
	v.before, c.before = phased("Pending", "Available", "Bound"), phased("Pending", "Bound")
	lifecycle(v, c)(t, ctx, namespace)
}

func priorityClasses(t *testing.T, ctx context.Context, namespace string) {
	classes := admin.SchedulingV1().PriorityClasses()
	class, err := classes.Create(ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Value: 1}, metav1.CreateOptions{})
	check(t, err)
	list, err := classes.List(ctx, metav1.ListOptions{})
	check(t, err)
	for _, want := range []string{namespace, "system-cluster-critical", "system-node-critical"} {
		if !slices.ContainsFunc(list.Items, func(c schedulingv1.PriorityClass) bool { return c.Name == want }) {
			t.Errorf("the list has no %s", want)
		}
	}
	class.Description = "updated"
	class, err = classes.Update(ctx, class, metav1.UpdateOptions{})
	check(t, err)
	if class.Description != "updated" {
		t.Errorf("after the update the description is %q", class.Description)
	}
	class.Value = 100
	if _, err := classes.Update(ctx, class, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("an update of the value: %v", err)
	}
	class, err = classes.Patch(ctx, namespace, types.MergePatchType, []byte(`{"description":"patched"}`), metav1.PatchOptions{})
	check(t, err)
	if class.Description != "patched" {
		t.Errorf("after the patch the description is %q", class.Description)
	}
	if _, err := classes.Patch(ctx, namespace, types.MergePatchType, []byte(`{"value":200}`), metav1.PatchOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a patch of the value: %v", err)
	}
	check(t, classes.Delete(ctx, namespace, metav1.DeleteOptions{}))
	_, err = classes.Get(ctx, namespace, metav1.GetOptions{})
	notFound(t, "the deleted class", err)
}

// runtimeClass makes a class with a handler that no node has.
func runtimeClass(t *testing.T, ctx context.Context, name string, overhead *nodev1.Overhead) {
	t.Helper()
	_, err := admin.NodeV1().RuntimeClasses().Create(ctx, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: "preconfigured-handler", Overhead: overhead}, metav1.CreateOptions{})
	check(t, err)
	t.Cleanup(func() {
		err := admin.NodeV1().RuntimeClasses().Delete(context.Background(), name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

func classed(namespace, class string) *corev1.Pod {
	pod := sleeper(namespace, "pod")
	pod.Spec.RuntimeClassName = &class
	return pod
}

func refusesClass(t *testing.T, ctx context.Context, namespace, class string) {
	t.Helper()
	if _, err := admin.CoreV1().Pods(namespace).Create(ctx, classed(namespace, class), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a pod of the RuntimeClass %s: %v", class, err)
	}
}

func deletedRuntimeClass(t *testing.T, ctx context.Context, namespace string) {
	runtimeClass(t, ctx, namespace, nil)
	check(t, admin.NodeV1().RuntimeClasses().Delete(ctx, namespace, metav1.DeleteOptions{}))
	refusesClass(t, ctx, namespace, namespace)
}

// schedulesClass wants a pod of the class to get the overhead and a node.
func schedulesClass(t *testing.T, ctx context.Context, namespace string, overhead *nodev1.Overhead) {
	runtimeClass(t, ctx, namespace, overhead)
	pod := create(t, ctx, classed(namespace, namespace))
	var want corev1.ResourceList
	if overhead != nil {
		want = overhead.PodFixed
	}
	if len(pod.Spec.Overhead) != len(want) {
		t.Errorf("the overhead is %v, want %v", pod.Spec.Overhead, want)
	}
	for name, q := range want {
		if got := pod.Spec.Overhead[name]; got.Cmp(q) != 0 {
			t.Errorf("the overhead of %s is %s, want %s", name, got.String(), q.String())
		}
	}
	podBecomes(t, ctx, pod, "is scheduled", func(pod *corev1.Pod) bool { return pod.Spec.NodeName != "" })
}

// inlineVolume tries the API of a pod with a CSI volume. The pod need not run.
func inlineVolume(t *testing.T, ctx context.Context, namespace string) {
	drivers, pods, name := admin.StorageV1().CSIDrivers(), admin.CoreV1().Pods(namespace), "inline-driver-"+namespace
	_, err := drivers.Create(ctx, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.CSIDriverSpec{VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}}}, metav1.CreateOptions{})
	check(t, err)
	t.Cleanup(func() {
		if err := drivers.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	pod := sleeper(namespace, "pod")
	pod.Labels = map[string]string{"test": namespace}
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: name, ReadOnly: new(true)}}}}
	create(t, ctx, pod)
	pod, err = pods.Get(ctx, "pod", metav1.GetOptions{})
	check(t, err)
	if v := pod.Spec.Volumes[0].CSI; v == nil || v.Driver != name {
		t.Errorf("the volume is %+v", pod.Spec.Volumes[0])
	}
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "test=" + namespace})
	check(t, err)
	if len(list.Items) != 1 {
		t.Errorf("the list has %d pods", len(list.Items))
	}
	pod, err = pods.Patch(ctx, "pod", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"patched":"true"}}}`), metav1.PatchOptions{})
	check(t, err)
	if pod.Labels["patched"] != "true" {
		t.Errorf("after the patch the labels are %v", pod.Labels)
	}
	check(t, pods.Delete(ctx, "pod", metav1.DeleteOptions{}))
	eventually(t, ctx, "the pod is gone", func() error {
		_, err := pods.Get(ctx, "pod", metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil:
			err = fmt.Errorf("it is still there")
		}
		return err
	})
}
