package resourceclaim

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDecide(t *testing.T) {
	a := resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: "a", UID: "1"}
	b := resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: "b", UID: "2"}
	type consumers = []resourcev1.ResourceClaimConsumerReference
	for name, tc := range map[string]struct {
		reason                       string
		have, valid                  consumers
		allocated, protected, delete bool
		want                         string
	}{
		"InUse":       {reason: "nothing changes", have: consumers{a, b}, valid: consumers{a, b}, allocated: true, protected: true, want: ""},
		"OneLeft":     {reason: "the other one still uses the device", have: consumers{a, b}, valid: consumers{b}, allocated: true, protected: true, want: "status with 1, allocated"},
		"LastGone":    {reason: "the device is free", have: consumers{a}, allocated: true, protected: true, want: "status with 0, release"},
		"Foreign":     {reason: "another component has allocated the claim, and frees it", have: consumers{a}, allocated: true, want: "status with 0, allocated"},
		"Unused":      {reason: "the scheduler may be about to allocate it", protected: true, want: ""},
		"Preallocate": {reason: "an allocation that no pod has used stays", allocated: true, protected: true, want: ""},
		"Deleted":     {reason: "no pod needs the device", allocated: true, protected: true, delete: true, want: "status with 0, release"},
		"DeletedFree": {reason: "the finalizer alone remains", protected: true, delete: true, want: "release"},
		"DeletedUsed": {reason: "the pod keeps the device", have: consumers{a}, valid: consumers{a}, allocated: true, protected: true, delete: true, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &resourcev1.ResourceClaim{Status: resourcev1.ResourceClaimStatus{ReservedFor: tc.have}}
			if tc.allocated {
				claim.Status.Allocation = &resourcev1.AllocationResult{}
			}
			if tc.protected {
				claim.Finalizers = []string{resourcev1.Finalizer}
			}
			if tc.delete {
				claim.DeletionTimestamp = &metav1.Time{}
			}
			var got []string
			p := decide(claim, tc.valid)
			if p.Status != nil {
				got = append(got, "status with "+string(rune('0'+len(p.Status.Status.ReservedFor))))
				if p.Status.Status.Allocation != nil {
					got = append(got, "allocated")
				}
			}
			if p.Release {
				got = append(got, "release")
			}
			if text := strings.Join(got, ", "); text != tc.want {
				t.Errorf("%s: %q, want %q", tc.reason, text, tc.want)
			}
		})
	}
}

func TestGeneratedNamesAreNeverTooLong(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("p", 253), UID: "1"}}
	c := &corev1.PodResourceClaim{Name: strings.Repeat("c", 63)}
	claim := newClaim(pod, c, &resourcev1.ResourceClaimTemplate{})
	if len(claim.GenerateName) != maxGenerated || !strings.HasSuffix(claim.GenerateName, "-"+c.Name+"-") {
		t.Errorf("%d bytes: %s", len(claim.GenerateName), claim.GenerateName)
	}
}
