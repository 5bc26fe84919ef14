package limitranger

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// checkPod checks the containers of a pod against the limits for containers, and its
// sums against the limits for pods.
func checkPod(item *corev1.LimitRangeItem, pod *corev1.Pod) []error {
	var errs []error
	switch item.Type {
	case corev1.LimitTypeContainer:
		for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
			for i := range list {
				errs = append(errs, check(item, list[i].Resources.Requests, list[i].Resources.Limits)...)
			}
		}
	case corev1.LimitTypePod:
		opts := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
		errs = check(item, resourcehelper.PodRequests(pod, opts), resourcehelper.PodLimits(pod, opts))
	}
	return errs
}

// check checks requests and limits against all constraints of an item.
func check(item *corev1.LimitRangeItem, requests, limits corev1.ResourceList) []error {
	return slices.Concat(
		forEach(item, item.Min, func(c constraint) error { return c.min(requests, limits) }),
		forEach(item, item.Max, func(c constraint) error { return c.max(requests, limits) }),
		forEach(item, item.MaxLimitRequestRatio, func(c constraint) error { return c.ratio(requests, limits) }))
}

// checkClaim checks the requests of a claim, which has no limits.
func checkClaim(item *corev1.LimitRangeItem, requests corev1.ResourceList) []error {
	return slices.Concat(
		forEach(item, item.Min, func(c constraint) error { return c.min(requests, nil) }),
		forEach(item, item.Max, func(c constraint) error { return c.maxRequest(requests) }))
}

func forEach(item *corev1.LimitRangeItem, list corev1.ResourceList, check func(constraint) error) []error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if err := check(constraint{name, item.Type, list[name]}); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// constraint is one quantity of a LimitRange.
type constraint struct {
	name corev1.ResourceName
	kind corev1.LimitType
	want resource.Quantity
}

func (c constraint) min(requests, limits corev1.ResourceList) error {
	request, requested := requests[c.name]
	limit, limited := limits[c.name]
	switch {
	case !requested:
		return c.errorf("minimum", ".  No request is specified")
	case request.Cmp(c.want) < 0:
		return c.errorf("minimum", ", but request is %s", request.String())
	case limited && limit.Cmp(c.want) < 0:
		return c.errorf("minimum", ", but limit is %s", limit.String())
	}
	return nil
}

func (c constraint) max(requests, limits corev1.ResourceList) error {
	request, requested := requests[c.name]
	limit, limited := limits[c.name]
	switch {
	case !limited:
		return c.errorf("maximum", ".  No limit is specified")
	case limit.Cmp(c.want) > 0:
		return c.errorf("maximum", ", but limit is %s", limit.String())
	case requested && request.Cmp(c.want) > 0:
		return c.errorf("maximum", ", but request is %s", request.String())
	}
	return nil
}

func (c constraint) maxRequest(requests corev1.ResourceList) error {
	request, requested := requests[c.name]
	switch {
	case !requested:
		return c.errorf("maximum", ".  No request is specified")
	case request.Cmp(c.want) > 0:
		return c.errorf("maximum", ", but request is %s", request.String())
	}
	return nil
}

func (c constraint) errorf(bound, format string, args ...any) error {
	return fmt.Errorf("%s %s usage per %s is %s%s", bound, c.name, c.kind, c.want.String(), fmt.Sprintf(format, args...))
}

func (c constraint) ratio(requests, limits corev1.ResourceList) error {
	request, limit := requests[c.name], limits[c.name]
	problem := ""
	switch {
	case request.IsZero():
		problem = "no request is specified or request is 0"
	case limit.IsZero():
		problem = "no limit is specified or limit is 0"
	default:
		ratio := quotient(limit, request)
		if ratio*1000 <= float64(c.want.MilliValue()) {
			return nil
		}
		problem = fmt.Sprintf("provided ratio is %f", ratio)
	}
	return fmt.Errorf("%s max limit to request ratio per %s is %s, but %s", c.name, c.kind, c.want.String(), problem)
}

// quotient divides exact integers: thousandths, where they are not too large.
func quotient(a, b resource.Quantity) float64 {
	if a.Value() > resource.MaxMilliValue || b.Value() > resource.MaxMilliValue {
		return float64(a.Value()) / float64(b.Value())
	}
	return float64(a.MilliValue()) / float64(b.MilliValue())
}
