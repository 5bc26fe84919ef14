package deployment

import (
	"cmp"
	"maps"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// Annotations that record a rollout, on replica sets (all) and on the deployment (revision
// only).
const (
	revisionAnnotation = "deployment.kubernetes.io/revision"
	historyAnnotation  = "deployment.kubernetes.io/revision-history" // earlier revisions of a set
	desiredAnnotation  = "deployment.kubernetes.io/desired-replicas"
	maxAnnotation      = "deployment.kubernetes.io/max-replicas"

	rollbackAnnotation = "deprecated.deployment.rollback.to"

	maxHistory = 2000 // characters of historyAnnotation
)

// notCopied are the annotations that are not copied from a deployment to its replica sets.
var notCopied = map[string]bool{
	corev1.LastAppliedConfigAnnotation: true,
	revisionAnnotation:                 true,
	historyAnnotation:                  true,
	desiredAnnotation:                  true,
	maxAnnotation:                      true,
	rollbackAnnotation:                 true,
}

func revisionOf(rs *appsv1.ReplicaSet) int64 {
	n, err := strconv.ParseInt(rs.Annotations[revisionAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func lastRevision(sets []*appsv1.ReplicaSet) int64 {
	last := int64(0)
	for _, rs := range sets {
		last = max(last, revisionOf(rs))
	}
	return last
}

// currentAnnotations returns the annotations of the replica set of the current template: its
// own, the deployment's, and a revision higher than all others. sized adds the size
// annotations, for a new set.
func currentAnnotations(d *appsv1.Deployment, have map[string]string, revision int64, sized bool) map[string]string {
	want := maps.Clone(have)
	if want == nil {
		want = map[string]string{}
	}
	for k, v := range d.Annotations {
		if !notCopied[k] {
			want[k] = v
		}
	}
	old, err := strconv.ParseInt(have[revisionAnnotation], 10, 64)
	if err != nil {
		old = 0
	}
	if old < revision {
		want[revisionAnnotation] = strconv.FormatInt(revision, 10)
		if old > 0 { // rolled back to an old template
			want[historyAnnotation] = appendHistory(have[historyAnnotation], old)
		}
	}
	if sized {
		maps.Copy(want, sizes(d))
	}
	return want
}

func appendHistory(history string, revision int64) string {
	if history == "" {
		return strconv.FormatInt(revision, 10)
	}
	history += "," + strconv.FormatInt(revision, 10)
	for len(history) > maxHistory {
		_, rest, more := strings.Cut(history, ",")
		if !more {
			break
		}
		history = rest
	}
	return history
}

// sizes returns the annotations with the deployment's size for which a replica set was
// scaled. Proportional scaling reads them later.
func sizes(d *appsv1.Deployment) map[string]string {
	return map[string]string{
		desiredAnnotation: strconv.Itoa(int(*d.Spec.Replicas)),
		maxAnnotation:     strconv.Itoa(int(*d.Spec.Replicas + maxSurge(d))),
	}
}

func sized(d *appsv1.Deployment, rs *appsv1.ReplicaSet) bool {
	for k, v := range sizes(d) {
		if rs.Annotations[k] != v {
			return false
		}
	}
	return true
}

func compareNames(a, b *appsv1.ReplicaSet) int { return cmp.Compare(a.Name, b.Name) }
