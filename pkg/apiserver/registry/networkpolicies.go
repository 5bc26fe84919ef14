package registry

import (
	"iter"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"podium/pkg/fieldcheck"
	"podium/pkg/scheme"
)

func networkPolicies(k *scheme.Kind, _ Config) *Kind {
	return Of[*networkingv1.NetworkPolicy]{
		Default:  defaultNetworkPolicy,
		Prepare:  counted(func(p *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicySpec { return &p.Spec }),
		Validate: validateNetworkPolicy,
		Warnings: func(new, _ *networkingv1.NetworkPolicy) (out []string) {
			for r := range policyRules(&new.Spec) {
				for i := range r.peers {
					if block := r.peers[i].IPBlock; block != nil {
						out = append(out, blockWarnings(block, r.peersAt.Index(i).Child("ipBlock"))...)
					}
				}
			}
			return out
		},
		Columns: columns(column("Pod-Selector", networkingv1.NetworkPolicySpec{}.SwaggerDoc()["podSelector"]), ageColumn()),
		Row: func(p *networkingv1.NetworkPolicy, now time.Time) []any {
			return []any{p.Name, metav1.FormatLabelSelector(&p.Spec.PodSelector), age(p.CreationTimestamp, now)}
		},
		AllowUnconditionalUpdate: true,
		NoController:             true,
	}.Kind(k)
}

// policyRule is an ingress or an egress rule of a policy.
type policyRule struct {
	ports            []networkingv1.NetworkPolicyPort
	peers            []networkingv1.NetworkPolicyPeer
	portsAt, peersAt *field.Path
}

// policyRules returns all rules of a policy, those for ingress first.
func policyRules(spec *networkingv1.NetworkPolicySpec) iter.Seq[policyRule] {
	return func(yield func(policyRule) bool) {
		path := field.NewPath("spec")
		for i := range spec.Ingress {
			r, at := &spec.Ingress[i], path.Child("ingress").Index(i)
			if !yield(policyRule{r.Ports, r.From, at.Child("ports"), at.Child("from")}) {
				return
			}
		}
		for i := range spec.Egress {
			r, at := &spec.Egress[i], path.Child("egress").Index(i)
			if !yield(policyRule{r.Ports, r.To, at.Child("ports"), at.Child("to")}) {
				return
			}
		}
	}
}

// defaultNetworkPolicy sets the protocol of ports, and the policy types that the
// rules imply.
func defaultNetworkPolicy(p *networkingv1.NetworkPolicy) {
	for r := range policyRules(&p.Spec) {
		for i := range r.ports {
			if r.ports[i].Protocol == nil {
				r.ports[i].Protocol = new(corev1.ProtocolTCP)
			}
		}
	}
	if len(p.Spec.PolicyTypes) > 0 {
		return
	}
	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	if len(p.Spec.Egress) > 0 {
		p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
	}
}

func validateNetworkPolicy(new, old *networkingv1.NetworkPolicy) field.ErrorList {
	path := field.NewPath("spec")
	check := peerCheck{}
	if old != nil {
		check.lenient.AllowInvalidLabelValueInSelector = len(metavalidation.ValidateLabelSelector(&old.Spec.PodSelector, check.lenient, nil)) > 0
		check.known = policyCIDRs(&old.Spec)
	}
	errs := metavalidation.ValidateLabelSelector(&new.Spec.PodSelector, check.lenient, path.Child("podSelector"))
	for r := range policyRules(&new.Spec) {
		for i := range r.ports {
			errs = append(errs, validatePolicyPort(&r.ports[i], r.portsAt.Index(i))...)
		}
		for i := range r.peers {
			errs = append(errs, check.peer(&r.peers[i], r.peersAt.Index(i))...)
		}
	}
	types := path.Child("policyTypes")
	if len(new.Spec.PolicyTypes) > 2 {
		return append(errs, field.Invalid(types, new.Spec.PolicyTypes, "may not specify more than two policyTypes"))
	}
	for i, t := range new.Spec.PolicyTypes {
		errs = append(errs, fieldcheck.Supported(t, types.Index(i), networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress)...)
	}
	return errs
}

// policyCIDRs returns all CIDRs of a policy.
func policyCIDRs(spec *networkingv1.NetworkPolicySpec) (out []string) {
	for r := range policyRules(spec) {
		for i := range r.peers {
			if block := r.peers[i].IPBlock; block != nil {
				out = append(append(out, block.CIDR), block.Except...)
			}
		}
	}
	return out
}

func validatePolicyPort(p *networkingv1.NetworkPolicyPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p.Protocol != nil {
		errs = append(errs, fieldcheck.Supported(*p.Protocol, path.Child("protocol"), corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)...)
	}
	port, end := path.Child("port"), path.Child("endPort")
	switch {
	case p.Port == nil:
		if p.EndPort != nil {
			errs = append(errs, field.Invalid(end, *p.EndPort, "may not be specified when `port` is not specified"))
		}
	case p.Port.Type == intstr.Int:
		errs = append(errs, fieldcheck.Invalid(validation.IsValidPortNum(int(p.Port.IntVal)), port, p.Port.IntVal)...)
		if p.EndPort == nil {
			break
		}
		if *p.EndPort < p.Port.IntVal {
			errs = append(errs, field.Invalid(end, *p.EndPort, "must be greater than or equal to `port`"))
		}
		errs = append(errs, fieldcheck.Invalid(validation.IsValidPortNum(int(*p.EndPort)), end, *p.EndPort)...)
	default:
		if p.EndPort != nil {
			errs = append(errs, field.Invalid(end, *p.EndPort, "may not be specified when `port` is non-numeric"))
		}
		errs = append(errs, fieldcheck.Invalid(validation.IsValidPortName(p.Port.StrVal), port, p.Port.StrVal)...)
	}
	return errs
}

// peerCheck validates peers. What the stored policy has stays valid.
type peerCheck struct {
	lenient metavalidation.LabelSelectorValidationOptions
	known   []string // CIDRs of the stored policy
}

func (c *peerCheck) peer(p *networkingv1.NetworkPolicyPeer, path *field.Path) field.ErrorList {
	if p.PodSelector == nil && p.NamespaceSelector == nil && p.IPBlock == nil {
		return field.ErrorList{field.Required(path, "must specify a peer")}
	}
	var errs field.ErrorList
	if p.PodSelector != nil {
		errs = append(errs, metavalidation.ValidateLabelSelector(p.PodSelector, c.lenient, path.Child("podSelector"))...)
	}
	if p.NamespaceSelector != nil {
		errs = append(errs, metavalidation.ValidateLabelSelector(p.NamespaceSelector, c.lenient, path.Child("namespaceSelector"))...)
	}
	if p.IPBlock != nil {
		errs = append(errs, c.block(p.IPBlock, path.Child("ipBlock"))...)
		if p.PodSelector != nil || p.NamespaceSelector != nil {
			errs = append(errs, field.Forbidden(path, "may not specify both ipBlock and another peer"))
		}
	}
	return errs
}

func (c *peerCheck) block(b *networkingv1.IPBlock, path *field.Path) field.ErrorList {
	cidr := path.Child("cidr")
	if b.CIDR == "" {
		return field.ErrorList{field.Required(cidr, "")}
	}
	errs := validation.IsValidCIDRForLegacyField(cidr, b.CIDR, false, c.known)
	_, all, err := netutils.ParseCIDRSloppy(b.CIDR)
	if err != nil {
		return errs
	}
	allBits, _ := all.Mask.Size()
	for i, text := range b.Except {
		at := path.Child("except").Index(i)
		errs = append(errs, validation.IsValidCIDRForLegacyField(at, text, false, c.known)...)
		_, except, err := netutils.ParseCIDRSloppy(text)
		if err != nil {
			continue
		}
		if bits, _ := except.Mask.Size(); !all.Contains(except.IP) || allBits >= bits {
			errs = append(errs, field.Invalid(at, text, "must be a strict subset of `cidr`"))
		}
	}
	return errs
}

func blockWarnings(b *networkingv1.IPBlock, path *field.Path) []string {
	out := validation.GetWarningsForCIDR(path.Child("cidr"), b.CIDR)
	for i, except := range b.Except {
		out = append(out, validation.GetWarningsForCIDR(path.Child("except").Index(i), except)...)
	}
	return out
}
