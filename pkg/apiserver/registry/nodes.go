package registry

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/podspec"
	"podium/pkg/scheme"
)

func nodes(k *scheme.Kind, cfg Config) *Kind {
	return Of[*corev1.Node]{
		Default:  defaultNode,
		Prepare:  prepareNode,
		Validate: validateNode,
		Columns:  nodeColumns(),
		Row:      nodeRow,
		Fields: func(n *corev1.Node) fields.Set {
			return fields.Set{"spec.unschedulable": strconv.FormatBool(n.Spec.Unschedulable)}
		},
		AllowUnconditionalUpdate: true,
		Subresources: append([]*Subresource{
			part(k, "status", func(new, old *corev1.Node) { new.Spec = old.Spec }, func(new, _ *corev1.Node) field.ErrorList { return validateNodeStatus(new) }),
		}, stream("proxy", "NodeProxyOptions", cfg.Streams.NodeProxy, proxyMethods())...),
	}.Kind(k)
}

// defaultNode synchronizes podCIDR and podCIDRs, and sets allocatable to capacity
// if it is missing.
func defaultNode(n *corev1.Node) {
	if n.Spec.PodCIDR != "" && len(n.Spec.PodCIDRs) == 0 {
		n.Spec.PodCIDRs = []string{n.Spec.PodCIDR}
	} else if n.Spec.PodCIDR == "" && len(n.Spec.PodCIDRs) > 0 {
		n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
	}
	if n.Status.Allocatable == nil && n.Status.Capacity != nil {
		n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	}
}

// prepareNode keeps the status on update, which only the status subresource
// changes. On create, a kubelet may send a status.
func prepareNode(_ context.Context, _ Backend, new, old *corev1.Node) error {
	if old != nil {
		new.Status = old.Status
	}
	return nil
}

func validateNode(new, old *corev1.Node) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateTaints(new.Spec.Taints, field.NewPath("metadata", "taints"))
	errs = append(errs, validatePodCIDRs(new, path)...)
	//lint:ignore SA1019 the field is there to be refused
	if new.Spec.ConfigSource != nil {
		errs = append(errs, field.Forbidden(path.Child("configSource"), podspec.Unsupported))
	}
	if new.Spec.PodPreemptionPolicy != nil {
		errs = append(errs, field.Forbidden(path.Child("podPreemptionPolicy"), podspec.Unsupported))
	}
	errs = append(errs, validateNodeStatus(new)...)
	if old == nil {
		return errs
	}
	if len(old.Spec.PodCIDRs) > 0 && !slices.Equal(new.Spec.PodCIDRs, old.Spec.PodCIDRs) {
		errs = append(errs, field.Forbidden(path.Child("podCIDRs"), "node updates may not change podCIDR except from \"\" to valid"))
	}
	if old.Spec.ProviderID != "" && new.Spec.ProviderID != old.Spec.ProviderID {
		errs = append(errs, field.Forbidden(path.Child("providerID"), "node updates may not change providerID except from \"\" to valid"))
	}
	if new.Spec.DoNotUseExternalID != old.Spec.DoNotUseExternalID {
		errs = append(errs, field.Forbidden(path.Child("externalID"), "may not be updated"))
	}
	return errs
}

