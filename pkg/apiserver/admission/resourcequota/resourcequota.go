// Package resourcequota is the admission plugin ResourceQuota: it charges what a new
// object uses to the quotas of its namespace, and refuses the object if one of them
// would be exceeded.
//
// A charge is a compare-and-swap of the quota's status, so that a quota is exact with
// any number of API servers. The charges that wait while another is written are
// written together: a burst of creates in a namespace costs few writes.
//
// The plugin never gives usage back. The controller resourcequota-controller does, when
// objects are deleted and when a charged object was not stored.
package resourcequota

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"podium/pkg/apiserver/admission"
	"podium/pkg/quota"
	"podium/pkg/scheme"
)

type plugin struct {
	objects admission.Objects
	now     func() time.Time
	limited []LimitedResource
	ledger  *ledger
}

// New returns the plugin.
func New(h admission.Host, c Config) admission.Plugin {
	p := &plugin{objects: h.Objects, now: h.Now, limited: c.LimitedResources, ledger: newLedger(h.Objects)}
	return admission.Plugin{Operations: []admission.Operation{admission.Create, admission.Update}, Validate: p.validate}
}

// handles reports whether a request can use more of a quota. Updates change the usage
// only of pods that are resized, and of services and persistent volume claims. As
// upstream, Events are not limited.
func handles(a *admission.Attributes) bool {
	if a.Namespace == "" || a.Object == nil || a.Resource.GroupResource() == corev1.Resource("events") {
		return false
	}
	if a.Operation == admission.Create {
		return a.Subresource == ""
	}
	switch obj := a.Object.(type) {
	case *corev1.Pod:
		return a.Subresource == "resize"
	case *corev1.Service:
		return a.Subresource == ""
	case *corev1.PersistentVolumeClaim:
		return a.Subresource == "" || a.Subresource == "status" && counts(&a.Old.(*corev1.PersistentVolumeClaim).Status, &obj.Status)
	}
	return false
}

// counts reports whether a write of the status of a claim changes what quotas read of it.
func counts(old, next *corev1.PersistentVolumeClaimStatus) bool {
	same := apiequality.Semantic.DeepEqual
	return !same(old.AllocatedResources, next.AllocatedResources) ||
		!same(old.CurrentVolumeAttributesClassName, next.CurrentVolumeAttributesClassName) || !same(old.ModifyVolumeStatus, next.ModifyVolumeStatus)
}

func (p *plugin) validate(ctx context.Context, a *admission.Attributes) error {
	if !handles(a) {
		return nil
	}
	found, err := p.objects.RecentList(ctx, quotas, a.Namespace)
	if err != nil || len(found) == 0 && len(p.limited) == 0 {
		return err
	}
	c := p.charge(a)
	touched, err := c.match(found, p.limited)
	if err != nil || len(touched) == 0 {
		return err
	}
	return p.ledger.enter(ctx, a.Namespace, c, touched)
}

// charge returns what a request uses in addition.
func (p *plugin) charge(a *admission.Attributes) *charge {
	e, now := quota.For(a.Resource.GroupResource()), p.now()
	before, after := corev1.ResourceList{}, e.Usage(a.Object, now)
	if a.Operation == admission.Update {
		before = e.Usage(a.Old, now)
	}
	return &charge{attributes: a, evaluator: e, usage: quota.Growth(after, before), whole: quota.Growth(after, nil)}
}

// charge is the usage of one request.
type charge struct {
	attributes *admission.Attributes
	evaluator  quota.Evaluator
	usage      corev1.ResourceList // what the object uses in addition, without zeros
	whole      corev1.ResourceList // what the object uses, without zeros
}

// of returns what the request uses of a quota that the object matches: all that the
// object uses if an update brings it into the scopes of the quota.
func (c *charge) of(q *corev1.ResourceQuota) corev1.ResourceList {
	if c.attributes.Operation == admission.Update && !c.evaluator.InScopes(q, c.attributes.Old) {
		return c.whole
	}
	return c.usage
}

