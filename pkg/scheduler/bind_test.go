package scheduler_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/scheduler"
	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

// delayedClaim creates a claim of a class with binding mode WaitForFirstConsumer, and returns a pod
// that uses it.
func (w *world) delayedClaim(p *corev1.Pod, claim string) *corev1.Pod {
	w.t.Helper()
	c, class, mode := w.api.Client(w.t), "made", storagev1.VolumeBindingWaitForFirstConsumer
	if _, err := client.For[*storagev1.StorageClass](c).Create(w.t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: "disks.example.com", VolumeBindingMode: &mode,
	}); err != nil {
		w.t.Fatal(err)
	}
	if _, err := client.For[*corev1.PersistentVolumeClaim](c).In("ns").Create(w.t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: claim}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class},
	}); err != nil {
		w.t.Fatal(err)
	}
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}}
	return p
}

// provision binds a claim to a volume, as a provisioner and the controller would.
func (w *world) provision(claim string) {
	w.t.Helper()
	c := w.api.Client(w.t)
	if _, err := client.For[*corev1.PersistentVolume](c).Create(w.t.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}}); err != nil {
		w.t.Fatal(err)
	}
	claims := client.For[*corev1.PersistentVolumeClaim](c).In("ns")
	now, err := claims.Get(w.t.Context(), claim)
	if err != nil {
		w.t.Fatal(err)
	}
	if now.Annotations["volume.kubernetes.io/selected-node"] == "" {
		w.t.Error("no node is selected for the claim")
	}
	now.Spec.VolumeName, now.Status.Phase = "v", corev1.ClaimBound
	now.Annotations["pv.kubernetes.io/bind-completed"] = "yes"
	if _, err = claims.Update(w.t.Context(), now); err != nil {
		w.t.Fatal(err)
	}
}

// TestDeletedPodLosesItsNomination deletes a pod that has preempted another one and waits for its
// volume: its node is free for a pod of the same priority.
func TestDeletedPodLosesItsNomination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.node(node("a", "1", "4Gi"))
		stop := w.start(scheduler.Config{})
		w.create(important("low", "1", 0))
		settle()
		vip := w.delayedClaim(important("vip", "1", 10), "data")
		settle()
		w.create(vip)
		settle()
		if got := w.where(); got != "vip:" {
			t.Fatal(got)
		}
		if err := w.pods.Delete(t.Context(), "vip", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.provision("data")
		settle()
		w.create(important("next", "1", 10))
		settle()
		if got := w.where(); got != "next:a" {
			t.Error(got)
		}
		stop()
	})
}

// TestAnAbsentClaimDoesNotEndScheduling lets the scheduler not find the pod's claim once: it tries
// the pod again.
func TestAnAbsentClaimDoesNotEndScheduling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var asked atomic.Bool
		w.api.Before = func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/persistentvolumeclaims/") && !asked.Swap(true) {
				return &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{}, Body: http.NoBody}, nil
			}
			return nil, nil
		}
		w.node(node("a", "1", "4Gi"))
		stop := w.start(scheduler.Config{})
		w.create(w.delayedClaim(pod("p", "1"), "data"))
		settle()
		w.provision("data")
		settle()
		if got := w.where(); got != "p:a" {
			t.Error(got)
		}
		stop()
	})
}

// TestWaitingPodIsExpectedOnce has a node with room for two pods. One of them waits for its volume: what
// its status says about the node does not take more room. When the wait is in vain, its status no
// longer names a node.
func TestWaitingPodIsExpectedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.node(node("a", "2", "4Gi"))
		stop := w.start(scheduler.Config{})
		w.create(w.delayedClaim(pod("p", "1"), "data"))
		settle()
		if got := w.get("p").Status.NominatedNodeName; got != "a" {
			t.Errorf("nominated %q", got)
		}
		w.create(pod("q", "1"))
		settle()
		if got := w.where(); got != "p: q:a" {
			t.Error(got)
		}
		if err := client.For[*corev1.PersistentVolumeClaim](w.api.Client(t)).In("ns").Delete(t.Context(), "data", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond) // less than the back-off
		if got := w.get("p").Status.NominatedNodeName; got != "" {
			t.Errorf("nominated %q without its claim", got)
		}
		stop()
	})
}

// patient is a plugin that delays a binding for as long as it may. With later it does so in PreBind.
type patient struct {
	later bool
	ended time.Duration // how long it has waited; 0 while it does
}

func (*patient) Name() string { return "Patient" }

func (p *patient) Waits(*snapshot.Pod) bool { return !p.later }

func (p *patient) wait(ctx context.Context) error {
	began := time.Now()
	<-ctx.Done()
	p.ended = time.Since(began)
	return ctx.Err()
}

func (p *patient) Permit(ctx context.Context, _ *snapshot.Pod, _ string) error {
	if p.later {
		return nil
	}
	return p.wait(ctx)
}

func (p *patient) PreBind(context.Context, *snapshot.Pod, string) error {
	return &framework.LaterError{Await: p.wait}
}

// TestDeletedPodStopsWaiting deletes a pod whose binding a plugin delays.
func TestDeletedPodStopsWaiting(t *testing.T) {
	for name, plugin := range map[string]*patient{"Permit": {}, "PreBind": {later: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.node(node("a", "1", "4Gi"))
				stop := w.start(scheduler.Config{Plugins: []framework.Weighted{{Plugin: plugin}}})
				w.create(pod("p", "1"))
				settle()
				if err := w.pods.Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				if plugin.ended != 30*time.Second {
					t.Errorf("the wait ended after %v", plugin.ended)
				}
				stop()
			})
		})
	}
}
