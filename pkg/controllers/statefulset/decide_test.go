package statefulset

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func setOf(replicas int32, change ...func(*appsv1.StatefulSetSpec)) *appsv1.StatefulSet {
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: "set"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{
				Type:          appsv1.RollingUpdateStatefulSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{},
			},
		},
	}
	for _, f := range change {
		f(&set.Spec)
	}
	return set
}

func parallel(s *appsv1.StatefulSetSpec) { s.PodManagementPolicy = appsv1.ParallelPodManagement }

func onDelete(s *appsv1.StatefulSetSpec) {
	s.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
}

func partition(n int32) func(*appsv1.StatefulSetSpec) {
	return func(s *appsv1.StatefulSetSpec) { s.UpdateStrategy.RollingUpdate.Partition = &n }
}

func unavailable(n string) func(*appsv1.StatefulSetSpec) {
	return func(s *appsv1.StatefulSetSpec) { s.UpdateStrategy.RollingUpdate.MaxUnavailable = new(intstr.Parse(n)) }
}

func start(n int32) func(*appsv1.StatefulSetSpec) {
	return func(s *appsv1.StatefulSetSpec) { s.Ordinals = &appsv1.StatefulSetOrdinals{Start: n} }
}

// podsOf reads pods: "3:v1+" is the ready pod 3 of revision v1; without the sign it runs and
// is not ready; "!": its container waits; "f": failed; "s": succeeded; "-": being deleted;
// "n": it has just been created.
func podsOf(text string) (pods []*corev1.Pod) {
	for word := range strings.FieldsSeq(text) {
		ordinal, rest, _ := strings.Cut(word, ":")
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-" + ordinal, Labels: map[string]string{
			appsv1.StatefulSetRevisionLabel: strings.TrimRight(rest, "+!fsn-"),
		}}}
		p.Status.Phase = corev1.PodRunning
		state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		for _, sign := range rest {
			switch sign {
			case '+':
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Time{Time: now.Add(-time.Minute)}}}
			case '!':
				state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
			case 'f':
				p.Status.Phase = corev1.PodFailed
			case 's':
				p.Status.Phase = corev1.PodSucceeded
			case 'n':
				p.CreationTimestamp = metav1.Time{Time: now}
			case '-':
				p.DeletionTimestamp = &metav1.Time{Time: now}
			}
		}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: state}}
		pods = append(pods, p)
	}
	return pods
}

