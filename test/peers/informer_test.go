package peers

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// seen is what an informer told about one object: its life as a list of
// revisions, and an empty string where it was deleted.
type seen struct {
	mu    sync.Mutex
	lives map[string][]string
}

func (s *seen) add(obj *corev1.ConfigMap, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lives[obj.Name] = append(s.lives[obj.Name], what)
}

// total is how many changes were told of all objects.
func (s *seen) total() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, life := range s.lives {
		n += len(life)
	}
	return n
}

func (s *seen) of(name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.lives[name]...)
}

// TestInformersSeeEveryChangeOnceWhileTheServerIsKilled writes objects whose
// data count up, kills the server again and again, and compares what an
// informer was told with what was acknowledged.
//
// An informer lists anew, and so is told only of the last state, where the
// server's memory after a restart (10,000 changes) does not reach back to what
// it saw last; client-go may wait up to 30 s before it watches again. So no
// writer runs far ahead of the informer, and the informer has a connection of
// its own: a write that fails on a shared one ends the watch in another way.
func TestInformersSeeEveryChangeOnceWhileTheServerIsKilled(t *testing.T) {
	s := startServer(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()

	told := &seen{lives: map[string][]string{}}
	factory := informers.NewSharedInformerFactoryWithOptions(s.ownClient(), 0, informers.WithNamespace("default"))
	informer := factory.Core().V1().ConfigMaps().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { told.add(o.(*corev1.ConfigMap), o.(*corev1.ConfigMap).Data["n"]) },
		UpdateFunc: func(_, o any) { told.add(o.(*corev1.ConfigMap), o.(*corev1.ConfigMap).Data["n"]) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			told.add(o.(*corev1.ConfigMap), "")
		},
	})
	check(t, err)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())

	const writers, kills, between, ahead = 4, 5, 400, 1000
	killed := make(chan struct{})
	counts := make([]int, writers)
	var all sync.WaitGroup
	for w := range writers {
		name := fmt.Sprintf("counter-%d", w)
		near := func(n int) error {
			if told := len(told.of(name)); n > told+ahead {
				return fmt.Errorf("the informer was told %d changes of %d", told, n)
			}
			return nil
		}
		all.Go(func() { counts[w] = countUp(ctx, t, s.client(), name, near, killed) })
	}
	for range kills {
		next := told.total() + between
		eventually(t, ctx, "changes between two crashes", func() error {
			if n := told.total(); n < next {
				return fmt.Errorf("the informer was told %d changes, want %d", n, next)
			}
			return nil
		})
		s.kill()
		s.start()
	}
	close(killed)
	all.Wait()

	for w, count := range counts {
		var want []string
		for n := range count {
			want = append(want, strconv.Itoa(n))
		}
		want = append(want, "")
		name := fmt.Sprintf("counter-%d", w)
		eventually(t, ctx, name, func() error {
			if got := told.of(name); len(got) < len(want) {
				return fmt.Errorf("the informer was told %d changes, want %d", len(got), len(want))
			}
			return nil
		})
		if diff := cmp.Diff(want, told.of(name)); diff != "" {
			t.Errorf("%s: what was acknowledged and what the informer was told (-want +got):\n%s", name, diff)
		}
		t.Logf("%s: %d changes, each told once", name, len(want))
	}
}

// countUp creates an object, updates it until killed is closed, waiting each
// time until the informer is near, and deletes it; it returns how many values it wrote. A write whose answer was lost is
// looked up before it is tried again, as a careful client does.
func countUp(ctx context.Context, t *testing.T, c kubernetes.Interface, name string, near func(n int) error, killed <-chan struct{}) int {
	maps := c.CoreV1().ConfigMaps("default")
	write := func(i int) error {
		value := strconv.Itoa(i)
		present, err := maps.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) && i == 0 {
			_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"n": value}}, metav1.CreateOptions{})
			return err
		}
		if err != nil || present.Data["n"] == value {
			return err
		}
		present.Data["n"] = value
		_, err = maps.Update(ctx, present, metav1.UpdateOptions{})
		return err
	}
	n := 0
	for ; ; n++ {
		select {
		case <-killed:
			eventually(t, ctx, "delete "+name, func() error {
				err := maps.Delete(ctx, name, metav1.DeleteOptions{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				return err
			})
			return n
		default:
			eventually(t, ctx, fmt.Sprintf("%s %d", name, n), func() error { return near(n) })
			eventually(t, ctx, fmt.Sprintf("%s %d", name, n), func() error { return write(n) })
		}
	}
}
