package aggregation

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	"podium/pkg/scheme"
)

// check sets the APIService's condition, and reports whether it is available. The
// resources are published before the condition: clients that wait for it find them.
func (r *remote) check(ctx context.Context) bool {
	c, err := r.condition(ctx)
	if ctx.Err() != nil {
		return false // the check was cut off: its result says nothing
	}
	if err != nil {
		r.a.Log.Warn("check an APIService failed", "apiservice", r.name, "err", err)
		return false // what is known of the server stays
	}
	available := c.Status == apiregistrationv1.ConditionTrue
	if r.rediscover(ctx, available) {
		r.a.publish()
	}
	err = r.a.setCondition(ctx, r.name, c, func(s *apiregistrationv1.APIService) bool { return s.UID == r.uid && s.Spec.Service != nil })
	if err != nil {
		r.a.Log.Warn("write the condition of an APIService failed", "apiservice", r.name, "err", err)
	}
	return err == nil && available
}

// condition decides whether the Service can serve the group version, with upstream's
// reasons and messages. An error means that this server cannot read its own objects.
func (r *remote) condition(ctx context.Context) (apiregistrationv1.APIServiceCondition, error) {
	to := r.spec.Service
	is := func(status apiregistrationv1.ConditionStatus, reason, format string, args ...any) (apiregistrationv1.APIServiceCondition, error) {
		return apiregistrationv1.APIServiceCondition{Type: apiregistrationv1.Available, Status: status, Reason: reason, Message: fmt.Sprintf(format, args...)}, nil
	}
	const no = apiregistrationv1.ConditionFalse
	obj, err := r.a.Objects.Get(ctx, corev1.SchemeGroupVersion.WithResource("services"), to.Namespace, to.Name)
	if apierrors.IsNotFound(err) {
		return is(no, "ServiceNotFound", "service/%s in %q is not present", to.Name, to.Namespace)
	}
	if err != nil {
		return apiregistrationv1.APIServiceCondition{}, err
	}
	if svc := obj.(*corev1.Service); svc.Spec.Type == corev1.ServiceTypeClusterIP {
		port := portOf(svc, *to.Port)
		if port == nil {
			return is(no, "ServicePortError", "service/%s in %q is not listening on port %d", to.Name, to.Namespace, *to.Port)
		}
		slices, err := r.a.slices(ctx, to)
		switch {
		case err != nil:
			return apiregistrationv1.APIServiceCondition{}, err
		case len(slices) == 0:
			return is(no, "EndpointsNotFound", "cannot find endpointslices for service/%s in %q", to.Name, to.Namespace)
		case len(ready(slices, port.Name)) == 0:
			return is(no, "MissingEndpoints", "endpointslices for service/%s in %q have no addresses with port name %q", to.Name, to.Namespace, port.Name)
		}
	}
	if err := r.probe(ctx); err != nil {
		return is(no, "FailedDiscoveryCheck", "%v", err)
	}
	return is(apiregistrationv1.ConditionTrue, "Passed", "all checks passed")
}

// moreProbes is how often a failed probe is repeated: behind a Service, each
// connection may lead to another endpoint.
const moreProbes = 4

// probe asks for the group version's discovery document. It succeeds if one of several
// attempts does.
func (r *remote) probe(ctx context.Context) error {
	attempt := func() error {
		_, err := r.get(ctx, r.path(), "", "")
		return err
	}
	err := attempt()
	if err == nil {
		return nil
	}
	r.server.close()
	results := make(chan error, moreProbes)
	for range moreProbes {
		go func() { results <- attempt() }()
	}
	for range moreProbes {
		if more := <-results; more == nil {
			err = nil
		}
	}
	return err
}

// setCondition writes the condition Available if it has changed and the object still
// is one that ours accepts.
func (a *Aggregator) setCondition(ctx context.Context, name string, c apiregistrationv1.APIServiceCondition, ours func(*apiregistrationv1.APIService) bool) error {
	obj, err := a.Objects.Get(ctx, resource(), "", name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	have := obj.(*apiregistrationv1.APIService)
	before := apiregistration.GetAPIServiceConditionByType(have, apiregistrationv1.Available)
	if !ours(have) || before != nil && before.Status == c.Status && before.Reason == c.Reason && before.Message == c.Message {
		return nil
	}
	if c.Status != apiregistrationv1.ConditionTrue && before != nil && before.Status == apiregistrationv1.ConditionTrue {
		a.metrics.turned.WithLabelValues(name, c.Reason).Inc()
	}
	c.LastTransitionTime = metav1.NewTime(time.Now())
	_, err = a.Objects.Update(ctx, resource(), "", name, func(obj scheme.Object) error {
		if s := obj.(*apiregistrationv1.APIService); ours(s) {
			apiregistration.SetAPIServiceCondition(s, c)
		}
		return nil
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
