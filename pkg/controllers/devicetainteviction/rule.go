package devicetainteviction

import (
	"context"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/controller/loop"
	"podium/pkg/devicetaint"
)

// reconcileRule reports in the status of a rule what it does to pods.
func (r *reconciler) reconcileRule(ctx context.Context, key loop.Key) (loop.Result, error) {
	rule, ok := r.rules.Get("", key.Name)
	if !ok {
		r.forget()
		return loop.Done, nil
	}
	old := meta.FindStatusCondition(rule.Status.Conditions, resourcev1.DeviceTaintConditionEvictionInProgress)
	if rule.Spec.Taint.Effect == resourcev1.DeviceTaintEffectNone && old != nil && old.ObservedGeneration == rule.Generation {
		return loop.Done, nil // what would happen is said once
	}
	rule = rule.DeepCopy()
	if !meta.SetStatusCondition(&rule.Status.Conditions, r.condition(rule)) {
		return loop.Done, nil
	}
	_, err := r.ruleWriter.UpdateStatus(ctx, key, rule)
	return loop.Done, err
}

// forget drops the counts of rules that no longer exist.
func (r *reconciler) forget() {
	exist := map[types.UID]bool{}
	for _, rule := range r.rules.List() {
		exist[rule.UID] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid := range r.evicted {
		if !exist[uid] {
			delete(r.evicted, uid)
		}
	}
}

// condition returns the condition EvictionInProgress as it is now.
func (r *reconciler) condition(rule *resourcev1.DeviceTaintRule) metav1.Condition {
	c := metav1.Condition{
		Type: resourcev1.DeviceTaintConditionEvictionInProgress, Status: metav1.ConditionFalse,
		Reason: "Effect" + string(rule.Spec.Taint.Effect), ObservedGeneration: rule.Generation,
	}
	switch rule.Spec.Taint.Effect {
	case resourcev1.DeviceTaintEffectNone:
		c.Reason, c.Message = "NoEffect", r.preview(rule)
	case resourcev1.DeviceTaintEffectNoExecute:
		r.mu.Lock()
		evicted := r.evicted[rule.UID]
		r.mu.Unlock()
		pending, namespaces := r.pending(rule)
		switch {
		case pending > 0:
			c.Status, c.Reason = metav1.ConditionTrue, "PodsPendingEviction"
			c.Message = fmt.Sprintf("%s to be evicted in %s. ", count(pending, "pod needs", "pods need"), count(namespaces, "namespace", "different namespaces"))
		case evicted > 0:
			c.Reason = "Completed"
		default:
			c.Reason = "NotStarted"
		}
		c.Message += count(evicted, "pod", "pods") + " evicted since starting the controller."
	}
	return c
}

// preview says what a rule without effect would do.
func (r *reconciler) preview(rule *resourcev1.DeviceTaintRule) string {
	as := rule.DeepCopy()
	as.Spec.Taint.Effect = resourcev1.DeviceTaintEffectNoExecute
	pending, namespaces := r.pending(as)
	allocated := map[devicetaint.DeviceID]bool{}
	for _, c := range r.selected(rule) {
		all := devices(c)
		for i := range all {
			if d := id(&all[i]); devicetaint.Selects(rule.Spec.DeviceSelector, d) {
				allocated[d] = true
			}
		}
	}
	return fmt.Sprintf("%s selected. %s selected. %s would be evicted in %s if the effect was NoExecute. "+
		"This information will not be updated again. Recreate the DeviceTaintRule to trigger an update.",
		count(r.published(rule), "published device", "published devices"), count(len(allocated), "allocated device", "allocated devices"),
		count(pending, "pod", "pods"), count(namespaces, "namespace", "different namespaces"))
}

// published returns how many devices of the newest generations a rule selects.
func (r *reconciler) published(rule *resourcev1.DeviceTaintRule) (n int) {
	newest := map[string]int64{}
	for _, s := range r.slices.List() {
		pool := poolKey(s.Spec.Driver, s.Spec.Pool.Name)
		newest[pool] = max(newest[pool], s.Spec.Pool.Generation)
	}
	for _, s := range r.slices.List() {
		if s.Spec.Pool.Generation != newest[poolKey(s.Spec.Driver, s.Spec.Pool.Name)] {
			continue
		}
		for i := range s.Spec.Devices {
			if devicetaint.Selects(rule.Spec.DeviceSelector, devicetaint.DeviceID{Driver: s.Spec.Driver, Pool: s.Spec.Pool.Name, Device: s.Spec.Devices[i].Name}) {
				n++
			}
		}
	}
	return n
}

// pending returns how many pods a rule with the effect NoExecute evicts, now or later, and in
// how many namespaces they are.
func (r *reconciler) pending(rule *resourcev1.DeviceTaintRule) (pending, namespaces int) {
	found, in := map[types.UID]bool{}, map[string]bool{}
	for _, c := range r.selected(rule) {
		if !evicts(rule, c) {
			continue
		}
		for _, p := range r.consumers(c) {
			found[p.UID], in[p.Namespace] = true, true
		}
	}
	return len(found), len(in)
}

// evicts reports whether a claim does not tolerate a rule forever.
func evicts(rule *resourcev1.DeviceTaintRule, c *resourcev1.ResourceClaim) bool {
	all := devices(c)
	for i := range all {
		t := taint{DeviceTaint: rule.Spec.Taint, device: &all[i]}
		if devicetaint.Selects(rule.Spec.DeviceSelector, id(t.device)) && t.tolerated() != forever {
			return true
		}
	}
	return false
}

// count returns a number with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", many)
}
