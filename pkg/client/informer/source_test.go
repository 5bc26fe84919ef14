package informer_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"podium/pkg/client"
)

type event = client.Event[*corev1.Pod]

// server is an in-memory API of pods with the faults of a real server.
type server struct {
	mu        sync.Mutex
	changed   chan struct{} // closed at each change of the fields below
	log       []event       // the event of revision n is log[n-1]
	compacted int           // watches from an older revision are refused
	epoch     int           // watches of an older epoch have ended
	down      bool
	watchList bool
	lists     int
	watches   int
}

func newServer() *server { return &server{changed: make(chan struct{}), watchList: true} }

func (s *server) with(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *server) put(name, label string) {
	s.with(func() {
		t := watch.Added
		uid := types.UID(fmt.Sprint(len(s.log)))
		for _, p := range s.state() {
			if p.Name == name {
				t, uid = watch.Modified, p.UID
			}
		}
		s.append(t, name, label, uid)
	})
}

func (s *server) delete(name string) {
	s.with(func() {
		for _, p := range s.state() {
			if p.Name == name {
				s.append(watch.Deleted, name, p.Labels["l"], p.UID)
			}
		}
	})
}

func (s *server) append(t watch.EventType, name, label string, uid types.UID) {
	s.log = append(s.log, event{Type: t, Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: uid, Labels: map[string]string{"l": label}, ResourceVersion: strconv.Itoa(len(s.log) + 1)}}})
}

func (s *server) restart(compact bool) {
	s.with(func() {
		s.epoch++
		if compact {
			s.compacted = len(s.log)
		}
	})
}

// state returns the existing pods, by name. The lock must be held.
func (s *server) state() []*corev1.Pod {
	m := map[string]*corev1.Pod{}
	for _, e := range s.log {
		if e.Type == watch.Deleted {
			delete(m, e.Object.Name)
		} else {
			m[e.Object.Name] = e.Object
		}
	}
	out := make([]*corev1.Pod, 0, len(m))
	for _, p := range m {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

var errDown = errors.New("connection refused")

func (s *server) List(context.Context, metav1.ListOptions) (*client.List[*corev1.Pod], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, errDown
	}
	s.lists++
	list := &client.List[*corev1.Pod]{Items: s.state()}
	list.ResourceVersion = strconv.Itoa(len(s.log))
	return list, nil
}

func (s *server) Watch(ctx context.Context, o metav1.ListOptions) (*client.Watch[*corev1.Pod], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, errDown
	}
	s.watches++
	var first []event
	at := 0
	if o.SendInitialEvents != nil {
		if !s.watchList {
			return nil, apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", nil)
		}
		for _, p := range s.state() {
			first = append(first, event{Type: watch.Added, Object: p})
		}
		first = append(first, event{Type: watch.Bookmark, Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: strconv.Itoa(len(s.log)), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}})
		at = len(s.log)
	} else {
		at, _ = strconv.Atoi(o.ResourceVersion)
		if at < s.compacted {
			return nil, apierrors.NewResourceExpired("too old resource version")
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	epoch := s.epoch
	next := func() (event, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for {
			switch {
			case ctx.Err() != nil:
				return event{}, ctx.Err()
			case s.epoch != epoch || s.down:
				return event{}, io.EOF
			case len(first) > 0:
				e := first[0]
				first = first[1:]
				return e, nil
			case at < len(s.log):
				at++
				return s.log[at-1], nil
			}
			changed := s.changed
			s.mu.Unlock()
			select {
			case <-changed:
			case <-ctx.Done():
			}
			s.mu.Lock()
		}
	}
	return client.NewWatch(next, cancel), nil
}
