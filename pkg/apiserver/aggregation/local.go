package aggregation

import (
	"context"
	"errors"
	"sync"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	"podium/pkg/apiserver/registry"
	"podium/pkg/backoff"
	"podium/pkg/scheme"
)

// The label of APIServices that API servers keep for their own group versions, and its
// values.
const (
	managedLabel = "kube-aggregator.kubernetes.io/automanaged"
	onStart      = "onstart" // built in: written once, when a server starts
	always       = "true"    // of CustomResourceDefinitions: kept while they exist
)

// local are the APIServices of this server's own group versions.
type local struct {
	changed chan struct{} // wakes keepLocal; of capacity 1

	mu     sync.Mutex
	wanted map[string]*apiregistrationv1.APIService // by name
	done   bool                                     // all have been written once
}

// SetKinds replaces the kinds that this server serves itself.
func (a *Aggregator) SetKinds(kinds []*registry.Kind) {
	wanted := map[string]*apiregistrationv1.APIService{}
	for _, k := range kinds {
		for _, v := range k.Served() {
			if s := ownService(v.GroupVersion(), v.IsUntyped()); s != nil {
				wanted[s.Name] = s
			}
		}
	}
	a.local.mu.Lock()
	defer a.local.mu.Unlock()
	a.local.wanted = wanted
	wake(a.local.changed)
}

// ownService returns the APIService of a group version that this server serves, nil if
// it has none: as upstream, the group of APIServices itself.
func ownService(gv schema.GroupVersion, custom bool) *apiregistrationv1.APIService {
	group, version := Priority(gv, custom)
	if group == 0 || gv.Group == apiregistrationv1.GroupName {
		return nil
	}
	label := onStart
	if custom {
		label = always
	}
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: gv.Version + "." + gv.Group, Labels: map[string]string{managedLabel: label}},
		Spec:       apiregistrationv1.APIServiceSpec{Group: gv.Group, Version: gv.Version, GroupPriorityMinimum: group, VersionPriority: version},
	}
}

// Registered returns nil once this server's own group versions have APIServices.
func (a *Aggregator) Registered() error {
	a.local.mu.Lock()
	defer a.local.mu.Unlock()
	if !a.local.done {
		return errors.New("APIServices are not written yet")
	}
	return nil
}

const readyPoll = 20 * time.Millisecond

// keepLocal keeps the APIServices of this server's own group versions until ctx ends.
func (a *Aggregator) keepLocal(ctx context.Context) {
	for a.Ready() != nil {
		if backoff.Sleep(ctx, readyPoll) != nil {
			return
		}
	}
	retry := backoff.Backoff{Initial: 10 * time.Millisecond, Max: 30 * time.Second}
	g := registrar{a: a, synced: map[string]bool{}}
	for {
		err := g.sync(ctx)
		a.local.mu.Lock()
		a.local.done = a.local.done || err == nil
		a.local.mu.Unlock()
		if err == nil {
			retry.Reset()
			select {
			case <-ctx.Done():
				return
			case <-a.local.changed:
			}
			continue
		}
		if ctx.Err() == nil && retry.AtMax() {
			a.Log.Warn("keep the APIServices of this server failed", "err", err)
		}
		if retry.Wait(ctx) != nil {
			return
		}
	}
}

// registrar writes the APIServices that this server wants.
type registrar struct {
	a       *Aggregator
	atStart map[string]bool // the APIServices that existed at the first sync; nil before
	synced  map[string]bool // those that were as wanted once
}

// sync creates, updates and deletes APIServices once.
func (g *registrar) sync(ctx context.Context) error {
	all, err := g.a.Objects.List(ctx, resource(), "")
	if err != nil {
		return err
	}
	have := map[string]*apiregistrationv1.APIService{}
	for _, obj := range all {
		have[obj.GetName()] = obj.(*apiregistrationv1.APIService)
	}
	if g.atStart == nil {
		g.atStart = map[string]bool{}
		for name := range have {
			g.atStart[name] = true
		}
	}
	g.a.local.mu.Lock()
	wanted := g.a.local.wanted
	g.a.local.mu.Unlock()
	var errs []error
	for name, want := range wanted {
		errs = append(errs, g.one(ctx, name, have[name], want))
	}
	for name, s := range have {
		if wanted[name] == nil {
			errs = append(errs, g.one(ctx, name, s, nil))
		}
		if s.Spec.Service == nil {
			errs = append(errs, g.a.setCondition(ctx, name, apiregistration.NewLocalAvailableAPIServiceCondition(), isLocal))
		}
	}
	return errors.Join(errs...)
}

func isLocal(s *apiregistrationv1.APIService) bool { return s.Spec.Service == nil }

// one brings one APIService about. nil means that it does not exist, or should not.
func (g *registrar) one(ctx context.Context, name string, have, want *apiregistrationv1.APIService) (err error) {
	switch decide(have, want, g.atStart[name], g.synced[name]) {
	case create:
		_, err = g.a.Objects.Create(ctx, resource(), want)
		if apierrors.IsAlreadyExists(err) {
			err = nil // another API server was first
		}
	case update:
		if apiequality.Semantic.DeepEqual(have.Spec, want.Spec) {
			break
		}
		_, err = g.a.Objects.Update(ctx, resource(), "", name, func(obj scheme.Object) error {
			obj.(*apiregistrationv1.APIService).Spec = want.Spec
			return nil
		})
	case remove:
		err = g.a.Objects.Delete(ctx, resource(), "", name, &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(have.UID))})
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		err = nil // its change wakes the next sync
	}
	if err == nil {
		g.synced[name] = true
	}
	return err
}

type action int

const (
	nothing action = iota
	create
	update
	remove
)

// decide returns what to do about an APIService. Users may change and delete those that
// are written when a server starts; those that are kept always they may only take out
// of its hands, by removing the label.
func decide(have, want *apiregistrationv1.APIService, atStart, synced bool) action {
	once := want != nil && want.Labels[managedLabel] == onStart
	switch {
	case have == nil && (want == nil || once && synced):
		return nothing
	case have == nil:
		return create
	case have.Labels[managedLabel] == onStart && (!atStart || synced):
		return nothing
	case have.Labels[managedLabel] != onStart && have.Labels[managedLabel] != always:
		return nothing
	case want == nil:
		return remove
	case once && synced:
		return nothing
	}
	return update
}

func resource() schema.GroupVersionResource {
	return apiregistrationv1.SchemeGroupVersion.WithResource("apiservices")
}
