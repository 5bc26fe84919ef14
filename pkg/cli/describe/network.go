package describe

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (p *page) ingress(in *networkingv1.Ingress, s Subject) {
	p.field(0, "Name", in.Name)
	p.pairs(0, "Labels", in.Labels)
	p.field(0, "Namespace", in.Namespace)
	var addresses []string
	for _, a := range in.Status.LoadBalancer.Ingress {
		if a.IP != "" {
			addresses = append(addresses, a.IP)
		} else if a.Hostname != "" {
			addresses = append(addresses, a.Hostname)
		}
	}
	slices.Sort(addresses)
	p.line(0, "Address:\t%s", strings.Join(slices.Compact(addresses), ","))
	p.line(0, "Ingress Class:\t%s", orNone(deref(in.Spec.IngressClassName)))
	fallback := "<default>"
	if in.Spec.DefaultBackend != nil {
		fallback = backend(in.Spec.DefaultBackend, s)
	}
	p.line(0, "Default backend:\t%s", fallback)
	if len(in.Spec.TLS) > 0 {
		p.line(0, "TLS:")
	}
	for _, t := range in.Spec.TLS {
		if t.SecretName == "" {
			p.line(1, "SNI routes %s", strings.Join(t.Hosts, ","))
		} else {
			p.line(1, "%s terminates %s", t.SecretName, strings.Join(t.Hosts, ","))
		}
	}
	p.ingressRules(in, fallback, s)
	p.annotations(0, in.Annotations)
}

func (p *page) ingressRules(in *networkingv1.Ingress, fallback string, s Subject) {
	p.line(0, "Rules:")
	p.line(1, "Host\tPath\tBackends")
	p.line(1, "----\t----\t--------")
	count := 0
	for _, r := range in.Spec.Rules {
		if r.HTTP == nil {
			continue
		}
		count++
		host := r.Host
		if host == "" {
			host = "*"
		}
		p.line(1, "%s\t", host)
		for _, path := range r.HTTP.Paths {
			p.line(2, "\t%s \t%s", path.Path, backend(&path.Backend, s))
		}
	}
	if count == 0 {
		p.line(1, "*\t*\t%s", fallback)
	}
}

// backend returns a backend with the endpoints of its Service.
func backend(b *networkingv1.IngressBackend, s Subject) string {
	if r := b.Resource; r != nil {
		return fmt.Sprintf("APIGroup: %s, Kind: %s, Name: %s", orNone(deref(r.APIGroup)), r.Kind, r.Name)
	}
	if b.Service == nil {
		return ""
	}
	port := b.Service.Port
	text := fmt.Sprintf("%s:%s", b.Service.Name, port.Name)
	if port.Number != 0 {
		text = fmt.Sprintf("%s:%d", b.Service.Name, port.Number)
	}
	at := slices.IndexFunc(s.Services, func(svc corev1.Service) bool { return svc.Name == b.Service.Name })
	if at < 0 {
		return fmt.Sprintf("%s (<error: services %q not found>)", text, b.Service.Name)
	}
	name := ""
	for _, sp := range s.Services[at].Spec.Ports {
		if port.Number != 0 && port.Number == sp.Port || port.Name != "" && port.Name == sp.Name {
			name = sp.Name
		}
	}
	own := slices.DeleteFunc(slices.Clone(s.Slices), func(e discoveryv1.EndpointSlice) bool {
		return e.Labels[discoveryv1.LabelServiceName] != b.Service.Name
	})
	if len(own) == 0 {
		return text + " (<none>)"
	}
	ready := endpoints(own, name)
	if ready == "<none>" {
		ready = ""
	}
	return fmt.Sprintf("%s (%s)", text, ready)
}

