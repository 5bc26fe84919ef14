package why

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/deviceselector"
	"podium/pkg/resourceclaim"
	"podium/pkg/scheduler/allocation"
	"podium/pkg/scheduler/plugins/dynamicresources"
)

// Resources of the group resource.k8s.io.
const (
	claimResource    = "resourceclaims.resource.k8s.io"
	templateResource = "resourceclaimtemplates.resource.k8s.io"
	classResource    = "deviceclasses.resource.k8s.io"
	sliceResource    = "resourceslices.resource.k8s.io"
	ruleResource     = "devicetaintrules.resource.k8s.io"
)

// deviceStory tells of the claims of a pod, and knows of the devices if the scheduler has found
// none.
func deviceStory(s *story, pod *corev1.Pod) {
	for i := range pod.Spec.ResourceClaims {
		entry := &pod.Spec.ResourceClaims[i]
		name, made := resourceclaim.Name(pod, entry)
		switch {
		case !made && entry.ResourceClaimTemplateName != nil:
			s.also(s.get(templateResource, pod.Namespace, *entry.ResourceClaimTemplateName), s.get("leases.coordination.k8s.io", metav1.NamespaceSystem, "kube-controller-manager"))
		case name != "":
			if claim := s.get(claimResource, pod.Namespace, name); claim != nil {
				s.tell(claim)
			}
		}
	}
	if status := pod.Status.ExtendedResourceClaimStatus; status != nil {
		if claim := s.get(claimResource, pod.Namespace, status.ResourceClaimName); claim != nil {
			s.tell(claim)
		}
	}
	if message, _ := answer(s.f, pod); strings.Contains(message, allocation.ErrNoFit.Error()) {
		for _, resource := range []string{classResource, sliceResource, ruleResource} {
			s.also(s.list(resource, "", "", "")...)
		}
	}
}

// deviceClaimStory tells of the pods that use a claim.
func deviceClaimStory(s *story, o *Object) {
	if o != s.f.Subject {
		return
	}
	claim := as[resourcev1.ResourceClaim](o)
	var ours []*Object
	for _, p := range s.list("pods", o.GetNamespace(), "", "") {
		if uses(as[corev1.Pod](p), claim) {
			ours = append(ours, p)
		}
	}
	s.pods(ours)
}

func uses(p *corev1.Pod, claim *resourcev1.ResourceClaim) bool {
	for i := range p.Spec.ResourceClaims {
		if name, _ := resourceclaim.Name(p, &p.Spec.ResourceClaims[i]); name == claim.Name {
			return true
		}
	}
	s := p.Status.ExtendedResourceClaimStatus
	return s != nil && s.ResourceClaimName == claim.Name
}

// deviceClaim explains claims without devices, and devices that are not ready.
func deviceClaim(f *Facts, c *resourcev1.ResourceClaim) (out []Finding) {
	if c.DeletionTimestamp != nil {
		return nil
	}
	for _, d := range c.Status.Devices {
		for _, cond := range d.Conditions {
			if cond.Type == "Ready" && cond.Status == metav1.ConditionFalse {
				out = append(out, found(likely, "the device %s/%s/%s of the claim %s is not ready: %s", d.Driver, d.Pool, d.Device, c.Name, oneLine(cond.Message)).
					by(fmt.Sprintf("condition Ready=False (%s): %s", cond.Reason, cond.Message)).fix("look at the driver %s on the node of the device", d.Driver))
			}
		}
	}
	if c.Status.Allocation != nil {
		return out
	}
	for _, p := range each[corev1.Pod](f, "Pod") {
		if p.Namespace == c.Namespace && uses(p, c) {
			return append(out, found(effect, "the claim %s gets devices when pod/%s is scheduled", c.Name, p.Name).by("no status.allocation"))
		}
	}
	if f.knows("pods", c.Namespace) {
		out = append(out, found(likely, "the claim %s waits for a pod that uses it: devices are allocated when a pod is scheduled", c.Name).by("no status.allocation").
			fix("name the claim in spec.resourceClaims of a pod"))
	}
	return out
}