// match returns the names of the quotas that are to be charged. It refuses objects
// that lack what a quota limits, or whose consumption must be covered by a quota and
// is not.
func (c *charge) match(found []scheme.Object, limited []LimitedResource) (names []string, err error) {
	covered := map[corev1.ResourceName]bool{}
	var scopes []corev1.ScopedResourceSelectorRequirement
	for _, obj := range found {
		q := obj.(*corev1.ResourceQuota)
		scopes = append(scopes, c.evaluator.Meets(quota.Scopes(q), c.attributes.Object)...)
		if !c.evaluator.Matches(q, c.attributes.Object) {
			continue
		}
		limits := c.evaluator.Limiting(q.Status.Hard)
		if pod, ok := c.attributes.Object.(*corev1.Pod); ok {
			if err := quota.Missing(limits, pod); err != nil {
				return nil, admission.Forbidden(c.attributes, "failed quota: %s: %w", q.Name, err)
			}
		}
		if len(quota.Select(q.Status.Used, limits)) < len(limits) {
			return nil, admission.Forbidden(c.attributes, "status unknown for quota: %s, resources: %s", q.Name, quota.NamesText(limits))
		}
		for _, name := range limits {
			covered[name] = true
		}
		if len(c.of(q)) > 0 {
			names = append(names, q.Name)
		}
	}
	return names, c.checkCovered(limited, covered, scopes)
}

// checkCovered refuses consumption that the plugin's configuration limits and no quota
// covers.
func (c *charge) checkCovered(limited []LimitedResource, covered map[corev1.ResourceName]bool, scopes []corev1.ScopedResourceSelectorRequirement) error {
	if len(c.usage) == 0 {
		return nil
	}
	var uncovered []corev1.ResourceName
	var required []corev1.ScopedResourceSelectorRequirement
	for _, l := range limited {
		if l.Resource != c.evaluator.Resource.Resource || l.APIGroup != c.evaluator.Resource.Group {
			continue
		}
		for name := range c.usage {
			if !covered[name] && !slices.Contains(uncovered, name) && slices.ContainsFunc(l.MatchContains, func(part string) bool { return strings.Contains(string(name), part) }) {
				uncovered = append(uncovered, name)
			}
		}
		for _, r := range c.evaluator.Meets(l.MatchScopes, c.attributes.Object) {
			if !slices.ContainsFunc(scopes, func(s corev1.ScopedResourceSelectorRequirement) bool { return s.ScopeName == r.ScopeName }) {
				required = append(required, r)
			}
		}
	}
	switch {
	case len(uncovered) > 0:
		return admission.Forbidden(c.attributes, "insufficient quota to consume: %s", quota.NamesText(uncovered))
	case len(required) > 0:
		return admission.Forbidden(c.attributes, "insufficient quota to match these scopes: %v", required)
	}
	return nil
}

// check refuses the charge if it exceeds a quota, of which used is the present usage.
func (c *charge) check(q *corev1.ResourceQuota, used corev1.ResourceList) error {
	more := quota.Select(c.of(q), c.evaluator.Limiting(q.Status.Hard))
	exceeded := quota.Exceeded(used, more, q.Status.Hard)
	if len(exceeded) == 0 {
		return nil
	}
	text := func(list corev1.ResourceList) string { return quota.Text(quota.Select(list, exceeded)) }
	return admission.Forbidden(c.attributes, "exceeded quota: %s, requested: %s, used: %s, limited: %s", q.Name, text(more), text(used), text(q.Status.Hard))
}

// add adds the charge to the usage of a quota.
func (c *charge) add(q *corev1.ResourceQuota, used corev1.ResourceList) {
	quota.Add(used, quota.Select(c.of(q), c.evaluator.Limiting(q.Status.Hard)))
}
