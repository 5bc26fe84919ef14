package registry_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/apiserver/registry"
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

// A new pod gets its account, a token in each container, and what the cluster
// assumes of every pod.
func TestPodCreate(t *testing.T) {
	k := newRig(t, "10.0.0.0/24", somePorts).kinds["pods"]
	pod := newPod(func(p *corev1.Pod) {
		p.Generation = 7
		p.Status.Phase = corev1.PodRunning
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "own", Image: "web:1",
			VolumeMounts: []corev1.VolumeMount{{Name: "mine", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}}})
		p.Spec.Volumes = []corev1.Volume{{Name: "mine"}}
	})
	b := holding(map[string][]scheme.Object{"serviceaccounts": {account("default", func(a *corev1.ServiceAccount) {
		a.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
	})}})
	k.Default(pod)
	if err := k.Prepare(t.Context(), b, pod, nil); err != nil {
		t.Fatal(err)
	}
	if errs := k.Validate(pod, nil); len(errs) > 0 {
		t.Fatal(errs)
	}
	volume := pod.Spec.Volumes[1]
	if mounts := pod.Spec.Containers[0].VolumeMounts; len(mounts) != 1 || mounts[0].Name != volume.Name || !mounts[0].ReadOnly {
		t.Errorf("mounts %+v", mounts)
	}
	if len(pod.Spec.Containers[1].VolumeMounts) != 1 {
		t.Error("a container's own mount was covered")
	}
	if got := volume.Projected.Sources[0].ServiceAccountToken; *got.ExpirationSeconds != 3607 || got.Path != "token" {
		t.Errorf("token %+v", got)
	}
	want := struct {
		Account, Phase, QOS, Pull string
		Generation                int64
		Priority                  int32
		Tolerations               int
	}{"default", "Pending", "BestEffort", "pull", 1, 0, 2}
	got := want
	got.Account, got.Phase, got.QOS, got.Pull = pod.Spec.ServiceAccountName, string(pod.Status.Phase), string(pod.Status.QOSClass), pod.Spec.ImagePullSecrets[0].Name
	got.Generation, got.Priority, got.Tolerations = pod.Generation, *pod.Spec.Priority, len(pod.Spec.Tolerations)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// serviceaccount-automount-optout: the pod's word counts more than the account's.
func TestAutomount(t *testing.T) {
	k := newRig(t, "10.0.0.0/24", somePorts).kinds["pods"]
	yes, no := new(true), new(false)
	for _, row := range []struct {
		pod, account *bool
		want         bool
	}{
		{nil, nil, true}, {nil, yes, true}, {nil, no, false},
		{yes, nil, true}, {yes, yes, true}, {yes, no, true},
		{no, nil, false}, {no, yes, false}, {no, no, false},
	} {
		pod := newPod(func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = row.pod })
		b := holding(map[string][]scheme.Object{"serviceaccounts": {account("default", func(a *corev1.ServiceAccount) { a.AutomountServiceAccountToken = row.account })}})
		if err := k.Prepare(t.Context(), b, pod, nil); err != nil {
			t.Fatal(err)
		}
		if got := len(pod.Spec.Volumes) == 1; got != row.want {
			t.Errorf("pod %v, account %v: mounted %v", row.pod, row.account, got)
		}
	}
}

// Namespace and first pod often come in one apply: the default account is
// waited for, any other is not.
func TestAccountIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newRig(t, "10.0.0.0/24", somePorts).kinds["pods"]
		b := &lateAccounts{backend: holding(nil), after: time.Now().Add(300 * time.Millisecond)}
		if err := k.Prepare(t.Context(), b, newPod(nil), nil); err != nil {
			t.Error(err)
		}
		err := k.Prepare(t.Context(), holding(nil), newPod(func(p *corev1.Pod) { p.Spec.ServiceAccountName = "robot" }), nil)
		const want = `pods "p" is forbidden: error looking up service account ns/robot: serviceaccount "robot" not found`
		if !apierrors.IsForbidden(err) || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	})
}

type lateAccounts struct {
	*backend
	after time.Time
}

