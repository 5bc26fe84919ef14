package deployment

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podium/pkg/conditions"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// deployment returns a deployment with that many replicas of the template "new".
func deployment(replicas int32, change ...func(*appsv1.Deployment)) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "d", UID: "d-uid", Generation: 2}}
	d.Spec.Replicas = &replicas
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "d"}}
	d.Spec.Template = template("new")
	rolling("25%", "25%")(d)
	for _, f := range change {
		f(d)
	}
	return d
}

func template(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "d"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image}}},
	}
}

func rolling(surge, unavailable string) func(*appsv1.Deployment) {
	s, u := intstr.Parse(surge), intstr.Parse(unavailable)
	return func(d *appsv1.Deployment) {
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &s, MaxUnavailable: &u}}
	}
}

func recreate(d *appsv1.Deployment) {
	d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
}

func paused(d *appsv1.Deployment) { d.Spec.Paused = true }

// sets parses "old:5/3 new:2/2": image, replicas, available replicas; the first is the
// oldest. Their annotations are those for d's size, or for the size after @.
func sets(d *appsv1.Deployment, text string) []*appsv1.ReplicaSet {
	var out []*appsv1.ReplicaSet
	for i, word := range strings.Fields(text) {
		image, rest, _ := strings.Cut(word, ":")
		var want, up, size int32
		size = *d.Spec.Replicas
		if n, _ := fmt.Sscanf(rest, "%d/%d@%d", &want, &up, &size); n < 2 {
			panic(word)
		}
		owner := d.DeepCopy()
		owner.Spec.Replicas = &size
		rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
			Name: image, CreationTimestamp: metav1.Time{Time: now.Add(time.Duration(i) * time.Minute)}, Annotations: sizes(owner),
		}}
		rs.Annotations[revisionAnnotation] = fmt.Sprint(i + 1)
		rs.Spec = appsv1.ReplicaSetSpec{Replicas: &want, Template: template(image)}
		rs.Status = appsv1.ReplicaSetStatus{Replicas: want, AvailableReplicas: up, ReadyReplicas: up}
		out = append(out, rs)
	}
	return out
}

// show formats a step for comparison: "create new:3, old:5->3".
func show(s step) string {
	var out []string
	if s.Create != nil {
		out = append(out, fmt.Sprintf("create %s:%d", s.Create.Spec.Template.Spec.Containers[0].Image, *s.Create.Spec.Replicas))
	}
	for _, u := range s.Update {
		if *u.From.Spec.Replicas != *u.To.Spec.Replicas {
			out = append(out, fmt.Sprintf("%s:%d->%d", u.From.Name, *u.From.Spec.Replicas, *u.To.Spec.Replicas))
		}
	}
	for _, rs := range s.Delete {
		out = append(out, "delete "+rs.Name)
	}
	return strings.Join(out, ", ")
}