func (p *page) ingressClass(c *networkingv1.IngressClass) {
	p.field(0, "Name", c.Name)
	p.labels(&c.ObjectMeta)
	p.line(0, "Controller:\t%s", c.Spec.Controller)
	if a := c.Spec.Parameters; a != nil {
		p.line(0, "Parameters:")
		if a.APIGroup != nil {
			p.line(1, "APIGroup:\t%s", *a.APIGroup)
		}
		p.line(1, "Kind:\t%s", a.Kind)
		p.line(1, "Name:\t%s", a.Name)
	}
}

func (p *page) serviceCIDR(c *networkingv1.ServiceCIDR) {
	p.field(0, "Name", c.Name)
	p.labels(&c.ObjectMeta)
	p.line(0, "CIDRs:\t%s", strings.Join(c.Spec.CIDRs, ", "))
	if len(c.Status.Conditions) == 0 {
		return
	}
	p.line(0, "Status:")
	p.line(0, "Conditions:")
	p.line(1, "Type\tStatus\tLastTransitionTime\tReason\tMessage")
	p.line(1, "----\t------\t------------------\t------\t-------")
	for _, n := range c.Status.Conditions {
		p.line(1, "%s\t%s\t%s\t%s\t%s", n.Type, n.Status, rfc1123(n.LastTransitionTime), n.Reason, n.Message)
	}
}

func (p *page) ipAddress(a *networkingv1.IPAddress) {
	p.field(0, "Name", a.Name)
	p.labels(&a.ObjectMeta)
	if r := a.Spec.ParentRef; r != nil {
		p.line(0, "Parent Reference:")
		p.line(1, "Group:\t%s", r.Group)
		p.line(1, "Resource:\t%s", r.Resource)
		p.line(1, "Namespace:\t%s", r.Namespace)
		p.line(1, "Name:\t%s", r.Name)
	}
}

func (p *page) endpointsObject(e *corev1.Endpoints) {
	p.head(&e.ObjectMeta)
	p.labels(&e.ObjectMeta)
	ips := func(list []corev1.EndpointAddress) string {
		return orNone(strings.Join(texts(list, func(a *corev1.EndpointAddress) string { return a.IP }), ","))
	}
	p.line(0, "Subsets:")
	for _, s := range e.Subsets {
		p.line(1, "Addresses:\t%s", ips(s.Addresses))
		p.line(1, "NotReadyAddresses:\t%s", ips(s.NotReadyAddresses))
		if len(s.Ports) > 0 {
			p.line(1, "Ports:")
			p.line(2, "Name\tPort\tProtocol")
			p.line(2, "----\t----\t--------")
		}
		for _, port := range s.Ports {
			p.line(2, "%s\t%d\t%s", orUnset(&port.Name), port.Port, port.Protocol)
		}
		p.line(0, "")
	}
}

func (p *page) endpointSlice(e *discoveryv1.EndpointSlice) {
	p.head(&e.ObjectMeta)
	p.labels(&e.ObjectMeta)
	p.line(0, "AddressType:\t%s", e.AddressType)
	if len(e.Ports) == 0 {
		p.line(0, "Ports: <unset>")
	} else {
		p.line(0, "Ports:")
		p.line(1, "Name\tPort\tProtocol")
		p.line(1, "----\t----\t--------")
	}
	for _, port := range e.Ports {
		p.line(1, "%s\t%s\t%s", orUnset(port.Name), optional(port.Port, ""), optional(port.Protocol, ""))
	}
	if len(e.Endpoints) == 0 {
		p.line(0, "Endpoints: <none>")
		return
	}
	p.line(0, "Endpoints:")
	for _, end := range e.Endpoints {
		p.line(1, "- Addresses:\t%s", orNone(strings.Join(end.Addresses, ", ")))
		p.line(2, "Conditions:")
		p.line(3, "Ready:\t%s", optional(end.Conditions.Ready, ""))
		p.line(2, "Hostname:\t%s", optional(end.Hostname, ""))
		if t := end.TargetRef; t != nil {
			p.line(2, "TargetRef:\t%s/%s", t.Kind, t.Name)
		}
		p.line(2, "NodeName:\t%s", optional(end.NodeName, ""))
		p.line(2, "Zone:\t%s", optional(end.Zone, ""))
	}
}