func validateTaints(taints []corev1.Taint, path *field.Path) field.ErrorList {
	type key struct {
		key    string
		effect corev1.TaintEffect
	}
	var errs field.ErrorList
	seen := map[key]bool{}
	for i, t := range taints {
		at := path.Index(i)
		errs = append(errs, metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
		if bad := validation.IsValidLabelValue(t.Value); len(bad) > 0 {
			errs = append(errs, field.Invalid(at.Child("value"), t.Value, strings.Join(bad, ";")))
		}
		errs = append(errs, podspec.ValidateTaintEffect(t.Effect, at.Child("effect"))...)
		if seen[key{t.Key, t.Effect}] {
			duplicate := field.Duplicate(at, t)
			duplicate.Detail = "taints must be unique by key and effect pair"
			errs = append(errs, duplicate)
		}
		seen[key{t.Key, t.Effect}] = true
	}
	return errs
}

func validatePodCIDRs(n *corev1.Node, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	at := path.Child("podCIDRs")
	v6 := 0
	for i, cidr := range n.Spec.PodCIDRs {
		errs = append(errs, validation.IsValidCIDRForLegacyField(at.Index(i), cidr, false, nil)...)
		if strings.Contains(cidr, ":") {
			v6++
		}
	}
	if v6 > 1 || len(n.Spec.PodCIDRs)-v6 > 1 {
		errs = append(errs, field.Invalid(at, n.Spec.PodCIDRs, "may specify no more than one CIDR for each IP family"))
	}
	if len(n.Spec.PodCIDRs) > 0 && n.Spec.PodCIDR != n.Spec.PodCIDRs[0] {
		errs = append(errs, field.Invalid(at.Index(0), n.Spec.PodCIDRs[0], "must be equal to `podCIDR`"))
	}
	return errs
}

func validateNodeStatus(n *corev1.Node) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("status")
	for _, list := range []struct {
		name string
		list corev1.ResourceList
	}{{"capacity", n.Status.Capacity}, {"allocatable", n.Status.Allocatable}} {
		errs = append(errs, podspec.ValidateQuantities(list.list, path.Child(list.name))...)
	}
	for i, a := range n.Status.Addresses {
		if slices.Contains(n.Status.Addresses[:i], a) {
			errs = append(errs, field.Duplicate(path.Child("addresses").Index(i), a))
		}
	}
	return errs
}

func nodeColumns() []metav1.TableColumnDefinition {
	info, status := corev1.NodeSystemInfo{}.SwaggerDoc(), corev1.NodeStatus{}.SwaggerDoc()
	return append(columns(
		column("Status", "The status of the node"),
		column("Roles", "The roles of the node"),
		ageColumn(),
		column("Version", info["kubeletVersion"]),
	), wide(
		column("Internal-IP", status["addresses"]),
		column("External-IP", status["addresses"]),
		column("OS-Image", info["osImage"]),
		column("Kernel-Version", info["kernelVersion"]),
		column("Container-Runtime", info["containerRuntimeVersion"]),
	)...)
}

func nodeRow(n *corev1.Node, now time.Time) []any {
	info := &n.Status.NodeInfo
	return []any{
		n.Name, nodeStatus(n), orNone(strings.Join(nodeRoles(n), ",")), age(n.CreationTimestamp, now), info.KubeletVersion,
		orNone(nodeAddress(n, corev1.NodeInternalIP)), orNone(nodeAddress(n, corev1.NodeExternalIP)),
		orUnknown(info.OSImage), orUnknown(info.KernelVersion), orUnknown(info.ContainerRuntimeVersion),
	}
}

func orUnknown(s string) string {
	if s == "" {
		return "<unknown>"
	}
	return s
}

func nodeStatus(n *corev1.Node) string {
	status := "Unknown"
	for _, c := range n.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		status = "NotReady"
		if c.Status == corev1.ConditionTrue {
			status = "Ready"
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

// nodeRoles returns the roles in the labels node-role.kubernetes.io/ROLE and
// kubernetes.io/role=ROLE, sorted.
func nodeRoles(n *corev1.Node) []string {
	var roles []string
	for key, value := range n.Labels {
		if role, ok := strings.CutPrefix(key, "node-role.kubernetes.io/"); ok && role != "" {
			roles = append(roles, role)
		} else if key == "kubernetes.io/role" && value != "" {
			roles = append(roles, value)
		}
	}
	slices.Sort(roles)
	return slices.Compact(roles)
}

func nodeAddress(n *corev1.Node, t corev1.NodeAddressType) string {
	for _, a := range n.Status.Addresses {
		if a.Type == t {
			return a.Address
		}
	}
	return ""
}
