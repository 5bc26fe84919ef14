package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/retry"
)

// statefulSets returns the rows of StatefulSets whose pods run.
func statefulSets() []testcase {
	return []testcase{
		{id: "statefulset-burst-parallel", test: setBursts},
		{id: "statefulset-canary-partition", test: setCanary},
		{id: "statefulset-ordered-scaling", test: setScalesInOrder},
		{id: "statefulset-recreate-evicted", test: setRecreatesEvicted},
		{id: "statefulset-rolling-update-rollback", test: setRollsBack},
	}
}

// breakable returns a StatefulSet whose pods are ready unless the file /tmp/broken exists.
func breakable(replicas int32) *appsv1.StatefulSet {
	of := idle("set", "v1")
	of.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "!", "-e", "/tmp/broken"}}},
		PeriodSeconds: 1, TimeoutSeconds: 30, FailureThreshold: 1, // starting a process takes seconds on a busy machine
	}
	return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "set"}, Spec: appsv1.StatefulSetSpec{
		Replicas: &replicas, ServiceName: "set", Selector: &metav1.LabelSelector{MatchLabels: of.Labels}, Template: of,
	}}
}

func startSet(t *testing.T, ctx context.Context, namespace string, set *appsv1.StatefulSet) {
	t.Helper()
	_, err := admin.AppsV1().StatefulSets(namespace).Create(ctx, set, metav1.CreateOptions{})
	check(t, err)
}

func updateSet(t *testing.T, ctx context.Context, namespace string, change func(*appsv1.StatefulSetSpec)) {
	t.Helper()
	sets := admin.AppsV1().StatefulSets(namespace)
	check(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		set, err := sets.Get(ctx, "set", metav1.GetOptions{})
		if err == nil {
			change(&set.Spec)
			_, err = sets.Update(ctx, set, metav1.UpdateOptions{})
		}
		return err
	}))
}

// note returns a change of the template, which replaces the pods.
func note(text string) func(*appsv1.StatefulSetSpec) {
	return func(s *appsv1.StatefulSetSpec) { s.Template.Annotations["note"] = text }
}

func scaled(replicas int32) func(*appsv1.StatefulSetSpec) {
	return func(s *appsv1.StatefulSetSpec) { s.Replicas = &replicas }
}

func partitioned(n int32) func(*appsv1.StatefulSetSpec) {
	return func(s *appsv1.StatefulSetSpec) {
		s.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: &n, MaxUnavailable: ptr(intstr.FromInt32(1))}
	}
}