// orUnset returns the text, "<unset>" if it is nil or empty.
func orUnset(s *string) string {
	if s == nil || *s == "" {
		return "<unset>"
	}
	return *s
}

func (p *page) networkPolicy(n *networkingv1.NetworkPolicy) {
	p.head(&n.ObjectMeta)
	p.line(0, "Created on:\t%s", n.CreationTimestamp)
	p.labels(&n.ObjectMeta)
	p.line(0, "Spec:")
	selector := "<none> (Allowing the specific traffic to all pods in this namespace)"
	if len(n.Spec.PodSelector.MatchLabels)+len(n.Spec.PodSelector.MatchExpressions) > 0 {
		selector = metav1.FormatLabelSelector(&n.Spec.PodSelector)
	}
	p.line(1, "PodSelector:     %s", selector)
	if slices.Contains(n.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
		p.line(1, "Allowing ingress traffic:")
		rules := make([]trafficRule, len(n.Spec.Ingress))
		for i, r := range n.Spec.Ingress {
			rules[i] = trafficRule{r.Ports, r.From}
		}
		p.trafficRules(rules, "ingress", "From", "source")
	} else {
		p.line(1, "Not affecting ingress traffic")
	}
	if slices.Contains(n.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
		p.line(1, "Allowing egress traffic:")
		rules := make([]trafficRule, len(n.Spec.Egress))
		for i, r := range n.Spec.Egress {
			rules[i] = trafficRule{r.Ports, r.To}
		}
		p.trafficRules(rules, "egress", "To", "destination")
	} else {
		p.line(1, "Not affecting egress traffic")
	}
	types := texts(n.Spec.PolicyTypes, func(t *networkingv1.PolicyType) string { return string(*t) })
	p.line(1, "Policy Types: %s", orNone(strings.Join(types, ", ")))
}

// trafficRule is a rule of either direction.
type trafficRule struct {
	ports []networkingv1.NetworkPolicyPort
	peers []networkingv1.NetworkPolicyPeer
}

func (p *page) trafficRules(rules []trafficRule, direction, preposition, end string) {
	if len(rules) == 0 {
		p.line(2, "<none> (Selected pods are isolated for %s connectivity)", direction)
	}
	for i, r := range rules {
		if i > 0 {
			p.line(2, "----------")
		}
		if len(r.ports) == 0 {
			p.line(2, "To Port: <any> (traffic allowed to all ports)")
		}
		for _, port := range r.ports {
			p.policyPort(&port)
		}
		if len(r.peers) == 0 {
			p.line(2, "%s: <any> (traffic not restricted by %s)", preposition, end)
		}
		for _, peer := range r.peers {
			p.line(2, "%s:", preposition)
			p.policyPeer(&peer)
		}
	}
}

func (p *page) policyPort(port *networkingv1.NetworkPolicyPort) {
	protocol := corev1.ProtocolTCP
	if port.Protocol != nil {
		protocol = *port.Protocol
	}
	first := "<nil>"
	if port.Port != nil {
		first = port.Port.String()
	}
	if port.EndPort == nil {
		p.line(2, "To Port: %s/%s", first, protocol)
		return
	}
	p.line(2, "To Port Range: %s-%d/%s", first, *port.EndPort, protocol)
}

func (p *page) policyPeer(peer *networkingv1.NetworkPolicyPeer) {
	if peer.NamespaceSelector != nil {
		p.line(3, "NamespaceSelector: %s", metav1.FormatLabelSelector(peer.NamespaceSelector))
	}
	if peer.PodSelector != nil {
		p.line(3, "PodSelector: %s", metav1.FormatLabelSelector(peer.PodSelector))
	}
	if b := peer.IPBlock; b != nil {
		p.line(3, "IPBlock:")
		p.line(4, "CIDR: %s", b.CIDR)
		p.line(4, "Except: %s", strings.Join(b.Except, ", "))
	}
}