func (b *lateAccounts) Get(ctx context.Context, gvr gvr, namespace, name string) (scheme.Object, error) {
	if time.Now().Before(b.after) {
		return b.backend.Get(ctx, gvr, namespace, name)
	}
	return account(name, nil), nil
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
		if err := k.Prepare(t.Context(), nil, old, old.DeepCopy()); err != nil { // the tolerations of every pod
			t.Fatal(err)
		}
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

var _ registry.Backend = (*lateAccounts)(nil)

func TestWhatAPodMayReferTo(t *testing.T) {
	env := func(secret string) []corev1.EnvVar {
		return []corev1.EnvVar{{Name: "E", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: "k"}}}}
	}
	secretVolume := func(name string) []corev1.Volume {
		return []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}}}
	}
	mirror := func(change func(*corev1.Pod)) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
			change(p)
		}
	}
	limited := account("default", func(a *corev1.ServiceAccount) {
		a.Annotations = map[string]string{"kubernetes.io/enforce-mountable-secrets": "true"}
		a.Secrets = []corev1.ObjectReference{{Name: "ours"}}
		a.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
	})
	for name, tc := range map[string]struct {
		account *corev1.ServiceAccount
		change  func(*corev1.Pod)
		want    string // "": allowed
	}{
		"a secret that the account lists": {limited, func(p *corev1.Pod) { p.Spec.Volumes = secretVolume("ours") }, ""},
		"a volume of another":             {limited, func(p *corev1.Pod) { p.Spec.Volumes = secretVolume("theirs") }, `volume with secret.secretName="theirs" is not allowed because service account default does not reference that secret`},
		"an environment of another":       {limited, func(p *corev1.Pod) { p.Spec.Containers[0].Env = env("theirs") }, `envVar E referencing secret.secretName="theirs" is not allowed`},
		"another to pull images with":     {limited, func(p *corev1.Pod) { p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "theirs"}} }, `imagePullSecrets[0].name="theirs" is not allowed`},
		"an account without limits":       {account("default", nil), func(p *corev1.Pod) { p.Spec.Volumes = secretVolume("theirs") }, ""},
		"a mirror pod":                    {account("default", nil), mirror(func(*corev1.Pod) {}), ""},
		"a mirror pod with an account":    {account("default", nil), mirror(func(p *corev1.Pod) { p.Spec.ServiceAccountName = "default" }), "a mirror pod may not reference service accounts"},
		"a mirror pod with a secret":      {account("default", nil), mirror(func(p *corev1.Pod) { p.Spec.Containers[0].Env = env("theirs") }), "a mirror pod may not reference secrets"},
		"a mirror pod with a token for somebody": {account("default", nil), mirror(func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}},
			}}}}
		}), "a mirror pod may not use ServiceAccountToken volume projections"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newRig(t, "10.0.0.0/24", somePorts).kinds["pods"]
			pod := newPod(tc.change)
			k.Default(pod)
			err := k.Prepare(t.Context(), holding(map[string][]scheme.Object{"serviceaccounts": {tc.account}}), pod, nil)
			if tc.want == "" && err != nil || tc.want != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

// Admission answers what depends on other objects before validation looks at
// the fields, so these are Forbidden even in a pod with other errors.
func TestPodClasses(t *testing.T) {
	never, lower := new(corev1.PreemptNever), new(corev1.PreemptLowerPriority)
	for name, row := range map[string]struct {
		reason string
		change func(*corev1.Pod)
		off    registry.PluginSet
		want   string // "": allowed
	}{
		"Nothing":   {reason: "as most pods", change: func(*corev1.Pod) {}},
		"Class":     {reason: "it exists without being created", change: func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-node-critical" }},
		"SameValue": {reason: "as kubectl get -o yaml prints it", change: func(p *corev1.Pod) { p.Spec.Priority = new(int32(0)) }},
		"UnknownClass": {
			reason: "upstream's status and text",
			change: func(p *corev1.Pod) { p.Spec.PriorityClassName, p.Spec.Containers = "gold", nil },
			want:   `pods "p" is forbidden: no PriorityClass with name gold was found`,
		},
		"RuntimeClass": {
			reason: "there is no such resource, so none is found",
			change: func(p *corev1.Pod) { p.Spec.RuntimeClassName, p.Spec.Containers = new("kata"), nil },
			want:   `pods "p" is forbidden: pod rejected: RuntimeClass "kata" not found`,
		},
		"EmptyRuntimeClass": {
			reason: "nor is one without a name",
			change: func(p *corev1.Pod) { p.Name, p.GenerateName, p.Spec.RuntimeClassName = "", "p-", new("") },
			want:   `pods "p-" is forbidden: pod rejected: RuntimeClass "" not found`,
		},
		"OtherValue": {
			reason: "a value without its class",
			change: func(p *corev1.Pod) { p.Spec.Priority = new(int32(7)) },
			want:   `pods "p" is forbidden: the integer value of priority (7) must not be provided in pod spec; priority admission controller computed 0 from the given PriorityClass name`,
		},
		"LowerPriority": {reason: "the policy of pods without a class", change: func(p *corev1.Pod) { p.Spec.PreemptionPolicy = lower }},
		"Never": {
			reason: "only a class can say so",
			change: func(p *corev1.Pod) { p.Spec.PreemptionPolicy = never },
			want:   `pods "p" is forbidden: the string value of PreemptionPolicy (Never) must not be provided in pod spec; priority admission controller computed PreemptLowerPriority from the given PriorityClass name`,
		},
		"NeverOfClass": {
			reason: "and none of those that exist does",
			change: func(p *corev1.Pod) {
				p.Spec.PriorityClassName, p.Spec.PreemptionPolicy = "system-cluster-critical", never
			},
			want: `pods "p" is forbidden: the string value of PreemptionPolicy (Never) must not be provided in pod spec; priority admission controller computed PreemptLowerPriority from the given PriorityClass name`,
		},
		"NeverWithoutPlugin": {
			reason: "the rule is the plugin's",
			change: func(p *corev1.Pod) { p.Spec.PreemptionPolicy = never },
			off:    registry.PluginSet{registry.Priority},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "10.0.0.0/24", somePorts)
			r.cfg.Disabled = row.off
			pod := newPod(row.change)
			for _, k := range registry.Kinds(r.scheme, r.cfg) {
				if k.Resource != "pods" {
					continue
				}
				k.Default(pod)
				err := k.Prepare(t.Context(), holding(map[string][]scheme.Object{"serviceaccounts": {account("default", nil)}}), pod, nil)
				if row.want == "" && err != nil || row.want != "" && (!apierrors.IsForbidden(err) || err.Error() != row.want) {
					t.Errorf("%s\ngot  %v\nwant %s", row.reason, err, row.want)
				}
			}
		})
	}
}
