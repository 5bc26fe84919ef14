package registry_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"podium/pkg/scheme"
)

func newPod(change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", CreationTimestamp: metav1.NewTime(today.Add(-10 * time.Minute))},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "web:1"}}},
	}
	if change != nil {
		change(pod)
	}
	return pod
}

func account(name string, change func(*corev1.ServiceAccount)) *corev1.ServiceAccount {
	a := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name)}}
	if change != nil {
		change(a)
	}
	return a
}

// A new pod is Pending, whatever status the client sends.
func TestPodCreate(t *testing.T) {
	k := newRig(t, "10.0.0.0/24", somePorts).kinds["pods"]
	pod := newPod(func(p *corev1.Pod) {
		p.Generation = 7
		p.Status.Phase = corev1.PodRunning
	})
	k.Default(pod)
	if err := k.Prepare(t.Context(), nil, pod, nil); err != nil {
		t.Fatal(err)
	}
	if errs := k.Validate(pod, nil); len(errs) > 0 {
		t.Fatal(errs)
	}
	if s := pod.Status; pod.Generation != 1 || s.Phase != corev1.PodPending || s.QOSClass != corev1.PodQOSBestEffort {
		t.Errorf("generation %d, status %+v", pod.Generation, s)
	}
}

func TestPodDelete(t *testing.T) {
	k := newRig(t, "10.0.0.0/24", somePorts).kinds["pods"]
	scheduled := func(p *corev1.Pod) { p.Spec.NodeName, p.Spec.TerminationGracePeriodSeconds = "n", new(int64(30)) }
	deleting := func(p *corev1.Pod) {
		scheduled(p)
		end := metav1.NewTime(today.Add(30 * time.Second))
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &end, new(int64(30))
	}
	for name, row := range map[string]struct {
		reason string
		pod    func(*corev1.Pod)
		grace  *int64
		keep   bool
		left   int64 // until the end, in seconds
	}{
		"Running":      {"the pod's own time", scheduled, nil, true, 30},
		"Asked":        {"the request's time counts more", scheduled, new(int64(5)), true, 5},
		"Now":          {"kubectl delete --force, and the kubelet when it is done", scheduled, new(int64(0)), false, 0},
		"Negative":     {"upstream takes it for one second", scheduled, new(int64(-1)), true, 1},
		"Unscheduled":  {"no kubelet will ever confirm", func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(30)) }, nil, false, 0},
		"Ended":        {"nothing runs any more", func(p *corev1.Pod) { scheduled(p); p.Status.Phase = corev1.PodSucceeded }, nil, false, 0},
		"Again":        {"a second delete changes nothing", deleting, nil, true, 30},
		"AgainLonger":  {"nor does it lengthen", deleting, new(int64(60)), true, 30},
		"AgainShorter": {"but it may shorten", deleting, new(int64(10)), true, 10},
		"AgainNow":     {"to nothing", deleting, new(int64(0)), false, 0},
	} {
		pod := newPod(row.pod)
		pod.Generation = 3
		fresh := pod.DeletionTimestamp == nil
		keep, err := k.BeforeDelete(pod, &metav1.DeleteOptions{GracePeriodSeconds: row.grace}, today)
		if err != nil || keep != row.keep {
			t.Errorf("%s: %s: keep %v, %v", name, row.reason, keep, err)
		}
		if got := int64(pod.DeletionTimestamp.Sub(today) / time.Second); got != row.left || *pod.DeletionGracePeriodSeconds != row.left {
			t.Errorf("%s: %s: ends in %d s, grace %d", name, row.reason, got, *pod.DeletionGracePeriodSeconds)
		}
		if grown := pod.Generation == 4; grown != fresh {
			t.Errorf("%s: generation %d (pod-generation-graceful-delete)", name, pod.Generation)
		}
	}
}

func TestPodGeneration(t *testing.T) {
	k := newRig(t, "10.0.0.0/24", somePorts).kinds["pods"]
	old := newPod(func(p *corev1.Pod) { p.Generation = 4 })
	k.Default(old)
	for name, row := range map[string]struct {
		change func(*corev1.Pod)
		want   int64
	}{
		"Spec":  {func(p *corev1.Pod) { p.Spec.Containers[0].Image = "web:2" }, 5},
		"Label": {func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }, 4},
	} {
		k.Default(old)
		old.Generation = 4
		pod := old.DeepCopy()
		row.change(pod)
		if err := k.Prepare(t.Context(), nil, pod, old); err != nil {
			t.Fatal(err)
		}
		if pod.Generation != row.want {
			t.Errorf("%s: %d, want %d", name, pod.Generation, row.want)
		}
	}
}

