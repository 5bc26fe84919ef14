package informer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/informer"
)

var _ informer.Source[*corev1.Pod] = client.Resource[*corev1.Pod]{}

// watcher records the calls of a handler.
type watcher struct {
	inf   *informer.Informer[*corev1.Pod]
	lines []string
	state map[string]string // name → revision, derived from the calls only
	wrong []string
}

func watchAll(inf *informer.Informer[*corev1.Pod]) *watcher {
	w := &watcher{inf: inf, state: map[string]string{}}
	inf.OnChange(func(old, new *corev1.Pod) {
		name, before, after := "", "-", "-"
		if old != nil {
			name, before = old.Name, old.ResourceVersion
		}
		if new != nil {
			name, after = new.Name, new.ResourceVersion
		}
		w.lines = append(w.lines, fmt.Sprintf("%s %s>%s", name, before, after))
		have, ok := w.state[name]
		if !ok {
			have = "-"
		}
		if have != before {
			w.wrong = append(w.wrong, fmt.Sprintf("%s: told %s>%s when it had %s", name, before, after, have))
		}
		stored, _ := inf.Get("ns", name)
		if stored != new {
			w.wrong = append(w.wrong, "the store does not show "+name+" "+after)
		}
		if after == "-" {
			delete(w.state, name)
		} else {
			w.state[name] = after
		}
	})
	return w
}

func start(t *testing.T, inf *informer.Informer[*corev1.Pod]) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- inf.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

func TestStories(t *testing.T) {
	for _, test := range []struct {
		name, reason string
		story        func(*server)
		want         string
		lists        int
	}{
		{"list, then follow", "each change is told once", func(s *server) {
			s.put("a", "2")
			s.put("c", "1")
			s.delete("b")
		}, "a ->1, b ->2, a 1>3, c ->4, b 2>-", 0},
		{"a connection that breaks", "the watch goes on where it was", func(s *server) {
			s.put("a", "2")
			synctest.Wait()
			s.restart(false)
			s.put("a", "3")
			s.delete("a")
		}, "a ->1, b ->2, a 1>3, a 3>4, a 4>-", 0},
		{"a history that is gone", "what was missed is told as a difference: deletions too", func(s *server) {
			s.with(func() { s.down = true })
			s.put("a", "2")
			s.put("a", "3")
			s.delete("b")
			s.put("c", "1")
			s.restart(true)
			s.with(func() { s.down = false })
		}, "a ->1, b ->2, b 2>-, a 1>4, c ->6", 0},
		{"another object under the same name", "it is another one: the first must be seen to go", func(s *server) {
			s.with(func() { s.down = true })
			s.delete("a")
			s.put("a", "9")
			s.restart(true)
			s.with(func() { s.down = false })
		}, "a ->1, b ->2, a 1>-, a ->4", 0},
		{"a relist that finds nothing new", "nobody is told", func(s *server) { s.restart(true) }, "a ->1, b ->2", 0},
	} {
		for _, watchList := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, watch-list %v", test.name, watchList), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newServer()
					s.watchList = watchList
					s.put("a", "1")
					s.put("b", "1")
					inf := informer.New(s, informer.Options{})
					w := watchAll(inf)
					stop := start(t, inf)
					if err := inf.WaitSynced(t.Context()); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					test.story(s)
					time.Sleep(time.Minute)
					stop()
					if got := strings.Join(w.lines, ", "); got != test.want {
						t.Errorf("%s\n got %s\nwant %s", test.reason, got, test.want)
					}
					if len(w.wrong) > 0 {
						t.Error(w.wrong)
					}
					if watchList != (s.lists == 0) {
						t.Errorf("%d lists", s.lists)
					}
				})
			})
		}
	}
}

