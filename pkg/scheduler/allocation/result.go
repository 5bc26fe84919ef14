package allocation

import (
	"slices"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/deviceselector"
)

// attributeValue is the value of an attribute; values are comparable.
type attributeValue struct {
	kind    byte
	number  int64
	boolean bool
	text    string
}

// attribute returns the value of an attribute of a device.
func attribute(d *device, name resourcev1.FullyQualifiedName) (attributeValue, bool) {
	a, ok := d.Attributes[resourcev1.QualifiedName(name)]
	if domain, id := deviceselector.Split("", resourcev1.QualifiedName(name)); !ok && domain == d.id.Driver {
		a, ok = d.Attributes[resourcev1.QualifiedName(id)]
	}
	switch {
	case !ok:
	case a.IntValue != nil:
		return attributeValue{kind: 'i', number: *a.IntValue}, true
	case a.BoolValue != nil:
		return attributeValue{kind: 'b', boolean: *a.BoolValue}, true
	case a.StringValue != nil:
		return attributeValue{kind: 's', text: *a.StringValue}, true
	case a.VersionValue != nil:
		return attributeValue{kind: 'v', text: *a.VersionValue}, true
	}
	return attributeValue{}, false
}

// result returns the allocation of a claim.
func result(c *problemClaim, chosen []choice, node *corev1.Node) *resourcev1.AllocationResult {
	out := &resourcev1.AllocationResult{NodeSelector: nodesOf(chosen, node.Name), AllocationTimestamp: new(metav1.Now())}
	for _, ch := range chosen {
		r := resourcev1.DeviceRequestAllocationResult{
			Request: ch.name, Driver: ch.device.id.Driver, Pool: ch.device.id.Pool, Device: ch.device.id.Device,
			Tolerations: ch.tolerations, ConsumedCapacity: ch.consumed,
			BindingConditions: ch.device.BindingConditions, BindingFailureConditions: ch.device.BindingFailureConditions,
		}
		if ch.admin {
			r.AdminAccess = new(true)
		} else if ch.device.multiple {
			r.ShareID = new(types.UID(uuid.NewString()))
		}
		out.Devices.Results = append(out.Devices.Results, r)
	}
	out.Devices.Config = configOf(c, chosen)
	return out
}

// configOf returns the configuration of the classes, then that of the claim, which takes
// precedence.
func configOf(c *problemClaim, chosen []choice) (out []resourcev1.DeviceAllocationConfiguration) {
	var names []string
	for _, ch := range chosen {
		if slices.Contains(names, ch.name) {
			continue
		}
		names = append(names, ch.name)
		for _, config := range ch.class.Spec.Config {
			out = append(out, resourcev1.DeviceAllocationConfiguration{
				Source: resourcev1.AllocationConfigSourceClass, Requests: []string{ch.name}, DeviceConfiguration: config.DeviceConfiguration,
			})
		}
	}
	for _, config := range c.Spec.Devices.Config {
		used := func(name string) bool { return applies(config.Requests, name) }
		if len(config.Requests) == 0 || slices.ContainsFunc(names, used) {
			out = append(out, resourcev1.DeviceAllocationConfiguration{
				Source: resourcev1.AllocationConfigSourceClaim, Requests: config.Requests, DeviceConfiguration: config.DeviceConfiguration,
			})
		}
	}
	return out
}

// nodesOf returns which nodes can use all of the devices; nil if all nodes can.
func nodesOf(chosen []choice, node string) *corev1.NodeSelector {
	var term corev1.NodeSelectorTerm
	for _, ch := range chosen {
		at := ch.device.at
		switch {
		case at.node != "", ch.device.BindsToNode != nil && *ch.device.BindsToNode:
			return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
			}}}
		case at.selector != nil:
			for _, t := range at.selector.NodeSelectorTerms { // there is only one
				term.MatchExpressions = union(term.MatchExpressions, t.MatchExpressions)
				term.MatchFields = union(term.MatchFields, t.MatchFields)
			}
		}
	}
	if len(term.MatchExpressions) == 0 && len(term.MatchFields) == 0 {
		return nil
	}
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}
}

func union(have, more []corev1.NodeSelectorRequirement) []corev1.NodeSelectorRequirement {
	for _, r := range more {
		if !slices.ContainsFunc(have, func(o corev1.NodeSelectorRequirement) bool { return apiequality.Semantic.DeepEqual(o, r) }) {
			have = append(have, r)
		}
	}
	return have
}