func TestDecide(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		set    *appsv1.StatefulSet
		pods   string
		want   string
	}{
		"First":           {"pods are created one at a time", setOf(3), "", "create 0"},
		"Next":            {"the next one is created once the pods before it are available", setOf(3), "0:v2+", "create 1"},
		"Wait":            {"a pod that is not ready is waited for", setOf(3), "0:v2", ""},
		"MinReadySeconds": {"ready is not available", setOf(3, func(s *appsv1.StatefulSetSpec) { s.MinReadySeconds = 61 }), "0:v2+", ""},
		"Start":           {"ordinals begin at the start", setOf(2, start(5)), "4:v2+ 5:v2+", "create 1"},
		"Gap":             {"a pod in the middle is created again first", setOf(3), "0:v2+ 2:v1+", "create 1"},
		"Failed":          {"a failed pod is deleted, to be created again", setOf(2), "0:v2+ 1:v2f", "delete 1"},
		"Succeeded":       {"so is one that has ended well", setOf(2), "0:v2s 1:v2+", "delete 0"},
		"FailedSoon":      {"a pod that fails at once is kept for a moment", setOf(2), "0:v2+ 1:v2fn", "again in 2s"},
		"FailedGoing":     {"a failed pod that is being deleted already is waited for", setOf(2), "0:v2f-", ""},
		"Terminating":     {"a pod that is being deleted is waited for", setOf(2), "0:v2+ 1:v2+-", ""},

		"ScaleDown":        {"surplus pods are deleted, the highest first", setOf(1), "0:v2+ 1:v2+ 2:v2+", "delete 2"},
		"ScaleDownWaits":   {"one at a time", setOf(1), "0:v2+ 1:v2+ 2:v2+-", ""},
		"ScaleDownSick":    {"while a pod that stays is not ready, none is deleted", setOf(1), "0:v2 1:v2+", ""},
		"ScaleDownBlocked": {"nor while one is not ready that goes later", setOf(0), "0:v2 1:v2", ""},
		"ScaleDownBroken":  {"the first that is not ready may go", setOf(1), "0:v2+ 1:v2", "delete 1"},
		"ScaleDownFailed":  {"a failed pod has nothing to wait for", setOf(0), "0:v2 1:v2f", "delete 1"},

		"Roll":             {"an update begins at the highest ordinal", setOf(3), "0:v1+ 1:v1+ 2:v1+", "delete 2"},
		"RollOn":           {"and goes on when that is available", setOf(3), "0:v1+ 1:v1+ 2:v2+", "delete 1"},
		"RollWaits":        {"and waits while it is not", setOf(3), "0:v1+ 1:v1+ 2:v2", ""},
		"RollAfterScaling": {"scaling comes first", setOf(2), "0:v1+ 1:v1+ 2:v1+", "delete 2"},
		"Partition":        {"pods below the partition stay", setOf(3, partition(2)), "0:v1+ 1:v1+ 2:v2+", ""},
		"PartitionAbove":   {"the partition may be above all", setOf(3, partition(9)), "0:v1+ 1:v1+ 2:v1+", ""},
		"PartitionStart":   {"it counts from the first ordinal", setOf(2, partition(1), start(5)), "5:v1+ 6:v1+", "delete 6"},
		"OnDelete":         {"OnDelete replaces nothing", setOf(2, onDelete), "0:v1+ 1:v1+", ""},
		"MaxUnavailable":   {"as many as may be unavailable at once", setOf(5, unavailable("2")), "0:v1+ 1:v1+ 2:v1+ 3:v1+ 4:v1+", "delete 4 delete 3"},
		"Percent":          {"a percentage is rounded down", setOf(5, unavailable("50%")), "0:v1+ 1:v1+ 2:v1+ 3:v1+ 4:v1+", "delete 4 delete 3"},
		"AtLeastOne":       {"but not to none", setOf(2, unavailable("10%")), "0:v1+ 1:v1+", "delete 1"},

		"Abandoned":         {"a broken pod of a revision that is neither the former nor the new one is replaced", setOf(3), "0:v1+ 1:v1+ 2:vX", "delete 2"},
		"AbandonedOnDelete": {"not with OnDelete", setOf(3, onDelete), "0:v1+ 1:v1+ 2:vX", ""},
		"NeverReady":        {"the first revision never became ready", setOf(3), "0:v1", "delete 0"},
		"InTurn":            {"a pod that becomes unready when its turn has come is replaced", setOf(3), "0:v1+ 1:v1 2:v2+", "delete 1"},
		"BeforeItsTurn":     {"one that runs and may recover is waited for", setOf(3), "0:v1+ 1:v1 2:v1+", ""},
		"CrashLoop":         {"one that does not run is not", setOf(3), "0:v1! 1:v1+ 2:v1+", "delete 0"},
		"BothBroken":        {"unless the new revision may be broken, too", setOf(3), "0:v1! 1:v1+ 2:v2", ""},
		"BelowPartition":    {"pods below the partition are not replaced", setOf(3, partition(1)), "0:v1!", ""},

		"Burst":             {"Parallel creates all at once", setOf(3, parallel), "1:v2", "create 0 create 2"},
		"BurstDown":         {"and deletes all at once", setOf(0, parallel), "0:v2 1:v2+ 2:v2+-", "delete 1 delete 0"},
		"BurstFailed":       {"and replaces failed pods meanwhile", setOf(3, parallel), "0:v2f 1:v2", "create 2 delete 0"},
		"BurstRoll":         {"updates keep to maxUnavailable", setOf(3, parallel), "0:v1+ 1:v1+ 2:v1+", "delete 2"},
		"BurstRollWaits":    {"and to the order", setOf(3, parallel), "0:v1+ 1:v1+ 2:v2", ""},
		"BurstStuck":        {"pods that are not available are replaced at once", setOf(4, parallel), "0:v1 1:v1+ 2:v1 3:v1+", "delete 2 delete 0"},
		"BurstBroken":       {"unless the new revision may be broken, too", setOf(3, parallel), "0:v1 1:v1+ 2:v2", ""},
		"BurstFailedRolled": {"no pod is deleted twice", setOf(2, parallel), "0:v2+ 1:v1f", "delete 1"},
		"Deleted": {"a set that is being deleted does nothing", func() *appsv1.StatefulSet {
			set := setOf(3)
			set.DeletionTimestamp = &metav1.Time{Time: now}
			return set
		}(), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := stateOf(test.set, podsOf(test.pods), "v1", "v2", now)
			todo := decide(s)
			var got []string
			for _, i := range todo.Create {
				got = append(got, fmt.Sprintf("create %d", i))
			}
			for _, p := range todo.Delete {
				got = append(got, "delete "+strings.TrimPrefix(p.Name, "web-"))
			}
			if todo.Recheck > 0 {
				got = append(got, "again in "+todo.Recheck.String())
			}
			if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("%s: %s", test.reason, diff)
			}
		})
	}
}