func TestSteps(t *testing.T) {
	tests := map[string]struct {
		reason  string
		d       *appsv1.Deployment
		have    string
		oldPods bool
		want    string
	}{
		"First": {
			reason: "with nothing there the new set gets its full size at once",
			d:      deployment(10), want: "create new:10",
		},
		"SurgeFirst": {
			reason: "25% of 10 rounds up to 3: the new set begins with what may be too many",
			d:      deployment(10), have: "old:10/10", want: "create new:3",
		},
		"ThenDrain": {
			reason: "25% of 10 rounds down to 2: 8 must stay available",
			d:      deployment(10), have: "old:10/10 new:3/0", want: "old:10->8",
		},
		"GrowAsOldShrinks": {
			reason: "8 + 3 leaves room for 2 more new ones",
			d:      deployment(10), have: "old:8/8 new:3/0", want: "new:3->5",
		},
		"Wait": {
			reason: "13 pods of which 8 are available: nothing may change until a new one is ready",
			d:      deployment(10), have: "old:8/8 new:5/0", want: "",
		},
		"UnhealthyOldOnesGoFirst": {
			reason: "old pods that are not available help nobody",
			d:      deployment(10), have: "old:8/5 new:5/5", want: "old:8->3",
		},
		"ZeroUnavailable": {
			reason: "with maxUnavailable 0 a new pod must be ready before an old one goes",
			d:      deployment(3, rolling("1", "0")), have: "old:3/3 new:1/0", want: "",
		},
		"ZeroUnavailableReady": {
			reason: "now it is ready",
			d:      deployment(3, rolling("1", "0")), have: "old:3/3 new:1/1", want: "old:3->2",
		},
		"BothZero": {
			reason: "0 and 0% rounded down could never move: one may be unavailable",
			d:      deployment(3, rolling("0", "10%")), have: "old:3/3 new:0/0", want: "old:3->2",
		},
		"Rollover": {
			reason: "a third template takes over from two: what is not available goes first, wherever it is",
			d:      deployment(10), have: "oldest:6/6 old:5/2 new:2/0", want: "old:5->2",
		},
		"RecreateDrains": {
			reason: "first everything old goes",
			d:      deployment(3, recreate), have: "old:3/3", want: "old:3->0",
		},
		"RecreateWaits": {
			reason: "pods that terminate still run",
			d:      deployment(3, recreate), have: "old:0/0", oldPods: true, want: "",
		},
		"RecreateStarts": {
			reason: "the last old pod is gone",
			d:      deployment(3, recreate), have: "old:0/0", want: "create new:3",
		},
		"RecreateResumes": {
			reason: "a template that was there before comes back",
			d:      deployment(3, recreate), have: "new:0/0 old:0/0", want: "new:0->3",
		},
		"PausedDoesNotRoll": {
			reason: "a paused deployment makes no set for its new template",
			d:      deployment(3, paused), have: "old:3/3", want: "",
		},
		"PausedScales": {
			reason: "but scales the one it has",
			d:      deployment(5, paused), have: "old:3/3@3", want: "old:3->5",
		},
		"ScaleInTheMiddle": {
			reason: "8 + 5 of 10, grown to 30: in proportion to their sizes (upstream's conformance test)",
			d:      deployment(30, rolling("3", "2")), have: "old:8/8@10 new:5/0@10", want: "new:5->13, old:8->20",
		},
		"ShrinkInTheMiddle": {
			reason: "20 + 13 of 30, shrunk to 10: back to where it was",
			d:      deployment(10, rolling("3", "2")), have: "old:20/20@30 new:13/0@30", want: "new:13->5, old:20->8",
		},
		"ScaleToNothing": {
			reason: "0 is 0 in every proportion",
			d:      deployment(0), have: "old:8/8@10 new:5/0@10", want: "new:5->0, old:8->0",
		},
		"SaturatedNewSet": {
			reason: "the new set does all the work: old ones are left-overs",
			d:      deployment(3, paused), have: "old:1/0 new:3/3", want: "old:1->0",
		},
		"History": {
			reason: "done: of three old sets two are kept, by revision",
			d:      deployment(2, func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = new(int32(2)) }),
			have:   "a:0/0 b:0/0 c:0/0 new:2/2", want: "delete a",
		},
		"HistoryLater": {
			reason: "not while the rollout is under way",
			d:      deployment(2, func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = new(int32(0)) }),
			have:   "a:0/0 new:2/1", want: "",
		},
		"Deleted": {
			reason: "a deployment on its way out only counts",
			d:      deployment(3, func(d *appsv1.Deployment) { d.DeletionTimestamp = &metav1.Time{Time: now} }), have: "old:3/3", want: "",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := decide(tc.d, sets(tc.d, tc.have), func([]*appsv1.ReplicaSet) bool { return tc.oldPods }, now)
			if got := show(s); got != tc.want {
				t.Errorf("%s\n got %s\nwant %s", tc.reason, got, tc.want)
			}
		})
	}
}

