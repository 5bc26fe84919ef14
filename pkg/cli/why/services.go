package why

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// service explains Services that reach no pod.
func service(f *Facts, s *corev1.Service) (out []Finding) {
	if s.Spec.Type == corev1.ServiceTypeExternalName || s.DeletionTimestamp != nil {
		return nil
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) == 0 {
		out = append(out, found(likely-5, "the Service %s has no load balancer: no cloud provider has given it an address", s.Name).
			by("status.loadBalancer is empty", f.said(f.event("Service", s.Name, "SyncLoadBalancerFailed", "EnsuringLoadBalancer"))).
			fix("run cloud-controller-manager with a provider, or set type NodePort"))
	}
	if len(s.Spec.Selector) == 0 {
		if endpoints(f, s) == 0 {
			out = append(out, found(likely, "the Service %s has no selector and no endpoints", s.Name).by("spec.selector is empty").fix("set a selector, or create an EndpointSlice with the label %s=%s", discoveryv1.LabelServiceName, s.Name))
		}
		return out
	}
	if !f.knows("pods", s.Namespace) {
		return out
	}
	match := labels.SelectorFromSet(s.Spec.Selector)
	var pods []*corev1.Pod
	for _, p := range each[corev1.Pod](f, "Pod") {
		if p.Namespace == s.Namespace && match.Matches(labels.Set(p.Labels)) && p.DeletionTimestamp == nil {
			pods = append(pods, p)
		}
	}
	if len(pods) == 0 {
		return append(out, selectsNothing(f, s))
	}
	out = append(out, ports(s, pods)...)
	ready := 0
	for _, p := range pods {
		if isReady(p) {
			ready++
		}
	}
	if ready == 0 && !s.Spec.PublishNotReadyAddresses {
		out = append(out, found(effect, "the Service %s has no ready pod: %d match, none is ready", s.Name, len(pods)).by("spec.selector: "+match.String()).
			fix("podium why pod %s%s", pods[0].Name, in(s.Namespace)))
	}
	return out
}

// endpoints counts the addresses of a Service.
func endpoints(f *Facts, s *corev1.Service) (n int) {
	for _, slice := range each[discoveryv1.EndpointSlice](f, "EndpointSlice") {
		if slice.Namespace == s.Namespace && slice.Labels[discoveryv1.LabelServiceName] == s.Name {
			n += len(slice.Endpoints)
		}
	}
	return n
}

// selectsNothing names the pod whose labels come closest to a selector.
func selectsNothing(f *Facts, s *corev1.Service) Finding {
	match := labels.SelectorFromSet(s.Spec.Selector).String()
	nothing := found(root, "the selector of the Service %s matches no pod", s.Name).by("spec.selector: " + match)
	var best *corev1.Pod
	most := 0
	for _, p := range each[corev1.Pod](f, "Pod") {
		if n := alike(s.Spec.Selector, p.Labels); p.Namespace == s.Namespace && n > most {
			best, most = p, n
		}
	}
	if best == nil {
		return nothing.fix("podium get pods --show-labels%s; correct spec.selector, or start the pods", in(s.Namespace))
	}
	near := maps.Clone(s.Spec.Selector)
	for key := range near {
		if value, ok := best.Labels[key]; ok {
			near[key] = value
		} else {
			delete(near, key)
		}
	}
	return nothing.by(fmt.Sprintf("pod/%s has the labels %s", best.Name, labels.SelectorFromSet(best.Labels))).
		fix("podium set selector service %s '%s'%s", s.Name, labels.SelectorFromSet(near), in(s.Namespace))
}

// alike counts in how many keys, values and words of values two sets of labels
// agree.
func alike(selector, have map[string]string) (n int) {
	for key, value := range selector {
		other, ok := have[key]
		if !ok {
			continue
		}
		n++
		if other == value {
			n += 2
		} else if strings.Contains(other, value) || strings.Contains(value, other) {
			n++
		}
	}
	return n
}

// ports explains target ports that no container has.
func ports(s *corev1.Service, pods []*corev1.Pod) (out []Finding) {
	for _, port := range s.Spec.Ports {
		target := port.TargetPort
		if target.Type != intstr.String {
			continue
		}
		var names []string
		exists := false
		for _, p := range pods {
			for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
				for _, cp := range c.Ports {
					exists = exists || cp.Name == target.StrVal
					if cp.Name != "" && !slices.Contains(names, cp.Name) {
						names = append(names, cp.Name)
					}
				}
			}
		}
		if !exists {
			out = append(out, found(root, "the Service %s sends port %d to the port named %q, which no container of its pods has", s.Name, port.Port, target.StrVal).
				by(fmt.Sprintf("spec.ports[].targetPort: %s", target.StrVal), "named ports of the pods: "+orNone(strings.Join(names, ", "))).
				fix("name the container's port %s, or correct targetPort: podium edit service %s%s", target.StrVal, s.Name, in(s.Namespace)))
		}
	}
	return out
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// ingress explains Ingresses whose class, Services or Secrets are missing.
func ingress(f *Facts, ing *networkingv1.Ingress) (out []Finding) {
	if class := ing.Spec.IngressClassName; class != nil && f.missing("ingressclasses.networking.k8s.io", "", *class) {
		out = append(out, found(root-2, "the IngressClass %q does not exist", *class).by("spec.ingressClassName").fix("podium get ingressclasses"))
	}
	for _, b := range backends(ing) {
		if b.Service == nil {
			continue
		}
		if f.missing("services", ing.Namespace, b.Service.Name) {
			out = append(out, found(root-1, "the Service %q of the Ingress does not exist", b.Service.Name).by("spec.rules").fix("create the Service, or correct the backend"))
			continue
		}
		svc := one[corev1.Service](f, "Service", ing.Namespace, b.Service.Name)
		if svc != nil && !slices.ContainsFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool {
			return p.Port == b.Service.Port.Number || p.Name != "" && p.Name == b.Service.Port.Name
		}) {
			out = append(out, found(root-1, "the Service %q of the Ingress has no port %s", svc.Name, portText(b.Service.Port)).by("spec.rules").fix("podium get service %s%s; correct the backend's port", svc.Name, in(ing.Namespace)))
		}
	}
	for _, t := range ing.Spec.TLS {
		if t.SecretName != "" && f.missing("secrets", ing.Namespace, t.SecretName) {
			out = append(out, found(root-3, "the Secret %q with the certificate of the Ingress does not exist", t.SecretName).by("spec.tls").fix("podium create secret tls %s%s --cert=FILE --key=FILE", t.SecretName, in(ing.Namespace)))
		}
	}
	return out
}

func portText(p networkingv1.ServiceBackendPort) string {
	if p.Name != "" {
		return p.Name
	}
	return fmt.Sprint(p.Number)
}
