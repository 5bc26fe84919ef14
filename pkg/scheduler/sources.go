package scheduler

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/informer"
	"podium/pkg/scheduler/framework"
	"podium/pkg/scheme"
)

// source is an informer.
type source interface {
	Run(context.Context) error
	Synced() bool
	WaitSynced(context.Context) error
}

// watched returns an informer of all objects of a kind.
func watched[T scheme.Object](s *scheduler, name string, onChange func(old, new T)) source {
	i := informer.New(client.For[T](s.cfg.Client), informer.Options{Log: s.cfg.Log.With("informer", name), Transform: strip})
	i.OnChange(func(old, new T) {
		s.mu.Lock()
		defer s.mu.Unlock()
		onChange(old, new)
	})
	return i
}

// onBudget and the handlers below are called with the lock held.
func (s *scheduler) onBudget(old, new *policyv1.PodDisruptionBudget) {
	if new == nil {
		s.snap.RemoveBudget(old.Namespace, old.Name)
		return
	}
	s.snap.SetBudget(new)
}

func (s *scheduler) onNamespace(old, new *corev1.Namespace) {
	if new == nil {
		s.snap.RemoveNamespace(old.Name)
		return
	}
	if s.snap.SetNamespace(new.Name, new.Labels) {
		s.queue.Wake(framework.NamespaceLabels)
	}
}

func (s *scheduler) onService(old, new *corev1.Service) {
	if new == nil {
		s.snap.RemoveService(old.Namespace, old.Name)
		return
	}
	s.snap.SetService(new.Namespace, new.Name, new.Spec.Selector)
}

// onOwner returns a handler for a kind of controllers of pods.
func onOwner[T scheme.Object](s *scheduler, selector func(T) *metav1.LabelSelector) func(old, new T) {
	var none T
	return func(old, new T) {
		if any(new) == any(none) {
			s.snap.RemoveOwner(old.GetUID())
			return
		}
		s.snap.SetOwner(new.GetUID(), selector(new))
	}
}