// members describes the pods by ordinal: the note of the template, and "+" if ready.
func members(ctx context.Context, namespace string) (string, error) {
	list, err := admin.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=set"})
	if err != nil {
		return "", err
	}
	var out []string
	for i := range list.Items {
		p := &list.Items[i]
		text := p.Name + ":" + p.Annotations["note"]
		switch {
		case p.DeletionTimestamp != nil:
			text += "-"
		case isReady(p):
			text += "+"
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return strings.Join(out, " "), nil
}

// membersBecome waits until the pods are as described.
func membersBecome(t *testing.T, ctx context.Context, namespace, want string) {
	t.Helper()
	eventually(t, ctx, "the pods are "+want, func() error {
		got, err := members(ctx, namespace)
		if err == nil && got != want {
			err = fmt.Errorf("they are %s", got)
		}
		return err
	})
}

// membersStay wants the pods to stay as they are described, for a while.
func membersStay(t *testing.T, ctx context.Context, namespace, want string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		got, err := members(ctx, namespace)
		check(t, err)
		if got != want {
			t.Fatalf("the pods are %s, want them to stay %s", got, want)
		}
	}
}

func setStatus(t *testing.T, ctx context.Context, namespace, what string, ok func(appsv1.StatefulSetStatus) bool) appsv1.StatefulSetStatus {
	t.Helper()
	var last *appsv1.StatefulSet
	eventually(t, ctx, "the status "+what, func() (err error) {
		last, err = admin.AppsV1().StatefulSets(namespace).Get(ctx, "set", metav1.GetOptions{})
		if err == nil && (last.Status.ObservedGeneration < last.Generation || !ok(last.Status)) {
			err = fmt.Errorf("it is %+v", last.Status)
		}
		return err
	})
	return last.Status
}

// breakPod makes a pod of the set unready, mendPod ready again.
func breakPod(t *testing.T, ctx context.Context, namespace, name string) {
	t.Helper()
	pod := inPod(t, ctx, namespace, name, "touch")
	podBecomes(t, ctx, pod, "is not ready", func(pod *corev1.Pod) bool { return !isReady(pod) })
}

func mendPod(t *testing.T, ctx context.Context, namespace, name string) {
	t.Helper()
	podBecomes(t, ctx, inPod(t, ctx, namespace, name, "rm"), "is ready", isReady)
}

// inPod runs a command on the file /tmp/broken of a pod.
func inPod(t *testing.T, ctx context.Context, namespace, name, command string) *corev1.Pod {
	t.Helper()
	pod, err := admin.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	check(t, err)
	exec(t, ctx, pod, "", command, "/tmp/broken")
	return pod
}

// history records the names of the pods that are added or deleted, in order, until ctx ends
// or it has n of them.
func history(t *testing.T, ctx context.Context, namespace string, kind watch.EventType) func(n int) []string {
	t.Helper()
	list, err := admin.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	check(t, err)
	w, err := admin.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	check(t, err)
	t.Cleanup(w.Stop)
	return func(n int) (names []string) {
		t.Helper()
		for len(names) < n {
			e, ok := <-w.ResultChan()
			if !ok {
				t.Fatalf("the watch ended after %v", names)
			}
			if e.Type == kind {
				names = append(names, e.Object.(*corev1.Pod).Name)
			}
		}
		return names
	}
}

func inSequence(t *testing.T, what string, got []string, want string) {
	t.Helper()
	if names := strings.Join(got, " "); names != want {
		t.Errorf("the pods are %s in the order %s, want %s", what, names, want)
	}
}

// setScalesInOrder scales a set up and down while pods are not ready, and mends them.
func setScalesInOrder(t *testing.T, ctx context.Context, namespace string) {
	added := history(t, ctx, namespace, watch.Added)
	startSet(t, ctx, namespace, breakable(1))
	membersBecome(t, ctx, namespace, "set-0:v1+")
	breakPod(t, ctx, namespace, "set-0")
	updateSet(t, ctx, namespace, scaled(3))
	membersStay(t, ctx, namespace, "set-0:v1")
	mendPod(t, ctx, namespace, "set-0")
	membersBecome(t, ctx, namespace, "set-0:v1+ set-1:v1+ set-2:v1+")
	inSequence(t, "created", added(3), "set-0 set-1 set-2")

	deleted := history(t, ctx, namespace, watch.Deleted)
	for _, name := range []string{"set-0", "set-1", "set-2"} {
		breakPod(t, ctx, namespace, name)
	}
	updateSet(t, ctx, namespace, scaled(0))
	membersStay(t, ctx, namespace, "set-0:v1 set-1:v1 set-2:v1")
	mendPod(t, ctx, namespace, "set-0")
	inPod(t, ctx, namespace, "set-1", "rm") // set-2 is then the only one that is not ready, and may go
	inSequence(t, "deleted", deleted(3), "set-2 set-1 set-0")
	setStatus(t, ctx, namespace, "counts none", func(s appsv1.StatefulSetStatus) bool { return s.Replicas == 0 })
}

// setBursts scales a parallel set up and down while its pods are not ready.
func setBursts(t *testing.T, ctx context.Context, namespace string) {
	set := breakable(1)
	set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
	startSet(t, ctx, namespace, set)
	membersBecome(t, ctx, namespace, "set-0:v1+")
	breakPod(t, ctx, namespace, "set-0")
	updateSet(t, ctx, namespace, scaled(3))
	membersBecome(t, ctx, namespace, "set-0:v1 set-1:v1+ set-2:v1+")
	breakPod(t, ctx, namespace, "set-2")
	updateSet(t, ctx, namespace, scaled(0))
	membersBecome(t, ctx, namespace, "")
	setStatus(t, ctx, namespace, "counts none", func(s appsv1.StatefulSetStatus) bool { return s.Replicas == 0 })
}

// setRecreatesEvicted makes the node refuse the pod of a set, until the port is free.
func setRecreatesEvicted(t *testing.T, ctx context.Context, namespace string) {
	port := []corev1.ContainerPort{{ContainerPort: 21017, HostPort: 21017, Name: "conflict"}}
	blocker := sleeper(namespace, "blocker")
	blocker.Spec.Containers[0].Ports = port
	blocker = run(t, ctx, blocker)
	set := breakable(1)
	set.Spec.Template.Spec.Containers[0].Ports = port
	set.Spec.Template.Spec.NodeName = blocker.Spec.NodeName
	w, err := admin.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=set-0"})
	check(t, err)
	defer w.Stop()
	startSet(t, ctx, namespace, set)
	sees(t, ctx, w, watch.Modified, inPhase(corev1.PodFailed))
	sees[*corev1.Pod](t, ctx, w, watch.Deleted, nil)
	check(t, admin.CoreV1().Pods(namespace).Delete(ctx, "blocker", metav1.DeleteOptions{}))
	membersBecome(t, ctx, namespace, "set-0:v1+")
}

// setCanary updates one pod first, then the others.
func setCanary(t *testing.T, ctx context.Context, namespace string) {
	set := breakable(3)
	set.Spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
	partitioned(3)(&set.Spec)
	startSet(t, ctx, namespace, set)
	membersBecome(t, ctx, namespace, "set-0:v1+ set-1:v1+ set-2:v1+")
	first := setStatus(t, ctx, namespace, "names one revision", func(s appsv1.StatefulSetStatus) bool {
		return s.CurrentRevision == s.UpdateRevision && s.CurrentReplicas == 3
	}).CurrentRevision

	updateSet(t, ctx, namespace, note("v2"))
	second := setStatus(t, ctx, namespace, "names two revisions", func(s appsv1.StatefulSetStatus) bool {
		return s.CurrentRevision == first && s.UpdateRevision != first
	}).UpdateRevision
	membersStay(t, ctx, namespace, "set-0:v1+ set-1:v1+ set-2:v1+")

	updateSet(t, ctx, namespace, partitioned(2))
	membersBecome(t, ctx, namespace, "set-0:v1+ set-1:v1+ set-2:v2+")
	check(t, admin.CoreV1().Pods(namespace).Delete(ctx, "set-0", metav1.DeleteOptions{}))
	check(t, admin.CoreV1().Pods(namespace).Delete(ctx, "set-2", metav1.DeleteOptions{}))
	membersBecome(t, ctx, namespace, "set-0:v1+ set-1:v1+ set-2:v2+")
	for _, pod := range podsOf(t, ctx, namespace) {
		want := map[string]string{"v1": first, "v2": second}[pod.Annotations["note"]]
		if got := pod.Labels[appsv1.ControllerRevisionHashLabelKey]; got != want {
			t.Errorf("%s is labelled with revision %s, want %s", pod.Name, got, want)
		}
	}
	updateSet(t, ctx, namespace, partitioned(1))
	membersBecome(t, ctx, namespace, "set-0:v1+ set-1:v2+ set-2:v2+")
	updateSet(t, ctx, namespace, partitioned(0))
	membersBecome(t, ctx, namespace, "set-0:v2+ set-1:v2+ set-2:v2+")
	setStatus(t, ctx, namespace, "is complete", func(s appsv1.StatefulSetStatus) bool {
		return s.CurrentRevision == second && s.UpdateRevision == second && s.UpdatedReplicas == 3
	})
}

// setRollsBack updates a set and reverts the update, each time with a pod that is not ready
// at first.
func setRollsBack(t *testing.T, ctx context.Context, namespace string) {
	startSet(t, ctx, namespace, breakable(3))
	membersBecome(t, ctx, namespace, "set-0:v1+ set-1:v1+ set-2:v1+")
	first := setStatus(t, ctx, namespace, "names one revision", func(s appsv1.StatefulSetStatus) bool { return s.CurrentRevision == s.UpdateRevision }).UpdateRevision
	second := rollSet(t, ctx, namespace, "v1", "v2")
	if third := rollSet(t, ctx, namespace, "v2", "v1"); third != first || second == first {
		t.Errorf("the revisions are %s, %s, %s, want the third to be the first", first, second, third)
	}
}

// rollSet changes the template while set-1 is not ready, mends it, and returns the revision.
func rollSet(t *testing.T, ctx context.Context, namespace, from, to string) string {
	t.Helper()
	breakPod(t, ctx, namespace, "set-1")
	updateSet(t, ctx, namespace, note(to))
	begun := setStatus(t, ctx, namespace, "names two revisions", func(s appsv1.StatefulSetStatus) bool { return s.CurrentRevision != s.UpdateRevision })
	membersStay(t, ctx, namespace, strings.ReplaceAll("set-0:V+ set-1:V set-2:V+", "V", from))
	deleted := history(t, ctx, namespace, watch.Deleted)
	mendPod(t, ctx, namespace, "set-1")
	inSequence(t, "replaced", deleted(3), "set-2 set-1 set-0")
	membersBecome(t, ctx, namespace, strings.ReplaceAll("set-0:V+ set-1:V+ set-2:V+", "V", to))
	setStatus(t, ctx, namespace, "is complete", func(s appsv1.StatefulSetStatus) bool {
		return s.CurrentRevision == begun.UpdateRevision && s.UpdateRevision == begun.UpdateRevision && s.CurrentReplicas == 3
	})
	return begun.UpdateRevision
}
