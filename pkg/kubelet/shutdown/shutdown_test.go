package shutdown

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// logind is a working logind in memory. It delays shutdowns for at most max.
type logind struct {
	mu       sync.Mutex
	max      time.Duration
	most     time.Duration // RaiseMaxDelay cannot exceed it
	locks    int           // that are held
	news     chan bool
	connects int
	broken   bool // Connect fails
}

func (l *logind) connect() (Bus, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.connects++
	if l.broken {
		return nil, errors.New("no D-Bus")
	}
	return l, nil
}

func (l *logind) MaxDelay() (time.Duration, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.max, nil
}

func (l *logind) RaiseMaxDelay(d time.Duration) error {
	time.AfterFunc(time.Second, func() { // logind reads its configuration later
		l.mu.Lock()
		defer l.mu.Unlock()
		l.max = min(d, l.most)
	})
	return nil
}

func (l *logind) Inhibit() (Lock, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.locks++
	return &lock{l: l}, nil
}

func (l *logind) held() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.locks
}

func (l *logind) Next(ctx context.Context) (bool, error) {
	select {
	case begins, ok := <-l.news:
		if !ok {
			return false, errors.New("closed")
		}
		return begins, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func (l *logind) Close() error { return nil }

type lock struct {
	l    *logind
	once sync.Once
}

func (k *lock) Close() error {
	k.once.Do(func() {
		k.l.mu.Lock()
		defer k.l.mu.Unlock()
		k.l.locks--
	})
	return nil
}

// node are pods that take a time to end, and the order of their ends.
type node struct {
	takes map[string]time.Duration
	pods  []*corev1.Pod
	began time.Time

	mu    sync.Mutex
	ended []string
}

func (n *node) Pods() []*corev1.Pod { return n.pods }

func (n *node) Terminate(ctx context.Context, pod *corev1.Pod, grace time.Duration) {
	what := "ended"
	select {
	case <-time.After(min(n.takes[pod.Name], grace)):
	case <-ctx.Done():
		what = "left"
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended = append(n.ended, fmt.Sprintf("%s %s after %v", pod.Name, what, time.Since(n.began)))
}

func podOf(name string, priority int32) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Priority: &priority}}
}

// inBubble runs a Manager beside a logind.
func inBubble(t *testing.T, l *logind, n *node, periods Periods, f func(m *Manager, changes *int)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l.news, n.began = make(chan bool), time.Now()
		m := New(Config{Periods: periods, Connect: l.connect, Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		changes := 0
		done.Go(func() { _ = m.Run(ctx, n, func() { changes++ }) })
		time.Sleep(5 * time.Second)
		synctest.Wait()
		n.began = time.Now()
		f(m, &changes)
		cancel()
		done.Wait()
		if held := l.held(); held != 0 {
			t.Errorf("%d locks are left", held)
		}
	})
}