// TestHandlersGetEachEventOnce changes objects at random while the server restarts. Without
// compaction, each event must reach the handler, once, in order.
func TestHandlersGetEachEventOnce(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			compacts := seed%2 == 1
			s := newServer()
			s.watchList = seed%4 < 2
			inf := informer.New(s, informer.Options{Jitter: rnd.Float64})
			inf.Index("label", func(p *corev1.Pod) []string { return []string{p.Labels["l"]} })
			w := watchAll(inf)
			stop := start(t, inf)
			// The informer's goroutine uses the jitter source: the faults need their own.
			faults := rand.New(rand.NewPCG(seed, 2))
			for range 300 {
				switch n := faults.IntN(20); {
				case n == 0:
					s.restart(compacts && faults.IntN(2) == 0)
				case n == 1:
					s.with(func() { s.down = true })
					time.Sleep(time.Duration(faults.IntN(3)) * time.Second)
				case n < 7:
					s.delete(fmt.Sprint(faults.IntN(10)))
				default:
					s.put(fmt.Sprint(faults.IntN(10)), fmt.Sprint(faults.IntN(3)))
				}
				if faults.IntN(3) == 0 {
					s.with(func() { s.down = false })
				}
				time.Sleep(time.Duration(faults.IntN(100)) * time.Millisecond)
			}
			s.with(func() { s.down = false })
			time.Sleep(time.Minute)
			stop()
			if diff := cmp.Diff(s.state(), inf.List()); diff != "" {
				t.Errorf("seed %d: the copy differs (-server +copy):\n%s", seed, diff)
			}
			byLabel := 0
			for i := range 3 {
				byLabel += len(inf.By("label", fmt.Sprint(i)))
			}
			if byLabel != len(inf.List()) || len(inf.In("ns")) != byLabel {
				t.Errorf("seed %d: indexes find %d of %d", seed, byLabel, len(inf.List()))
			}
			if len(w.wrong) > 0 {
				t.Errorf("seed %d: %v", seed, w.wrong)
			}
			if !compacts && len(w.lines) < len(s.log) {
				t.Errorf("seed %d: told %d times of %d events", seed, len(w.lines), len(s.log))
			}
			if inf.Revision() != fmt.Sprint(len(s.log)) {
				t.Errorf("seed %d: at %s of %d", seed, inf.Revision(), len(s.log))
			}
		})
	}
}

func TestADownServerIsAskedEverMoreSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.down = true
		asked := 0
		src := counting{s, &asked}
		inf := informer.New[*corev1.Pod](src, informer.Options{})
		stop := start(t, inf)
		time.Sleep(10 * time.Minute)
		stop()
		if inf.Synced() || asked < 50 || asked > 140 {
			t.Errorf("asked %d times in 10 minutes, synced %v", asked, inf.Synced())
		}
	})
}

type counting struct {
	*server
	n *int
}

func (c counting) Watch(ctx context.Context, o metav1.ListOptions) (*client.Watch[*corev1.Pod], error) {
	*c.n++
	return c.server.Watch(ctx, o)
}

func BenchmarkEvent(b *testing.B) {
	for _, size := range []int{100, 10000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			pods := make([]*corev1.Pod, size)
			for i := range pods {
				pods[i] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint(i), UID: "u"}}
			}
			n := 0
			src := fixed{pods, func() (event, error) {
				if n == b.N {
					return event{}, context.Canceled
				}
				p := pods[n%size].DeepCopy()
				n++
				p.ResourceVersion = fmt.Sprint(n)
				return event{Type: "MODIFIED", Object: p}, nil
			}}
			inf := informer.New[*corev1.Pod](src, informer.Options{})
			inf.Index("node", func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} })
			ctx, cancel := context.WithCancel(b.Context())
			inf.OnChange(func(_, new *corev1.Pod) {
				if new.ResourceVersion == fmt.Sprint(b.N) {
					cancel()
				}
			})
			b.ReportAllocs()
			b.ResetTimer()
			_ = inf.Run(ctx)
		})
	}
}

func BenchmarkList10000(b *testing.B) {
	s := newServer()
	for i := range 10000 {
		s.append("ADDED", fmt.Sprintf("p%05d", i), "", "u")
	}
	inf := informer.New(s, informer.Options{})
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	done := make(chan error)
	go func() { done <- inf.Run(ctx) }()
	_ = inf.WaitSynced(ctx)
	b.ReportAllocs()
	for b.Loop() {
		if len(inf.List()) != 10000 {
			b.Fatal("short")
		}
	}
	cancel()
	<-done
}

type fixed struct {
	pods []*corev1.Pod
	next func() (event, error)
}

func (f fixed) List(context.Context, metav1.ListOptions) (*client.List[*corev1.Pod], error) {
	list := &client.List[*corev1.Pod]{Items: f.pods}
	list.ResourceVersion = "0"
	return list, nil
}

func (f fixed) Watch(_ context.Context, o metav1.ListOptions) (*client.Watch[*corev1.Pod], error) {
	if o.SendInitialEvents != nil {
		return nil, apierrors.NewBadRequest("no watch-list")
	}
	return client.NewWatch(f.next, func() {}), nil
}
