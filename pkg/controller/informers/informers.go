package informers

import (
	"context"
	"log/slog"
	"reflect"
	"sync"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/client"
	"podium/pkg/client/informer"
	"podium/pkg/scheme"
)

// Set is a set of informers that use one client. Controllers get their informers from it
// while they are built; Run then runs all of them. It is safe for concurrent use.
type Set struct {
	client *client.Client
	log    *slog.Logger

	mu      sync.Mutex
	entries []entry
	running bool
}

// Selection restricts an informer. The zero value selects all objects.
type Selection struct {
	Namespace     string
	FieldSelector string
}

// Any is an informer of unspecified kind.
type Any interface {
	Run(ctx context.Context) error
	Synced() bool
	WaitSynced(ctx context.Context) error
	// OnAnyChange is Informer.OnChange with nil for an absent object.
	OnAnyChange(f func(old, new metav1.Object))
}

type entry struct {
	Any
	object    reflect.Type
	kind      schema.GroupVersionKind
	selection Selection
}

// New returns an empty set.
func New(c *client.Client, log *slog.Logger) *Set { return &Set{client: c, log: log} }

// For returns the set's informer for all objects of kind T: never nil, and always the
// same one. It panics if the informer does not exist and Run has been called.
func For[T scheme.Object](s *Set) *informer.Informer[T] { return Select[T](s, Selection{}) }

// Select is For with a subset of the objects.
func Select[T scheme.Object](s *Set, selection Selection) *informer.Informer[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	object := reflect.TypeFor[T]()
	for _, e := range s.entries {
		if e.object == object && e.selection == selection {
			return e.Any.(*informer.Informer[T])
		}
	}
	if s.running {
		panic("informers: an informer was requested after Run") // its events would be lost
	}
	i := informer.New(client.For[T](s.client).In(selection.Namespace), informer.Options{
		FieldSelector: selection.FieldSelector, Log: s.log, Transform: strip,
	})
	kind := scheme.KindOf[T](s.client.Scheme()).GroupVersionKind
	s.entries = append(s.entries, entry{i, object, kind, selection})
	return i
}

// strip drops metadata that no controller reads.
func strip(obj scheme.Object) { obj.SetManagedFields(nil) }

// OfKind returns the informer for all objects of a kind, false if there is none.
func (s *Set) OfKind(kind schema.GroupVersionKind) (Any, bool) {
	for _, e := range s.all() {
		if e.kind == kind && e.selection == (Selection{}) {
			return e.Any, true
		}
	}
	return nil, false
}

// Run runs the informers until ctx ends.
func (s *Set) Run(ctx context.Context) error {
	s.mu.Lock()
	s.running = true
	s.mu.Unlock()
	g, ctx := errgroup.WithContext(ctx)
	for _, e := range s.all() {
		g.Go(func() error { return e.Run(ctx) })
	}
	return g.Wait()
}

// Synced reports whether all informers have completed their first list.
func (s *Set) Synced() bool {
	for _, e := range s.all() {
		if !e.Synced() {
			return false
		}
	}
	return true
}

func (s *Set) all() []entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries
}