// awaited explains pods that have devices, and are bound to a node when these are ready. What the
// scheduler said before does not count.
func awaited(f *Facts, p *corev1.Pod) []Finding {
	var devices []string
	for _, c := range each[resourcev1.ResourceClaim](f, "ResourceClaim") {
		if c.Namespace == p.Namespace && uses(p, c) && slices.ContainsFunc(c.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == p.UID }) {
			devices = append(devices, dynamicresources.Awaited(c)...)
		}
	}
	if len(devices) == 0 {
		return nil
	}
	return []Finding{found(root, "the pod has devices that are not ready yet: %s", strings.Join(devices, "; ")).
		by("status.devices of its ResourceClaims: these binding conditions are not True").fix("look at the logs of the DRA driver, or of the controller that makes its devices ready")}
}

// unprepared explains pods whose devices their node cannot prepare.
func unprepared(f *Facts, p *corev1.Pod) []Finding {
	e := f.event("Pod", p.Name, "FailedPrepareDynamicResources")
	if e == nil || p.DeletionTimestamp != nil || started(p) {
		return nil
	}
	if m := unregistered.FindStringSubmatch(e.Message); m != nil {
		return []Finding{found(root, "the DRA driver %s, which prepares the pod's devices, does not run on node %s", m[1], p.Spec.NodeName).by(f.said(e)).
			fix("is the driver's pod on the node ready? podium get pods -A -o wide --field-selector spec.nodeName=%s", p.Spec.NodeName)}
	}
	return []Finding{found(root, "node %s cannot prepare the pod's devices: %s", p.Spec.NodeName, oneLine(tail(e.Message, "dynamic resources: "))).by(f.said(e)).
		fix("look at the logs of the DRA driver on node %s", p.Spec.NodeName)}
}

// unhealthyDevices explains pods by the health of their devices.
func unhealthyDevices(_ *Facts, p *corev1.Pod) (out []Finding) {
	for _, c := range statuses(p) {
		for _, r := range c.AllocatedResourcesStatus {
			for _, d := range r.Resources {
				if d.Health != corev1.ResourceHealthStatusUnhealthy {
					continue
				}
				message := ""
				if d.Message != nil {
					message = ": " + oneLine(*d.Message)
				}
				out = append(out, found(likely, "the device %s of container %s is unhealthy%s", d.ResourceID, c.Name, message).
					by(fmt.Sprintf("allocatedResourcesStatus %s: %s", r.Name, d.Health)).fix("repair the device, or delete the pod so that it gets another one"))
			}
		}
	}
	return out
}

var unregistered = regexp.MustCompile(`DRA driver (\S+) is not registered`)

// deviceReasons are the scheduler's reasons that are about a pod's ResourceClaims. The
// explanations get what the pattern's group has matched.
var deviceReasons = []struct {
	pattern *regexp.Regexp
	explain func(f *Facts, p *corev1.Pod, matched string) Finding
}{
	{regexp.MustCompile(`^resourceclaim "([^"]+)" not found`), func(_ *Facts, p *corev1.Pod, name string) Finding {
		return found(root, "the ResourceClaim %q of the pod does not exist", name).fix("create the claim in namespace %s, or correct resourceClaimName", p.Namespace)
	}},
	{regexp.MustCompile(`device class (\S+) does not exist`), func(_ *Facts, _ *corev1.Pod, name string) Finding {
		return found(root, "the DeviceClass %q that a claim of the pod names does not exist", name).fix("podium get deviceclasses; create the class, or name one that exists in a new claim")
	}},
	{regexp.MustCompile(`waiting for dynamic resource controller to create the resourceclaim "([^"]+)"`), unmadeClaim},
	{regexp.MustCompile(`^(` + allocation.ErrNoFit.Error() + `)$`), noDevices},
	{regexp.MustCompile(`(.*CEL .*)`), func(_ *Facts, _ *corev1.Pod, text string) Finding {
		return found(root, "a selector of the pod's claims fails: %s", text).fix("correct the selector in the DeviceClass, or in a new claim")
	}},
	{regexp.MustCompile(`(resourceclaim not available on the node)`), func(f *Facts, p *corev1.Pod, _ string) Finding {
		return found(root-1, "the devices of the pod's claim are elsewhere: %s", placesOf(f, p)).fix("make room on the nodes that can use the devices, or delete the other pods that use the claim")
	}},
	{regexp.MustCompile(`waiting for resourceclaim "([^"]+)" of an earlier attempt to be deleted`), leftClaim},
	{regexp.MustCompile(`(resourceclaim in use)`), func(*Facts, *corev1.Pod, string) Finding {
		return found(root, "as many pods as possible (%d) use the claim of the pod", resourcev1.ResourceClaimReservedForMaxSize).fix("use another claim, or a ResourceClaimTemplate")
	}},
	{regexp.MustCompile(`binding of devices failed: (.*)`), func(_ *Facts, _ *corev1.Pod, text string) Finding {
		return found(root, "the devices of the pod were not made ready: %s", text).fix("look at the logs of the DRA driver that has to set the binding conditions")
	}},
}