// TestRolloutsEnd simulates rollouts of many shapes, with one pod becoming available at a
// time. Each must end and never exceed its bounds, although the status of a set lags
// behind its spec: pods beyond the spec are deleted only when nothing else happens.
func TestRolloutsEnd(t *testing.T) {
	for _, replicas := range []int32{1, 2, 3, 7, 10, 100} {
		for _, surge := range []string{"0", "1", "25%", "100%"} {
			for _, unavailable := range []string{"0", "1", "25%", "100%"} {
				d := deployment(replicas, rolling(surge, unavailable))
				have := sets(d, fmt.Sprintf("older:0/0 old:%d/%d", replicas, replicas))
				maxTotal, minUp := replicas+maxSurge(d), replicas-maxUnavailable(d)
				t.Run(fmt.Sprintf("%d/%s/%s", replicas, surge, unavailable), func(t *testing.T) {
					for steps := 0; ; steps++ {
						if steps > 1000 {
							t.Fatal("no end")
						}
						s := decide(d, have, nil, now)
						d.Status = s.Status
						if s.Create != nil {
							s.Create.CreationTimestamp = metav1.Time{Time: now.Add(time.Hour)}
							have = append(have, s.Create)
						}
						for _, u := range s.Update {
							have[slices.Index(have, u.From)] = u.To
							u.To.Status.Replicas = max(u.To.Status.Replicas, *u.To.Spec.Replicas)
						}
						if total, up := statusReplicas(have), keptReplicas(have); total > maxTotal || up < minUp {
							t.Fatalf("%d pods (at most %d), %d available (at least %d)", total, maxTotal, up, minUp)
						}
						if s.Create == nil && len(s.Update) == 0 {
							if complete(d, &d.Status) {
								return
							}
							if !oneMore(have) && !shrunk(have) {
								t.Fatalf("stuck at %v", d.Status)
							}
						}
					}
				})
			}
		}
	}
}

// shrunk deletes the pods that no set wants and reports whether there were any.
func shrunk(have []*appsv1.ReplicaSet) (any bool) {
	for _, rs := range have {
		any = any || rs.Status.Replicas > *rs.Spec.Replicas
		rs.Status.Replicas = *rs.Spec.Replicas
		rs.Status.AvailableReplicas = keptReplicas([]*appsv1.ReplicaSet{rs})
	}
	return any
}

// oneMore makes one more pod available.
func oneMore(have []*appsv1.ReplicaSet) bool {
	for _, rs := range have {
		if rs.Status.AvailableReplicas < *rs.Spec.Replicas {
			rs.Status.AvailableReplicas++
			return true
		}
	}
	return false
}

