package namespace

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/client/discovery"
	"podium/pkg/conditions"
)

// remains is what is left in a namespace after a pass.
type remains struct {
	Objects    map[schema.GroupVersionResource]int
	Finalizers map[string]int // number of objects by finalizer name
	Discovery  error          // undiscovered kinds may have objects, too
	Errors     []error        // of deletes and lists
}

func (r remains) none() bool { return len(r.Objects) == 0 && len(r.Errors) == 0 && r.Discovery == nil }

// withRemains updates the conditions in have for what is left, and returns them.
func withRemains(have []corev1.NamespaceCondition, r remains, now time.Time) []corev1.NamespaceCondition {
	set := func(t corev1.NamespaceConditionType, problem bool, badReason, bad, goodReason, good string) {
		c := corev1.NamespaceCondition{Type: t, Status: corev1.ConditionFalse, Reason: goodReason, Message: good, LastTransitionTime: metav1.Time{Time: now}}
		if problem {
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, badReason, bad
		}
		have = conditions.Set(have, c)
	}
	set(corev1.NamespaceDeletionDiscoveryFailure, r.Discovery != nil, "DiscoveryFailed", discoveryMessage(r.Discovery),
		"ResourcesDiscovered", "All resources successfully discovered")
	set(corev1.NamespaceDeletionGVParsingFailure, false, "", "", "ParsedGroupVersions", "All legacy kube types successfully parsed")
	set(corev1.NamespaceDeletionContentFailure, len(r.Errors) > 0,
		"ContentDeletionFailed", "Failed to delete all resource types, "+count(len(r.Errors), "remaining")+": "+texts(r.Errors),
		"ContentDeleted", "All content successfully deleted, may be waiting on finalization")
	set(corev1.NamespaceContentRemaining, len(r.Objects) > 0,
		"SomeResourcesRemain", "Some resources are remaining: "+listObjects(r.Objects),
		"ContentRemoved", "All content successfully removed")
	set(corev1.NamespaceFinalizersRemaining, len(r.Finalizers) > 0,
		"SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: "+listFinalizers(r.Finalizers),
		"ContentHasNoFinalizers", "All content-preserving finalizers finished")
	return have
}

// discoveryMessage returns upstream's text.
func discoveryMessage(err error) string {
	if failed := (*discovery.FailedError)(nil); errors.As(err, &failed) {
		return fmt.Sprintf("Discovery failed for some groups, %d failing: %v", len(failed.Groups), err)
	}
	return fmt.Sprint(err)
}

func count(n int, what string) string { return fmt.Sprintf("%d %s", n, what) }

func texts(errs []error) string {
	var out []string
	for _, err := range errs {
		out = append(out, err.Error())
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), ", ")
}

func listObjects(left map[schema.GroupVersionResource]int) string {
	var out []string
	for gvr, n := range left {
		out = append(out, fmt.Sprintf("%s.%s has %d resource instances", gvr.Resource, gvr.Group, n))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func listFinalizers(left map[string]int) string {
	var out []string
	for _, f := range slices.Sorted(maps.Keys(left)) {
		out = append(out, fmt.Sprintf("%s in %d resource instances", f, left[f]))
	}
	return strings.Join(out, ", ")
}