// explainDevices explains a scheduler's reason that is about a pod's ResourceClaims; nil if it
// is about something else.
func explainDevices(f *Facts, p *corev1.Pod, text string) *Finding {
	for _, r := range deviceReasons {
		if m := r.pattern.FindStringSubmatch(text); m != nil {
			out := r.explain(f, p, m[1])
			return &out
		}
	}
	return nil
}

// unmadeClaim explains an entry whose claim was not made of its template.
func unmadeClaim(f *Facts, p *corev1.Pod, entry string) Finding {
	for _, c := range p.Spec.ResourceClaims {
		if c.Name == entry && c.ResourceClaimTemplateName != nil && f.missing(templateResource, p.Namespace, *c.ResourceClaimTemplateName) {
			return found(root, "the ResourceClaimTemplate %q of the pod does not exist", *c.ResourceClaimTemplateName).fix("create the template in namespace %s, or correct resourceClaimTemplateName in a new pod", p.Namespace)
		}
	}
	if why := stale(f, "kube-controller-manager"); why != "" {
		return found(root, "the pod's ResourceClaims are made by kube-controller-manager, which is not running").by(why).fix("systemctl status kube-controller-manager on a control plane")
	}
	if e := f.event("Pod", p.Name, "FailedResourceClaimCreation"); e != nil {
		return found(root, "the ResourceClaim %q of the pod cannot be made: %s", entry, oneLine(e.Message)).by(f.said(e)).fix("correct the ResourceClaimTemplate, then create the pod again")
	}
	return found(likely, "the ResourceClaim %q of the pod has not been made yet", entry)
}

// leftClaim explains a claim for extended resources that an attempt of the scheduler has left.
func leftClaim(f *Facts, _ *corev1.Pod, name string) Finding {
	if why := stale(f, "kube-controller-manager"); why != "" {
		return found(root, "the ResourceClaim %s of an earlier attempt has to be deleted by kube-controller-manager, which is not running", name).by(why).fix("systemctl status kube-controller-manager on a control plane")
	}
	return found(likely, "the ResourceClaim %s of an earlier attempt has not been deleted yet", name)
}

// placesOf returns the pools of the devices that the pod's claims have.
func placesOf(f *Facts, p *corev1.Pod) string {
	var out []string
	for _, c := range each[resourcev1.ResourceClaim](f, "ResourceClaim") {
		if c.Status.Allocation == nil || c.Namespace != p.Namespace || !uses(p, c) {
			continue
		}
		for _, d := range c.Status.Allocation.Devices.Results {
			out = append(out, fmt.Sprintf("%s has %s/%s/%s", c.Name, d.Driver, d.Pool, d.Device))
		}
	}
	if len(out) == 0 {
		return "it is allocated to nodes that do not take the pod"
	}
	return strings.Join(out, ", ")
}

