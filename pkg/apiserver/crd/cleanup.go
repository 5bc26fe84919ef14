package crd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/backoff"
	"podium/pkg/conditions"
)

// deleters is the number of instances that are deleted at the same time.
const deleters = 8

// clean starts to delete the instances of a definition that is being deleted, and then
// the definition, unless that goes on already.
func (f *Follower) clean(ctx context.Context, c *apiextensionsv1.CustomResourceDefinition) {
	if done := f.cleaned[c.UID]; done != nil && !closed(done) || waits(c) {
		return
	}
	done := make(chan struct{})
	f.cleaned[c.UID] = done
	f.cleaning.Go(func() {
		defer close(done)
		retry := backoff.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second, Jitter: 1}
		for ctx.Err() == nil {
			c := f.current(c)
			if c == nil || waits(c) {
				return
			}
			err := f.finish(ctx, c)
			if err == nil {
				return
			}
			if ctx.Err() == nil && !errors.Is(err, errRemaining) {
				f.cfg.Log.Warn("delete the custom resources of a definition", "crd", c.Name, "err", err)
			}
			_ = retry.Wait(ctx) // the loop condition checks ctx
		}
	})
}

// waits reports whether only finalizers of others keep a definition.
func waits(c *apiextensionsv1.CustomResourceDefinition) bool {
	return len(c.Finalizers) > 0 && !apihelpers.CRDHasFinalizer(c, apiextensionsv1.CustomResourceCleanupFinalizer)
}

func closed(done chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// current returns the present state of a definition, or nil if it is gone.
func (f *Follower) current(c *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.known[c.Name]; now != nil && now.UID == c.UID {
		return now
	}
	return nil
}

// errRemaining means that finalizers keep instances.
var errRemaining = errors.New("instances remain")

// finish deletes the instances of a definition, its finalizer and the definition.
func (f *Follower) finish(ctx context.Context, c *apiextensionsv1.CustomResourceDefinition) error {
	if apihelpers.CRDHasFinalizer(c, apiextensionsv1.CustomResourceCleanupFinalizer) {
		reason, message := "NeverEstablished", "resource was never established"
		if apihelpers.IsCRDConditionTrue(c, apiextensionsv1.Established) {
			if err := f.setTerminating(ctx, c, true, "InstanceDeletionInProgress", "CustomResource deletion is in progress"); err != nil {
				return err
			}
			if err := f.deleteInstances(ctx, c); err != nil {
				if !errors.Is(err, errRemaining) {
					err = errors.Join(err, f.setTerminating(ctx, c, true, "InstanceDeletionFailed", fmt.Sprintf("could not issue all deletes: %v", err)))
				}
				return err
			}
			reason, message = "InstanceDeletionCompleted", "removed all instances"
		}
		if err := f.setTerminating(ctx, c, false, reason, message); err != nil {
			return err
		}
	}
	// Without a finalizer, this removes the definition.
	err := f.cfg.Server.Backend().Delete(ctx, Resource, "", c.Name, &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &c.UID}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// setTerminating sets the condition of that type. If it is false, it also removes the
// finalizer.
func (f *Follower) setTerminating(ctx context.Context, c *apiextensionsv1.CustomResourceDefinition, is bool, reason, message string) error {
	return f.change(ctx, c, func(now *apiextensionsv1.CustomResourceDefinition) {
		status := apiextensionsv1.ConditionTrue
		if !is {
			status = apiextensionsv1.ConditionFalse
			apihelpers.CRDRemoveFinalizer(now, apiextensionsv1.CustomResourceCleanupFinalizer)
		}
		now.Status.Conditions = conditions.Set(now.Status.Conditions, apiextensionsv1.CustomResourceDefinitionCondition{
			Type: apiextensionsv1.Terminating, Status: status, Reason: reason, Message: message,
			LastTransitionTime: metav1.NewTime(f.cfg.Now().Truncate(time.Second)),
		})
	})
}

// deleteInstances deletes all custom resources of a definition. It returns errRemaining
// if some exist afterwards.
func (f *Follower) deleteInstances(ctx context.Context, c *apiextensionsv1.CustomResourceDefinition) error {
	storage, err := apihelpers.GetCRDStorageVersion(c)
	if err != nil {
		return err
	}
	gvr := schema.GroupVersionResource{Group: c.Spec.Group, Version: storage, Resource: c.Status.AcceptedNames.Plural}
	all, err := f.cfg.Server.Stored(ctx, gvr)
	if err != nil {
		return err
	}
	g, each := errgroup.WithContext(ctx)
	g.SetLimit(deleters)
	for _, obj := range all {
		if obj.GetDeletionTimestamp() != nil {
			continue
		}
		g.Go(func() error {
			err := f.cfg.Server.Backend().Delete(each, gvr, obj.GetNamespace(), obj.GetName(), nil)
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if all, err = f.cfg.Server.Stored(ctx, gvr); err == nil && len(all) > 0 {
		err = errRemaining
	}
	return err
}