func TestPodsEndByPriority(t *testing.T) {
	l := &logind{max: 5 * time.Second, most: time.Hour}
	n := &node{
		takes: map[string]time.Duration{"slow": time.Hour, "quick": 2 * time.Second, "critical": time.Second},
		pods:  []*corev1.Pod{podOf("critical", systemCritical), podOf("slow", 0), podOf("quick", -5)},
	}
	inBubble(t, l, n, Split(30*time.Second, 10*time.Second), func(m *Manager, changes *int) {
		if l.max != 32*time.Second || l.held() != 1 || m.Active() {
			t.Fatalf("logind delays for %v, %d locks, active %t", l.max, l.held(), m.Active())
		}
		l.news <- true
		time.Sleep(19 * time.Second)
		synctest.Wait()
		if !m.Active() || l.held() != 1 || *changes != 1 {
			t.Errorf("the shutdown is not held up: %d locks, %d changes", l.held(), *changes)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		want := []string{"quick ended after 2s", "slow ended after 20s", "critical ended after 21s"}
		if diff := cmp.Diff(want, n.ended); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if l.held() != 0 || !m.Active() {
			t.Errorf("all pods have ended, and %d locks are held", l.held())
		}
		if r := m.load(); r.End.Sub(r.Start) != 21*time.Second {
			t.Errorf("record %+v", r)
		}
		l.news <- false
		synctest.Wait()
		if m.Active() || l.held() != 1 || *changes != 2 {
			t.Errorf("the node stays in shutdown: %d locks, %d changes", l.held(), *changes)
		}
	})
}

func TestTheBusIsConnectedAgain(t *testing.T) {
	l := &logind{max: time.Minute, most: time.Minute}
	inBubble(t, l, &node{}, Periods{{0, 10 * time.Second}}, func(m *Manager, _ *int) {
		l.news <- true
		synctest.Wait()
		l.mu.Lock()
		l.broken = true
		l.mu.Unlock()
		close(l.news)
		time.Sleep(2 * reconnect)
		synctest.Wait()
		l.mu.Lock()
		l.broken, l.news = false, make(chan bool)
		l.mu.Unlock()
		time.Sleep(reconnect)
		synctest.Wait()
		if l.held() != 1 || m.Active() || l.connects != 4 {
			t.Errorf("%d locks after %d connects, active %t", l.held(), l.connects, m.Active())
		}
	})
}

// A delay that logind does not grant is no delay: the Manager takes no lock that would
// promise one.
func TestDelayIsNotGranted(t *testing.T) {
	l := &logind{max: 5 * time.Second, most: 10 * time.Second}
	inBubble(t, l, &node{}, Split(30*time.Second, 0), func(*Manager, *int) {
		time.Sleep(time.Second)
		if l.held() != 0 {
			t.Error("a lock is held")
		}
	})
}

func TestNoPeriodsNoBus(t *testing.T) {
	l := &logind{}
	inBubble(t, l, &node{}, nil, func(m *Manager, _ *int) {
		if l.connects != 0 || m.Active() {
			t.Error("shutdowns are delayed although that is disabled")
		}
	})
}

func TestGroups(t *testing.T) {
	periods := Periods{{1000, 3 * time.Second}, {0, 1 * time.Second}, {500, 2 * time.Second}}
	var got []string
	for _, g := range periods.groups([]*corev1.Pod{podOf("a", -1), podOf("b", 499), podOf("c", 1000), podOf("d", 500), {ObjectMeta: metav1.ObjectMeta{Name: "e"}}}) {
		text := g.grace.String()
		for _, p := range g.pods {
			text += " " + p.Name
		}
		got = append(got, text)
	}
	if diff := cmp.Diff([]string{"1s a b e", "2s d", "3s c"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if periods.Total() != 6*time.Second || Split(0, 0) != nil {
		t.Errorf("total %v", periods.Total())
	}
}

func TestSignals(t *testing.T) {
	for name, row := range map[string]struct {
		signal  dbus.Signal
		yes, ok bool
	}{
		"Begins":    {dbus.Signal{Name: "org.freedesktop.login1.Manager.PrepareForShutdown", Body: []any{true}}, true, true},
		"Cancelled": {dbus.Signal{Name: "org.freedesktop.login1.Manager.PrepareForShutdown", Body: []any{false}}, false, true},
		"Sleep":     {dbus.Signal{Name: "org.freedesktop.login1.Manager.PrepareForSleep", Body: []any{true}}, false, false},
		"NoBody":    {dbus.Signal{Name: "org.freedesktop.login1.Manager.PrepareForShutdown"}, false, false},
		"OddBody":   {dbus.Signal{Name: "org.freedesktop.login1.Manager.PrepareForShutdown", Body: []any{"yes"}}, false, false},
	} {
		if yes, ok := begins(&row.signal); yes != row.yes || ok != row.ok {
			t.Errorf("%s: %t, %t", name, yes, ok)
		}
	}
}

// A damaged record does not keep the kubelet from running.
func TestDamagedRecord(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, recordFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	m := New(Config{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if r := m.load(); !r.Start.IsZero() {
		t.Errorf("%+v", r)
	}
}
