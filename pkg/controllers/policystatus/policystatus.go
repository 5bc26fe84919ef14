// Package policystatus checks the types of the expressions of
// ValidatingAdmissionPolicies: it compiles them for each kind that a policy names, and
// writes what does not compile to the status as warnings. The policy works all the same.
// https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/#type-checking
package policystatus

import (
	"context"

	registration "k8s.io/api/admissionregistration/v1"

	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
)

// Spec describes the controller of the status of ValidatingAdmissionPolicies.
func Spec(workers int) controller.Spec {
	return controller.Spec{Name: "validatingadmissionpolicy-status-controller", Workers: workers, New: build}
}

type policy = registration.ValidatingAdmissionPolicy

type reconciler struct {
	*loop.Loop
	policies *informer.Informer[*policy]
	writer   controller.Writer[*policy]
	api      source
}

func build(c controller.Context) (controller.Runner, error) {
	r := &reconciler{policies: informers.For[*policy](c.Informers), api: c.Client}
	r.Loop = c.NewLoop("policystatus", 0, r.reconcile, r.policies)
	r.writer = controller.NewWriter(c, r.Loop, r.policies)
	loop.WakeOn(r.Loop, r.policies, loop.Self)
	return r, nil
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	p, ok := r.policies.Get("", key.Name)
	if !ok || p.DeletionTimestamp != nil || p.Status.ObservedGeneration >= p.Generation && p.Status.TypeChecking != nil {
		return loop.Done, nil
	}
	warnings, err := check(ctx, r.api, p)
	if err != nil {
		return loop.Done, err
	}
	next := p.DeepCopy()
	next.Status.ObservedGeneration = p.Generation
	next.Status.TypeChecking = &registration.TypeChecking{ExpressionWarnings: warnings}
	_, err = r.writer.UpdateStatus(ctx, key, next)
	return loop.Done, err
}