func TestBinding(t *testing.T) {
	k := newRig(t, "10.0.0.0/24", somePorts).kinds["pods"]
	binding := subresource(t, k, "binding")
	to := func(node string) *corev1.Binding {
		return &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node}}
	}
	pod := newPod(nil)
	b := holding(map[string][]scheme.Object{"pods": {pod}})
	act := func(body *corev1.Binding) error {
		_, err := binding.Act(t.Context(), b, "ns", "p", body, &metav1.CreateOptions{})
		return err
	}
	stale := to("n")
	stale.UID = "another"
	if err := act(stale); !apierrors.IsConflict(err) {
		t.Errorf("another pod of that name: %v", err)
	}
	if err := act(to("")); !apierrors.IsInvalid(err) {
		t.Errorf("no node: %v", err)
	}
	if err := act(to("n")); err != nil {
		t.Fatal(err)
	}
	if c := pod.Status.Conditions; pod.Spec.NodeName != "n" || len(c) != 1 || c[0].Type != corev1.PodScheduled || c[0].Status != corev1.ConditionTrue {
		t.Errorf("%q %+v", pod.Spec.NodeName, c)
	}
	err := act(to("m"))
	const want = `Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n"`
	if !apierrors.IsConflict(err) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestEviction(t *testing.T) {
	k := newRig(t, "10.0.0.0/24", somePorts).kinds["pods"]
	pod := newPod(nil)
	b := holding(map[string][]scheme.Object{"pods": {pod}})
	evict := func(e *policyv1.Eviction) error {
		_, err := subresource(t, k, "eviction").Act(t.Context(), b, "ns", "p", e, &metav1.CreateOptions{})
		return err
	}
	other := types.UID("other")
	if err := evict(&policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}}}); !apierrors.IsConflict(err) {
		t.Errorf("another pod of that name: %v", err)
	}
	if err := evict(&policyv1.Eviction{}); err != nil {
		t.Fatal(err)
	}
	if c := pod.Status.Conditions; len(b.deleted) != 1 || len(c) != 1 || c[0].Type != corev1.DisruptionTarget || c[0].Reason != "EvictionByEvictionAPI" {
		t.Errorf("deleted %v, conditions %+v", b.deleted, c)
	}
}

func TestPodRow(t *testing.T) {
	k := newRig(t, "10.0.0.0/24", somePorts).kinds["pods"]
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended := func(code int32, reason string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, FinishedAt: metav1.NewTime(today.Add(-5 * time.Minute))}}
	}
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	for name, row := range map[string]struct {
		pod  func(*corev1.Pod)
		want []any
	}{
		"Pending": {
			func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending },
			[]any{"p", "0/1", "Pending", "0", "10m", "<none>", "<none>", "<none>", "<none>"}},
		"Running": {
			func(p *corev1.Pod) {
				p.Spec.NodeName = "n"
				p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "x/y"}}
				p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.1.0.1"}},
					ContainerStatuses: []corev1.ContainerStatus{{Ready: true, State: running, RestartCount: 3, LastTerminationState: ended(1, "Error")}}}
			},
			[]any{"p", "1/1", "Running", "3 (5m ago)", "10m", "10.1.0.1", "n", "<none>", "0/1"}},
		"CrashLoop": {
			func(p *corev1.Pod) {
				p.Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{State: waiting("CrashLoopBackOff"), RestartCount: 1}}}
			},
			[]any{"p", "0/1", "CrashLoopBackOff", "1", "10m", "<none>", "<none>", "<none>", "<none>"}},
		"SecondInitContainer": {
			func(p *corev1.Pod) {
				p.Spec.InitContainers = make([]corev1.Container, 2)
				p.Status = corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: []corev1.ContainerStatus{{State: ended(0, "Completed")}, {State: running}}}
			},
			[]any{"p", "0/1", "Init:1/2", "0", "10m", "<none>", "<none>", "<none>", "<none>"}},
		"FailedInitContainer": {
			func(p *corev1.Pod) {
				p.Status = corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: []corev1.ContainerStatus{{State: ended(1, "Error")}}}
			},
			[]any{"p", "0/1", "Init:Error", "0", "10m", "<none>", "<none>", "<none>", "<none>"}},
		"Completed": {
			func(p *corev1.Pod) {
				p.Status = corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{{State: ended(0, "Completed")}}}
			},
			[]any{"p", "0/1", "Completed", "0", "10m", "<none>", "<none>", "<none>", "<none>"}},
		"Evicted": {
			func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"} },
			[]any{"p", "0/1", "Evicted", "0", "10m", "<none>", "<none>", "<none>", "<none>"}},
		"Terminating": {
			func(p *corev1.Pod) {
				p.DeletionTimestamp = &metav1.Time{Time: today}
				p.Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Ready: true, State: running}}}
			},
			[]any{"p", "1/1", "Terminating", "0", "10m", "<none>", "<none>", "<none>", "<none>"}},
	} {
		if diff := cmp.Diff(row.want, k.Row(newPod(row.pod), today)); diff != "" {
			t.Errorf("%s\n%s", name, diff)
		}
	}
}