func TestProgress(t *testing.T) {
	deadline := func(d *appsv1.Deployment) { d.Spec.ProgressDeadlineSeconds = new(int32(60)) }
	had := func(reason string, ago time.Duration) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) {
			d.Status.Conditions = []appsv1.DeploymentCondition{condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, reason, "", now.Add(-ago))}
			d.Status.Replicas, d.Status.UpdatedReplicas = 2, 2
		}
	}
	tests := map[string]struct {
		reason string
		d      *appsv1.Deployment
		have   string
		want   string
		again  time.Duration
	}{
		"NoDeadline":  {"without a deadline nothing is said", deployment(2, had(reasonUpdated, 0)), "new:2/1", "", 0},
		"Created":     {"the set was just made", deployment(2, deadline), "", `True NewReplicaSetCreated Created new replica set "d-%s"`, 61 * time.Second},
		"Found":       {"it was there before", deployment(2, deadline, had("x", 0), func(d *appsv1.Deployment) { d.Status.Conditions = nil }), "new:2/0", `True FoundNewReplicaSet Found new replica set "new"`, 61 * time.Second},
		"Progressing": {"one pod more is available", deployment(2, deadline, had(reasonFound, 50*time.Second)), "new:2/1", `True ReplicaSetUpdated ReplicaSet "new" is progressing.`, 61 * time.Second},
		"Standing":    {"nothing moves, there is time", deployment(2, deadline, had(reasonUpdated, 50*time.Second)), "new:2/0", "True ReplicaSetUpdated ", 11 * time.Second},
		"TimedOut":    {"nothing moved for a minute", deployment(2, deadline, had(reasonUpdated, 61*time.Second)), "new:2/0", `False ProgressDeadlineExceeded ReplicaSet "new" has timed out progressing.`, 0},
		"Done":        {"all are there", deployment(2, deadline, had(reasonUpdated, 50*time.Second)), "new:2/2", `True NewReplicaSetAvailable ReplicaSet "new" has successfully progressed.`, 0},
		"StaysDone":   {"a pod that fails later is no rollout", deployment(2, deadline, had(reasonAvailable, time.Hour)), "new:2/1", "True NewReplicaSetAvailable ", 0},
		"Paused":      {"the clock stands", deployment(2, deadline, paused, had(reasonUpdated, 50*time.Second)), "new:2/1", "Unknown DeploymentPaused Deployment is paused", 0},
		"StaysFailed": {"pausing does not undo a failure", deployment(2, deadline, paused, had(reasonTimedOut, 50*time.Second)), "new:2/1", "True ProgressDeadlineExceeded ", 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := decide(tc.d, sets(tc.d, tc.have), nil, now)
			got := ""
			if c := conditions.Find(s.Status.Conditions, appsv1.DeploymentProgressing); c != nil {
				got = fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
			}
			want := strings.ReplaceAll(tc.want, "%s", hashOf(&tc.d.Spec.Template, nil))
			if got != want || s.Recheck != tc.again {
				t.Errorf("%s\n got %s, again in %s\nwant %s, again in %s", tc.reason, got, s.Recheck, want, tc.again)
			}
		})
	}
}

func TestHashIsStable(t *testing.T) {
	tmpl := template("nginx:1.25")
	// This hash is part of the names of existing replica sets: it must never change.
	if got := hashOf(&tmpl, nil); got != "5c75df5897" {
		t.Errorf("hash %s", got)
	}
	one, two := int32(1), int32(2)
	if a, b := hashOf(&tmpl, &one), hashOf(&tmpl, &two); a == b || a == hashOf(&tmpl, nil) {
		t.Error("a collision count makes another hash")
	}
	hashed := tmpl.DeepCopy()
	hashed.Labels = maps.Clone(hashed.Labels)
	hashed.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = "x"
	if !sameTemplate(&tmpl, hashed) {
		t.Error("the hash's own label does not count")
	}
}

func TestNewSetCarriesWhatItMust(t *testing.T) {
	d := deployment(10, func(d *appsv1.Deployment) {
		d.Annotations = map[string]string{"note": "x", corev1.LastAppliedConfigAnnotation: "{}", revisionAnnotation: "4"}
		d.Spec.MinReadySeconds = 5
	})
	old := sets(d, "a:0/0 b:10/10")
	rs := newSet(d, old, 3)
	hash := hashOf(&d.Spec.Template, nil)
	want := map[string]string{"note": "x", revisionAnnotation: "3", desiredAnnotation: "10", maxAnnotation: "13"}
	if !maps.Equal(rs.Annotations, want) {
		t.Errorf("annotations %v, want %v", rs.Annotations, want)
	}
	if rs.Name != "d-"+hash || rs.Labels["pod-template-hash"] != hash || rs.Spec.Template.Labels["pod-template-hash"] != hash ||
		rs.Spec.Selector.MatchLabels["pod-template-hash"] != hash || rs.Spec.MinReadySeconds != 5 || !*rs.OwnerReferences[0].Controller {
		t.Errorf("%+v", rs)
	}
	if _, ok := d.Spec.Template.Labels["pod-template-hash"]; ok {
		t.Error("the deployment's own template was changed")
	}
}
