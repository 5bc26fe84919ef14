package v1alpha1

import (
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	maxName  = 40  // leaves room for the node's suffix in a name of at most 63 characters
	maxNodes = 200 // limited by the addresses of the cluster's network
)

// Validate returns all errors of a Cluster with its defaults set.
func (c *Cluster) Validate() field.ErrorList {
	var errs field.ErrorList
	name := field.NewPath("metadata", "name")
	for _, msg := range validation.IsDNS1123Label(c.Metadata.Name) {
		errs = append(errs, field.Invalid(name, c.Metadata.Name, msg))
	}
	if len(c.Metadata.Name) > maxName {
		errs = append(errs, field.TooLong(name, c.Metadata.Name, maxName))
	}
	errs = append(errs, c.validateNodes(field.NewPath("nodes"))...)
	errs = append(errs, c.validateCloud()...)
	if levels := []string{PodSecurityPrivileged, PodSecurityBaseline, PodSecurityRestricted}; !slices.Contains(levels, c.PodSecurity) {
		errs = append(errs, field.NotSupported(field.NewPath("podSecurity"), c.PodSecurity, levels))
	}
	return append(errs, c.Networking.validate(field.NewPath("networking"))...)
}

func (c *Cluster) validateCloud() (errs field.ErrorList) {
	if c.CloudProvider != CloudDocker && c.CloudProvider != CloudNone {
		errs = append(errs, field.NotSupported(field.NewPath("cloudProvider"), c.CloudProvider, []string{CloudDocker, CloudNone}))
	}
	if c.Networking.PodNetwork == PodNetworkCloud && c.CloudProvider == CloudNone {
		errs = append(errs, field.Invalid(field.NewPath("networking", "podNetwork"), PodNetworkCloud, "needs a cloudProvider"))
	}
	for i, n := range c.Nodes {
		at := field.NewPath("nodes").Index(i).Child("zone")
		for _, msg := range validation.IsValidLabelValue(n.Zone) {
			errs = append(errs, field.Invalid(at, n.Zone, msg))
		}
		if n.Zone != "" && c.CloudProvider == CloudNone {
			errs = append(errs, field.Forbidden(at, "only a cloud provider applies it: set the node label "+corev1.LabelTopologyZone))
		}
	}
	return errs
}

func (c *Cluster) validateNodes(path *field.Path) (errs field.ErrorList) {
	if len(c.Nodes) > maxNodes {
		errs = append(errs, field.TooMany(path, len(c.Nodes), maxNodes))
	}
	planes := 0
	ports := map[string]*field.Path{}
	if n := c.Networking; n.APIServerPort != 0 {
		ports[hostPort(n.APIServerAddress, n.APIServerPort, corev1.ProtocolTCP)] = field.NewPath("networking", "apiServerPort")
	}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if n.Role == ControlPlane {
			planes++
		}
		errs = append(errs, n.validate(path.Index(i))...)
		for j, m := range n.ExtraPortMappings {
			at := path.Index(i).Child("extraPortMappings").Index(j).Child("hostPort")
			if c.Networking.IPFamily == IPv6 {
				errs = append(errs, field.Forbidden(at, "the engine leads ports of the host to IPv4 addresses, at which a cluster of family ipv6 does not serve node ports"))
			}
			key := hostPort(m.ListenAddress, m.HostPort, m.Protocol)
			if first := ports[key]; first != nil && m.HostPort > 0 {
				errs = append(errs, field.Invalid(at, m.HostPort, fmt.Sprintf("%s is taken by %s", key, first)))
			} else {
				ports[key] = at
			}
		}
	}
	if planes != 1 && planes != 3 {
		errs = append(errs, field.Invalid(path, planes, "there must be 1 control plane, or 3 for high availability"))
	}
	return errs
}

func hostPort(address string, port int32, protocol corev1.Protocol) string {
	return address + ":" + strconv.Itoa(int(port)) + "/" + string(protocol)
}