// A finished container of a pod that does not restart does not run again.
func TestPodStatusUpdate(t *testing.T) {
	k := newRig(t, "10.0.0.0/24", somePorts).kinds["pods"]
	status := subresource(t, k, "status")
	old := newPod(func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
	})
	next := old.DeepCopy()
	next.Spec.NodeName = "elsewhere"
	next.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	if err := status.PreparePart(t.Context(), next, old); err != nil {
		t.Fatal(err)
	}
	if next.Spec.NodeName != "" {
		t.Error("a status update moved the pod")
	}
	want := []string{"status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"}
	if diff := cmp.Diff(want, texts(status.ValidatePart(next, old))); diff != "" {
		t.Error(diff)
	}
}

// The health of devices names what the container has asked for.
func TestPodStatusDevices(t *testing.T) {
	status := subresource(t, newRig(t, "10.0.0.0/24", somePorts).kinds["pods"], "status")
	old := newPod(func(p *corev1.Pod) {
		p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
			Limits:   corev1.ResourceList{"example.com/card": resource.MustParse("1")},
			Requests: corev1.ResourceList{"example.com/card": resource.MustParse("1"), "example.com/made": resource.MustParse("1")},
			Claims:   []corev1.ResourceClaim{{Name: "gpu"}, {Name: "nic", Request: "fast"}},
		}}}
	})
	for name, row := range map[string]struct {
		resource corev1.ResourceName
		suffix   string // of the container's name
		change   func(*corev1.ResourceHealth)
		want     []string
	}{
		"plugin":          {resource: "example.com/card"},
		"claim":           {resource: "claim:gpu"},
		"request":         {resource: "claim:nic/fast"},
		"extended":        {resource: "claim:made/request-0"},
		"unknown":         {resource: "example.com/other", want: []string{`status.containerStatuses[0].allocatedResourcesStatus[0].name: Invalid value: "example.com/other": must match one of the container's resource requirements`}},
		"whole claim":     {resource: "claim:nic", want: []string{`status.containerStatuses[0].allocatedResourcesStatus[0].name: Invalid value: "claim:nic": must match one of the container's resource requirements`}},
		"other container": {resource: "claim:gpu", suffix: "x", want: []string{`status.containerStatuses[0].allocatedResourcesStatus: Invalid value: "cx": must belong to a container of the pod`}},
		"health": {resource: "claim:gpu", change: func(h *corev1.ResourceHealth) { h.Health = "Broken" },
			want: []string{`status.containerStatuses[0].allocatedResourcesStatus[0].resources[0].health: Unsupported value: "Broken": supported values: "Healthy", "Unhealthy", "Unknown"`}},
		"no id": {resource: "claim:gpu", change: func(h *corev1.ResourceHealth) { h.ResourceID = "" },
			want: []string{`status.containerStatuses[0].allocatedResourcesStatus[0].resources[0].resourceID: Required value`}},
		"same id": {resource: "claim:gpu", change: func(h *corev1.ResourceHealth) { h.ResourceID = "b" },
			want: []string{`status.containerStatuses[0].allocatedResourcesStatus[0].resources[1]: Duplicate value: "b"`}},
		"message": {resource: "claim:gpu", change: func(h *corev1.ResourceHealth) { h.Message = ptr.To(strings.Repeat("x", 1025)) },
			want: []string{`status.containerStatuses[0].allocatedResourcesStatus[0].resources[0].message: Too long: may not be more than 1024 bytes`}},
	} {
		t.Run(name, func(t *testing.T) {
			next := old.DeepCopy()
			next.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
				ResourceClaimName: "made", RequestMappings: []corev1.ContainerExtendedResourceRequest{{ContainerName: "c", ResourceName: "example.com/made", RequestName: "request-0"}},
			}
			r := corev1.ResourceStatus{Name: row.resource, Resources: []corev1.ResourceHealth{
				{ResourceID: "a", Health: corev1.ResourceHealthStatusHealthy}, {ResourceID: "b", Health: corev1.ResourceHealthStatusUnknown},
			}}
			if row.change != nil {
				row.change(&r.Resources[0])
			}
			next.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c" + row.suffix, AllocatedResourcesStatus: []corev1.ResourceStatus{r}}}
			if diff := cmp.Diff(row.want, texts(status.ValidatePart(next, old)), cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
			if errs := status.ValidatePart(next, next.DeepCopy()); len(errs) > 0 {
				t.Errorf("what was there is refused: %v", errs)
			}
		})
	}
}