// noDevices says why the claims of a pod get no devices: there are none of the kind, they are
// tainted, or other claims have them.
func noDevices(f *Facts, p *corev1.Pod, _ string) Finding {
	wants, claims := wanted(f, p)
	published := each[resourcev1.ResourceSlice](f, "ResourceSlice")
	switch {
	case len(claims) == 0 || !f.knows(sliceResource, "") || !f.knows("nodes", ""):
		return found(root, "no node has free devices that the pod's claims ask for").fix("podium get resourceslices; podium get resourceclaims -A")
	case len(published) == 0:
		return found(root, "no driver has published devices: there is no ResourceSlice").fix("install the DRA driver of the devices, or look at its pods: podium get pods -A")
	case !anyFits(f, claims, withoutTaints(published), nil):
		return found(root, "no node has devices like those that the pod asks for: %s", wants).fix("compare the selectors with podium get resourceslices -o yaml, and correct them in a new claim")
	case !anyFits(f, claims, published, each[resourcev1.DeviceTaintRule](f, "DeviceTaintRule")):
		return found(root, "the devices that the pod asks for have taints that its claims do not tolerate: %s", wants).
			fix("podium get devicetaintrules; repair the devices and remove the taints, or add tolerations to a new claim")
	}
	return found(root, "other claims have the devices that the pod asks for: %s", wants).fix("podium get resourceclaims -A; delete pods that use such claims, or add devices")
}

// withoutTaints returns the slices as if no device had a taint.
func withoutTaints(slices []*resourcev1.ResourceSlice) (out []*resourcev1.ResourceSlice) {
	for _, s := range slices {
		s = s.DeepCopy()
		for i := range s.Spec.Devices {
			s.Spec.Devices[i].Taints = nil
		}
		out = append(out, s)
	}
	return out
}

// wanted returns the claims without devices of a pod, with a text of what they ask for; none if not
// all are known.
func wanted(f *Facts, p *corev1.Pod) (text string, claims []allocation.Claim) {
	var names []string
	for i := range p.Spec.ResourceClaims {
		name, _ := resourceclaim.Name(p, &p.Spec.ResourceClaims[i])
		c := one[resourcev1.ResourceClaim](f, "ResourceClaim", p.Namespace, name)
		if name == "" || c != nil && c.Status.Allocation != nil {
			continue
		}
		if c == nil {
			return "", nil
		}
		claims = append(claims, allocation.Claim{Name: c.Name, Spec: &c.Spec})
		for _, r := range c.Spec.Devices.Requests {
			names = append(names, fmt.Sprintf("claim %s: %s", c.Name, requestText(&r)))
		}
	}
	if spec := dynamicresources.ExtendedClaim(p, each[resourcev1.DeviceClass](f, "DeviceClass")); spec != nil {
		claims = append(claims, allocation.Claim{Name: "extended resources", Spec: spec})
		for _, r := range spec.Devices.Requests {
			names = append(names, "extended resources: "+requestText(&r))
		}
	}
	return strings.Join(names, ", "), claims
}

func requestText(r *resourcev1.DeviceRequest) string {
	one := func(class string, mode resourcev1.DeviceAllocationMode, count int64) string {
		if mode == resourcev1.DeviceAllocationModeAll {
			return "all of class " + class
		}
		return fmt.Sprintf("%d of class %s", max(count, 1), class)
	}
	if e := r.Exactly; e != nil {
		return one(e.DeviceClassName, e.AllocationMode, e.Count)
	}
	var out []string
	for _, s := range r.FirstAvailable {
		out = append(out, one(s.DeviceClassName, s.AllocationMode, s.Count))
	}
	return strings.Join(out, " or ")
}

// anyFits reports whether a node has devices for the claims, if no other claim has any.
func anyFits(f *Facts, claims []allocation.Claim, slices []*resourcev1.ResourceSlice, rules []*resourcev1.DeviceTaintRule) bool {
	index := allocation.NewIndex()
	for _, s := range slices {
		index.SetSlice(s)
	}
	for _, r := range rules {
		index.SetRule(r)
	}
	class := func(name string) *resourcev1.DeviceClass {
		return one[resourcev1.DeviceClass](f, "DeviceClass", "", name)
	}
	problem, err := allocation.NewProblem(claims, class, deviceselector.NewCompiler(), index, allocation.NewUsage())
	if err != nil {
		return false
	}
	for _, n := range each[corev1.Node](f, "Node") {
		if _, err := problem.On(n); err == nil {
			return true
		}
	}
	return false
}