func TestDueRevision(t *testing.T) {
	former := setOf(3, func(s *appsv1.StatefulSetSpec) { s.UpdateStrategy.RollingUpdate = nil })
	former.Status.CurrentReplicas = 1
	for name, test := range map[string]struct {
		set  *appsv1.StatefulSet
		want string
	}{
		"rolling":           {setOf(3), "v2 v2 v2"},
		"partition":         {setOf(3, partition(2)), "v1 v1 v2"},
		"OnDelete":          {setOf(3, onDelete), "v2 v2 v2"},
		"without partition": {former, "v1 v2 v2"},
	} {
		var got []string
		for i := range 3 {
			got = append(got, stateOf(test.set, nil, "v1", "v2", now).due(i))
		}
		if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestStatus(t *testing.T) {
	for name, test := range map[string]struct {
		set     *appsv1.StatefulSet
		pods    string
		want    string
		recount time.Duration
	}{
		"Mixed":     {set: setOf(3), pods: "0:v1+ 1:v1+- 2:v2", want: "3 pods, 2 ready, 1 available, 1 at v1, 1 at v2"},
		"Complete":  {set: setOf(2), pods: "0:v2+ 1:v2+", want: "2 pods, 2 ready, 2 available, 2 at v2, 2 at v2"},
		"Surplus":   {set: setOf(1), pods: "0:v2+ 1:v2+", want: "2 pods, 2 ready, 2 available, 0 at v1, 2 at v2"},
		"NotReady":  {set: setOf(2), pods: "0:v2+ 1:v2", want: "2 pods, 1 ready, 1 available, 0 at v1, 2 at v2"},
		"OnDelete":  {set: setOf(1, onDelete), pods: "0:v2+", want: "1 pods, 1 ready, 1 available, 0 at v1, 1 at v2"},
		"Available": {set: setOf(1, func(s *appsv1.StatefulSetSpec) { s.MinReadySeconds = 70 }), pods: "0:v2+", want: "1 pods, 1 ready, 0 available, 1 at v2, 1 at v2", recount: 10 * time.Second},
	} {
		pods := podsOf(test.pods)
		s, recount := status(stateOf(test.set, pods, "v1", "v2", now), pods, nil)
		got := fmt.Sprintf("%d pods, %d ready, %d available, %d at %s, %d at %s",
			s.Replicas, s.ReadyReplicas, s.AvailableReplicas, s.CurrentReplicas, s.CurrentRevision, s.UpdatedReplicas, s.UpdateRevision)
		if got != test.want || recount != test.recount || *s.CollisionCount != 0 {
			t.Errorf("%s: %s, again after %s, %d collisions; want %s", name, got, recount, *s.CollisionCount, test.want)
		}
	}
}

func TestOrdinals(t *testing.T) {
	for name, want := range map[string]int{"web-0": 0, "web-12": 12, "web-01": -1, "web-": -1, "web--1": -1, "web-x": -1, "web2-1": -1, "web-99999999999": -1} {
		n, ok := ordinalOf(setOf(1), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}})
		if ok != (want >= 0) || ok && n != want {
			t.Errorf("the ordinal of %s is %d, %v, want %d", name, n, ok, want)
		}
	}
}