func (n *Node) validate(path *field.Path) (errs field.ErrorList) {
	switch n.Role {
	case ControlPlane, Worker:
	case "":
		errs = append(errs, field.Required(path.Child("role"), "control-plane or worker"))
	default:
		errs = append(errs, field.NotSupported(path.Child("role"), n.Role, []Role{ControlPlane, Worker}))
	}
	if strings.ContainsAny(n.Image, " \t\n") || strings.HasPrefix(n.Image, "-") {
		errs = append(errs, field.Invalid(path.Child("image"), n.Image, "is not the name of an image"))
	}
	errs = append(errs, validateLabels(n.Labels, path.Child("labels"))...)
	errs = append(errs, validateTaints(n.Taints, path.Child("taints"))...)
	errs = append(errs, validateMounts(n.ExtraMounts, path.Child("extraMounts"))...)
	for i, m := range n.ExtraPortMappings {
		errs = append(errs, m.validate(path.Child("extraPortMappings").Index(i))...)
	}
	errs = append(errs, validateReserved(n.KubeReserved, path.Child("kubeReserved"))...)
	return append(errs, validateReserved(n.SystemReserved, path.Child("systemReserved"))...)
}

// validateLabels checks the syntax of labels, and that a kubelet may set them
// on its node: only a few below kubernetes.io and k8s.io are allowed.
func validateLabels(labels map[string]string, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabels(labels, path)
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		prefix, _, found := strings.Cut(key, "/")
		if found && reserved(prefix) && !slices.Contains(ownLabels, key) && !below(prefix, "kubelet.kubernetes.io") && !below(prefix, "node.kubernetes.io") {
			errs = append(errs, field.Invalid(path.Key(key), key, "a node may not give itself labels below kubernetes.io and k8s.io, but for kubelet.kubernetes.io/, node.kubernetes.io/ and "+strings.Join(ownLabels, ", ")))
		}
	}
	return errs
}

var ownLabels = []string{
	corev1.LabelTopologyRegion, corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaRegion, corev1.LabelFailureDomainBetaZone,
	corev1.LabelInstanceType, corev1.LabelInstanceTypeStable, corev1.LabelOSStable, corev1.LabelArchStable, corev1.LabelHostname,
}

func reserved(prefix string) bool { return below(prefix, "kubernetes.io") || below(prefix, "k8s.io") }

func below(domain, parent string) bool {
	return domain == parent || strings.HasSuffix(domain, "."+parent)
}

func validateTaints(taints []corev1.Taint, path *field.Path) (errs field.ErrorList) {
	type identity struct {
		key    string
		effect corev1.TaintEffect
	}
	seen := map[identity]bool{}
	effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	for i, t := range taints {
		at := path.Index(i)
		for _, msg := range validation.IsQualifiedName(t.Key) {
			errs = append(errs, field.Invalid(at.Child("key"), t.Key, msg))
		}
		for _, msg := range validation.IsValidLabelValue(t.Value) {
			errs = append(errs, field.Invalid(at.Child("value"), t.Value, msg))
		}
		if !slices.Contains(effects, t.Effect) {
			errs = append(errs, field.NotSupported(at.Child("effect"), t.Effect, effects))
		}
		if t.TimeAdded != nil {
			errs = append(errs, field.Forbidden(at.Child("timeAdded"), "is written by the cluster"))
		}
		if id := (identity{t.Key, t.Effect}); seen[id] {
			errs = append(errs, field.Duplicate(at, t.Key+":"+string(t.Effect)))
		} else {
			seen[id] = true
		}
	}
	return errs
}

func validateMounts(mounts []Mount, at *field.Path) (errs field.ErrorList) {
	seen := map[string]bool{}
	for i, m := range mounts {
		if m.HostPath == "" {
			errs = append(errs, field.Required(at.Index(i).Child("hostPath"), "a folder or file of the host"))
		}
		target := at.Index(i).Child("containerPath")
		switch {
		case !path.IsAbs(m.ContainerPath) || path.Clean(m.ContainerPath) == "/":
			errs = append(errs, field.Invalid(target, m.ContainerPath, "must be an absolute path below /"))
		case seen[path.Clean(m.ContainerPath)]:
			errs = append(errs, field.Duplicate(target, m.ContainerPath))
		}
		seen[path.Clean(m.ContainerPath)] = true
		for name, text := range map[string]string{"hostPath": m.HostPath, "containerPath": m.ContainerPath} {
			if strings.ContainsAny(text, ",\"\x00\n") { // separators of the engine's mount syntax
				errs = append(errs, field.Invalid(at.Index(i).Child(name), text, `may not contain ',', '"' or line breaks`))
			}
		}
	}
	return errs
}

