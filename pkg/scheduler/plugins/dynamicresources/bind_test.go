package dynamicresources_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/scheduler/plugins/dynamicresources"
	"podium/pkg/scheduler/snapshot"
)

// refusing refuses the first writes as conflicts although the claim has not changed, as an admission
// webhook may.
type refusing struct {
	dynamicresources.Writer
	left int
}

func (r *refusing) Update(_ context.Context, c *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error) {
	if r.left > 0 {
		r.left--
		return nil, apierrors.NewConflict(resourcev1.Resource("resourceclaims"), c.Name, nil)
	}
	c = c.DeepCopy()
	c.ResourceVersion += "0"
	return c, nil
}

func (r *refusing) UpdateStatus(ctx context.Context, c *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error) {
	return r.Update(ctx, c)
}

func TestConflictsWithoutAChangeAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		p := dynamicresources.New(&refusing{left: 3}, func(string) *corev1.Node { return node })
		p.OnClass(nil, &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "card"}})
		p.OnSlice(nil, &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{
			Driver: "cards.example.com", NodeName: &node.Name, Pool: resourcev1.ResourcePool{Name: "n", Generation: 1, ResourceSliceCount: 1},
			Devices: []resourcev1.Device{{Name: "card-0"}},
		}})
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "c", ResourceVersion: "1"}}
		claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: "card", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
		}}}
		p.OnClaim(nil, claim)
		pod := snapshot.NewPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "p"}, Spec: corev1.PodSpec{
			ResourceClaims: []corev1.PodResourceClaim{{Name: "card", ResourceClaimName: &claim.Name}},
		}})
		if err := p.Reserve(pod, "n"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := p.PreBind(ctx, pod, "n"); err != nil {
			t.Error(err)
		}
	})
}
