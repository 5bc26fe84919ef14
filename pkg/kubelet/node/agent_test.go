package node

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/clienttest"
	"podium/pkg/client/events"
	"podium/pkg/kubelet/cri/crifake"
)

// A response from before the node was deleted must not make the agent believe that
// the node is registered.
func TestANodeDeletedUnderAWriteIsRegisteredAgain(t *testing.T) {
	a := New(Config{Name: "n", Client: clienttest.New().Client(t)})
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	a.Observe(n)
	_, gone := a.present()
	a.take(n, gone)
	if a.Node() == nil {
		t.Fatal("an answer in time is not taken")
	}
	a.Observe(nil)
	a.take(n, gone)
	if a.Node() != nil {
		t.Error("the deleted node is taken for present")
	}
	_, gone = a.present()
	if a.take(n, gone); a.Node() == nil {
		t.Error("the node that is registered again is not taken")
	}
}

// A node whose runtime stops answering is not ready soon, keeps its Lease, and is ready
// again when the runtime answers.
func TestNodeOfAHungRuntimeIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := clienttest.New()
		c := api.Client(t)
		var hangs atomic.Bool
		r := crifake.New(crifake.Config{Images: []string{"app:1"}, Latency: func(string) time.Duration {
			if hangs.Load() {
				return time.Hour
			}
			return 0
		}})
		log := slog.New(slog.DiscardHandler)
		a := New(Config{
			Name: "n", Client: c, Log: log, Runtime: r, Images: r.ImageService(), Register: true, Events: events.New(c, "kubelet", "n", log),
			Capacity: func() corev1.ResourceList { return corev1.ResourceList{} },
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		defer func() {
			cancel()
			<-done
		}()
		state := func() string {
			n, err := client.For[*corev1.Node](c).Get(t.Context(), "n")
			if err != nil {
				t.Fatal(err)
			}
			a.Observe(n)
			for _, cond := range n.Status.Conditions {
				if cond.Type == corev1.NodeReady {
					return fmt.Sprintf("%s %s %d", cond.Status, cond.Message, len(n.Status.Images))
				}
			}
			return ""
		}
		is := func(want string) {
			t.Helper()
			if got := state(); got != want {
				t.Errorf("the node is %q, want %q", got, want)
			}
		}
		time.Sleep(time.Minute)
		is("True kubelet is posting ready status 1")
		hangs.Store(true)
		time.Sleep(50 * time.Second)
		is("False container runtime is down 1")
		lease, err := client.For[*coordinationv1.Lease](c).In("kube-node-lease").Get(t.Context(), "n")
		if err != nil || time.Since(lease.Spec.RenewTime.Time) > 15*time.Second {
			t.Errorf("the lease: %+v, %v", lease, err)
		}
		hangs.Store(false)
		time.Sleep(time.Minute)
		is("True kubelet is posting ready status 1")
	})
}