func (m *PortMapping) validate(path *field.Path) (errs field.ErrorList) {
	for _, p := range []struct {
		name string
		port int32
	}{{"containerPort", m.ContainerPort}, {"hostPort", m.HostPort}} {
		for _, msg := range validation.IsValidPortNum(int(p.port)) {
			errs = append(errs, field.Invalid(path.Child(p.name), p.port, msg))
		}
	}
	errs = append(errs, validateAddress(m.ListenAddress, path.Child("listenAddress"))...)
	protocols := []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}
	if !slices.Contains(protocols, m.Protocol) {
		errs = append(errs, field.NotSupported(path.Child("protocol"), m.Protocol, protocols))
	}
	return errs
}

func validateAddress(text string, path *field.Path) field.ErrorList {
	if _, err := netip.ParseAddr(text); err != nil {
		return field.ErrorList{field.Invalid(path, text, "is not an IP address")}
	}
	return nil
}

func validateReserved(list map[string]resource.Quantity, path *field.Path) (errs field.ErrorList) {
	known := []string{string(corev1.ResourceCPU), string(corev1.ResourceMemory), string(corev1.ResourceEphemeralStorage), "pid"}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		q := list[name]
		if !slices.Contains(known, name) {
			errs = append(errs, field.NotSupported(path.Key(name), name, known))
		}
		if q.Sign() < 0 {
			errs = append(errs, field.Invalid(path.Key(name), q.String(), "must not be negative"))
		}
	}
	return errs
}

func (n *Networking) validate(path *field.Path) (errs field.ErrorList) {
	switch n.IPFamily {
	case IPv4, IPv6:
	case "dual":
		errs = append(errs, field.Invalid(path.Child("ipFamily"), n.IPFamily, "dual-stack is not available: choose ipv4 or ipv6"))
	default:
		errs = append(errs, field.NotSupported(path.Child("ipFamily"), n.IPFamily, []string{IPv4, IPv6}))
	}
	podBits, serviceBits := bounds{8, 22}, bounds{12, 24}
	if n.IPFamily == IPv6 {
		podBits, serviceBits = bounds{48, 62}, bounds{64, 120} // a node has a /64
	}
	pods, podErrs := n.subnet(n.PodSubnet, podBits, path.Child("podSubnet"))
	services, serviceErrs := n.subnet(n.ServiceSubnet, serviceBits, path.Child("serviceSubnet"))
	errs = append(append(errs, podErrs...), serviceErrs...)
	if pods.IsValid() && services.IsValid() && pods.Overlaps(services) {
		errs = append(errs, field.Invalid(path.Child("serviceSubnet"), n.ServiceSubnet, "overlaps with podSubnet "+n.PodSubnet))
	}
	for _, msg := range validation.IsDNS1123Subdomain(n.DNSDomain) {
		errs = append(errs, field.Invalid(path.Child("dnsDomain"), n.DNSDomain, msg))
	}
	networks := []string{PodNetworkRoutes, PodNetworkVXLAN, PodNetworkCloud, PodNetworkNone}
	if !slices.Contains(networks, n.PodNetwork) {
		errs = append(errs, field.NotSupported(path.Child("podNetwork"), n.PodNetwork, networks))
	}
	errs = append(errs, validateAddress(n.APIServerAddress, path.Child("apiServerAddress"))...)
	if n.APIServerPort != 0 {
		for _, msg := range validation.IsValidPortNum(int(n.APIServerPort)) {
			errs = append(errs, field.Invalid(path.Child("apiServerPort"), n.APIServerPort, msg))
		}
	}
	return errs
}

// bounds are the limits of a range's prefix length.
type bounds struct{ shortest, longest int }

// subnet parses a range of the cluster's IP family with a prefix length within
// bits.
func (n *Networking) subnet(text string, bits bounds, path *field.Path) (netip.Prefix, field.ErrorList) {
	invalid := func(format string, args ...any) field.ErrorList {
		return field.ErrorList{field.Invalid(path, text, fmt.Sprintf(format, args...))}
	}
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return netip.Prefix{}, invalid("is not a range like 10.244.0.0/16")
	case p.Addr().Is6() != (n.IPFamily == IPv6):
		return netip.Prefix{}, invalid("is of another address family than networking.ipFamily, %s", n.IPFamily)
	case p != p.Masked():
		return netip.Prefix{}, invalid("has bits set behind its length: did you mean %s?", p.Masked())
	case p.Bits() < bits.shortest || p.Bits() > bits.longest:
		return netip.Prefix{}, invalid("must be from /%d to /%d long", bits.shortest, bits.longest)
	}
	return p, nil
}
