package volumeexpand

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/volumebinding"
)

func storage(size string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

// describe shows a step in a line.
func describe(s step) string {
	var out []string
	if st := s.Status; st != nil {
		var conditions []string
		for _, c := range st.Conditions {
			conditions = append(conditions, string(c.Type))
		}
		has, allocated := st.Capacity[corev1.ResourceStorage], st.AllocatedResources[corev1.ResourceStorage]
		out = append(out, fmt.Sprintf("has %s, allocated %s %s %v", has.String(), allocated.String(), st.AllocatedResourceStatuses[corev1.ResourceStorage], conditions))
	}
	if s.Grow {
		out = append(out, "grow")
	}
	if s.Reason != "" {
		out = append(out, s.EventType+" "+s.Reason+": "+s.Message)
	}
	return strings.Join(out, "; ")
}

func TestDecide(t *testing.T) {
	const inProgress, infeasible = corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeInfeasible
	type world struct {
		claim *corev1.PersistentVolumeClaim
		v     *corev1.PersistentVolume
		node  *corev1.Node
	}
	in := func(state corev1.ClaimResourceStatus, size string, conditions ...corev1.PersistentVolumeClaimConditionType) func(*world) {
		return func(w *world) {
			w.claim.Status.AllocatedResources = storage(size)
			w.claim.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: state}
			for _, c := range conditions {
				w.claim.Status.Conditions = append(w.claim.Status.Conditions, condition(c, ""))
			}
		}
	}
	and := func(fs ...func(*world)) func(*world) {
		return func(w *world) {
			for _, f := range fs {
				f(w)
			}
		}
	}
	request := func(size string) func(*world) {
		return func(w *world) { w.claim.Spec.Resources.Requests = storage(size) }
	}
	for name, tc := range map[string]struct {
		reason string
		change func(*world)
		want   string
	}{
		"Enough":   {reason: "a claim may get more than it requests", change: request("1Gi"), want: ""},
		"Unbound":  {reason: "only bound claims are expanded", change: func(w *world) { w.claim.Status.Phase = corev1.ClaimPending }, want: ""},
		"Begin":    {reason: "the status says so before anything changes", change: request("5Gi"), want: "has 2Gi, allocated 5Gi ControllerResizeInProgress [Resizing]"},
		"Grow":     {reason: "then the volume grows", change: and(request("5Gi"), in(inProgress, "5Gi", corev1.PersistentVolumeClaimResizing)), want: "grow"},
		"More":     {reason: "the request has grown meanwhile", change: and(request("6Gi"), in(inProgress, "5Gi", corev1.PersistentVolumeClaimResizing)), want: "has 2Gi, allocated 6Gi ControllerResizeInProgress [Resizing]"},
		"Finish":   {reason: "nothing is to be done on the node", change: and(request("5Gi"), in(inProgress, "5Gi", corev1.PersistentVolumeClaimResizing), func(w *world) { w.v.Spec.Capacity = storage("5Gi") }), want: "has 5Gi, allocated 5Gi  []; Normal VolumeResizeSuccessful: Resize volume succeeded"},
		"TooLarge": {reason: "the disk of the node does not grow", change: request("11Gi"), want: `has 2Gi, allocated 11Gi ControllerResizeInfeasible [Resizing ControllerResizeError]; Warning VolumeResizeFailed: the claim requests 11Gi, the disk of node "a" has 10Gi`},
		"Reduced":  {reason: "a request that was too large is taken back", change: in(infeasible, "11Gi", corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimControllerResizeError), want: "has 2Gi, allocated 2Gi  []"},
		"Node":     {reason: "the size is only a number if the node is not known", change: and(request("11Gi"), func(w *world) { w.node = nil }), want: "has 2Gi, allocated 11Gi ControllerResizeInProgress [Resizing]"},
		"External": {reason: "a driver's resizer expands its volumes", change: and(request("5Gi"), func(w *world) { w.v.Annotations = nil }), want: "Normal ExternalExpanding: Ignoring the PVC: didn't find a plugin capable of expanding the volume; waiting for an external controller to process this PVC."},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{
				claim: &corev1.PersistentVolumeClaim{
					Spec:   corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: storage("2Gi")}},
					Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: storage("2Gi")},
				},
				v: &corev1.PersistentVolume{
					ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{volumebinding.ProvisionedBy: volumebinding.LocalPath}},
					Spec: corev1.PersistentVolumeSpec{Capacity: storage("2Gi"), PersistentVolumeSource: corev1.PersistentVolumeSource{
						Local: &corev1.LocalVolumeSource{},
					}},
				},
				node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.NodeStatus{
					Capacity: corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("10Gi")},
				}},
			}
			tc.change(w)
			if diff := cmp.Diff(tc.want, describe(decide(w.claim, w.v, w.node, time.Unix(0, 0)))); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// A status that is recorded is not written again, and keeps its times.
func TestRecordedStatesAreStable(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: storage("5Gi")}}}
	first := recorded(claim, time.Unix(100, 0), corev1.PersistentVolumeClaimControllerResizeInProgress, condition(corev1.PersistentVolumeClaimResizing, ""))
	claim.Status = *first
	second := recorded(claim, time.Unix(200, 0), corev1.PersistentVolumeClaimControllerResizeInProgress, condition(corev1.PersistentVolumeClaimResizing, ""))
	if !same(first, second) || !slices.Equal(first.Conditions, second.Conditions) {
		t.Errorf("%+v, then %+v", first, second)
	}
}
