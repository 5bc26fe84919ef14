package why

import (
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"podium/pkg/cli/output"
)

// maxFindings bounds what a screen shows.
const maxFindings = 5

// Write prints a report: the most likely cause in the first line. It escapes control
// characters.
func (r Report) Write(w io.Writer) error {
	var b strings.Builder
	if len(r.Findings) == 0 {
		fmt.Fprintf(&b, "%s: found nothing wrong\n", r.Object)
	} else {
		fmt.Fprintf(&b, "%s: %s\n", r.Object, r.about(r.Findings[0]))
		details(&b, r.Findings[0])
	}
	fmt.Fprintf(&b, "\nState: %s\n", r.State)
	if len(r.Chain) > 1 {
		fmt.Fprintf(&b, "Owners: %s\n", strings.Join(r.Chain, " → "))
	}
	if len(r.Findings) > 1 {
		b.WriteString("\nAlso:\n")
		for _, f := range r.Findings[1:min(len(r.Findings), maxFindings)] {
			fmt.Fprintf(&b, "- %s\n", r.about(f))
			details(&b, f)
		}
	}
	if more := len(r.Findings) - maxFindings; more > 0 {
		fmt.Fprintf(&b, "and %d more (-o yaml prints all)\n", more)
	}
	for i, what := range r.Unread {
		if i == 0 {
			b.WriteString("\nNot read:\n")
		}
		fmt.Fprintf(&b, "- %s\n", what)
	}
	_, err := io.WriteString(w, output.Plain(b.String()))
	return err
}

// about returns a finding's cause, with its object if that is not the subject.
func (r Report) about(f Finding) string {
	more := ""
	if f.More > 0 {
		more = fmt.Sprintf(" (and %d more)", f.More)
	}
	if f.Object == r.Object {
		return f.Cause + more
	}
	return f.Object + more + ": " + f.Cause
}

func details(b *strings.Builder, f Finding) {
	for _, s := range f.Shown {
		fmt.Fprintf(b, "    shown by: %s\n", s)
	}
	if f.Fix != "" {
		fmt.Fprintf(b, "    fix:      %s\n", f.Fix)
	}
}

// stateOf returns the state of an object in a few words.
func stateOf(o *Object) string {
	var out []string
	if o.GetDeletionTimestamp() != nil {
		out = append(out, "Terminating")
	}
	if phase, _, _ := unstructured.NestedString(o.Object, "status", "phase"); phase != "" && phase != "Terminating" {
		out = append(out, phase)
	}
	if o.GetKind() == "Pod" {
		pod := as[corev1.Pod](o)
		ready, all := 0, len(pod.Spec.Containers)
		for _, c := range pod.Status.ContainerStatuses {
			if c.Ready {
				ready++
			}
		}
		out = append(out, fmt.Sprintf("%d of %d containers ready", ready, all))
		if pod.Spec.NodeName != "" {
			out = append(out, "on node "+pod.Spec.NodeName)
		}
	} else if o.GetKind() == "ResourceClaim" {
		out = append(out, claimState(as[resourcev1.ResourceClaim](o)))
	} else {
		for _, c := range conditionsOf(o) {
			out = append(out, c.kind+"="+c.status)
		}
	}
	if want, ok, _ := unstructured.NestedInt64(o.Object, "spec", "replicas"); ok {
		ready, _, _ := unstructured.NestedInt64(o.Object, "status", "readyReplicas")
		out = append(out, fmt.Sprintf("%d of %d replicas ready", ready, want))
	}
	return orNone(strings.Join(out, ", "))
}

func claimState(c *resourcev1.ResourceClaim) string {
	switch {
	case c.Status.Allocation == nil:
		return "pending"
	case len(c.Status.ReservedFor) == 0:
		return "allocated"
	}
	return "allocated, reserved"
}
