package why

import (
	"fmt"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// cond is a condition of any kind.
type cond struct{ kind, status, reason, message string }

func (c *cond) text() string {
	return fmt.Sprintf("condition %s=%s (%s): %s", c.kind, c.status, c.reason, c.message)
}

// conditionsOf returns the conditions of an object's status.
func conditionsOf(o *Object) (out []cond) {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, item := range list {
		m, ok := item.(map[string]any)
		if !ok {
			continue
		}
		text := func(key string) string { s, _ := m[key].(string); return s }
		out = append(out, cond{text("type"), text("status"), text("reason"), text("message")})
	}
	return out
}

func condition(o *Object, kind string) *cond {
	for _, c := range conditionsOf(o) {
		if c.kind == kind {
			return &c
		}
	}
	return nil
}

// unhealthyConditions explains objects of all kinds that have no rules of their
// own by the conditions that say that something is wrong.
func unhealthyConditions(f *Facts, o *Object) (out []Finding) {
	switch o.GroupVersionKind().GroupKind().String() {
	case "CustomResourceDefinition.apiextensions.k8s.io":
		return definition(o)
	case "APIService.apiregistration.k8s.io":
		return apiService(f, o)
	}
	if chapters()[o.GroupVersionKind().GroupKind().String()] != nil {
		return nil
	}
	for _, c := range conditionsOf(o) {
		bad := c.status == "False" && positive(c.kind) || c.status == "True" && negative(c.kind)
		if bad || c.status == "Unknown" && positive(c.kind) {
			out = append(out, found(likely, "the controller of the object says %s=%s: %s", c.kind, c.status, oneLine(c.message)).by(c.text()))
		}
	}
	return out
}

// positive reports whether a condition is True when all is well.
func positive(kind string) bool {
	switch kind {
	case "Ready", "Available", "Healthy", "Established", "Accepted", "Programmed", "Reconciled", "Synced", "Succeeded":
		return true
	}
	return strings.HasSuffix(kind, "Ready")
}

// negative reports whether a condition is False when all is well.
func negative(kind string) bool {
	switch kind {
	case "Failed", "Stalled", "Degraded", "Error":
		return true
	}
	return strings.HasSuffix(kind, "Failed") || strings.HasSuffix(kind, "Failure")
}

// definition explains CustomResourceDefinitions that are not served.
func definition(o *Object) (out []Finding) {
	for _, c := range conditionsOf(o) {
		switch {
		case c.kind == "NamesAccepted" && c.status == "False":
			out = append(out, found(root, "the names of the definition are taken: %s", oneLine(c.message)).by(c.text()).fix("choose other names in spec.names, or delete the definition that has them: podium get crds"))
		case c.kind == "Established" && c.status == "False":
			out = append(out, found(effect, "the definition is not established: the server does not serve its resources").by(c.text()))
		case c.kind == "NonStructuralSchema" && c.status == "True":
			out = append(out, found(likely, "the schema is not structural: %s", oneLine(c.message)).by(c.text()).fix("give each field of the schema a type"))
		case c.kind == "Terminating" && c.status == "True":
			out = append(out, found(likely, "the definition is being deleted, with all its objects: %s", oneLine(c.message)).by(c.text()))
		}
	}
	if len(conditionsOf(o)) == 0 {
		out = append(out, found(effect, "the API server has not looked at the definition yet").by("status.conditions is empty"))
	}
	return out
}

// apiService explains APIServices that are not available.
func apiService(f *Facts, o *Object) []Finding {
	c := condition(o, "Available")
	if c == nil || c.status == "True" {
		return nil
	}
	name, _, _ := unstructured.NestedString(o.Object, "spec", "service", "name")
	namespace, _, _ := unstructured.NestedString(o.Object, "spec", "service", "namespace")
	where := namespace + "/" + name
	switch {
	case c.reason == "ServiceNotFound" || f.missing("services", namespace, name):
		return []Finding{found(root, "the Service %s of the APIService does not exist", where).by(c.text()).fix("install the server, or: podium delete apiservice %s", o.GetName())}
	case c.reason == "EndpointsNotFound" || c.reason == "MissingEndpoints":
		return []Finding{found(likely+5, "the Service %s of the APIService has no ready endpoints", where).by(c.text()).fix("podium why service %s -n %s", name, namespace)}
	case c.reason == "ServicePortError":
		return []Finding{found(root, "the Service %s has no such port as the APIService names", where).by(c.text()).fix("correct spec.service.port")}
	}
	return []Finding{found(likely, "the API server gets no answer from %s: %s", where, oneLine(c.message)).by(c.text()).fix("podium logs service/%s -n %s", name, namespace)}
}

// signingRequest explains CSRs without a certificate.
func signingRequest(f *Facts, r *certificatesv1.CertificateSigningRequest) []Finding {
	approved := false
	for _, c := range r.Status.Conditions {
		shown := fmt.Sprintf("condition %s=%s (%s): %s", c.Type, c.Status, c.Reason, c.Message)
		switch c.Type {
		case certificatesv1.CertificateDenied:
			return []Finding{found(root, "the request was denied: %s", oneLine(c.Message)).by(shown).fix("create a new request: a denial is final")}
		case certificatesv1.CertificateFailed:
			return []Finding{found(root, "the signer could not sign the request: %s", oneLine(c.Message)).by(shown).fix("correct the request and create it again")}
		case certificatesv1.CertificateApproved:
			approved = true
		}
	}
	switch {
	case len(r.Status.Certificate) > 0:
		return nil
	case !approved:
		return []Finding{found(root, "the request of %q for the signer %s is not approved", r.Spec.Username, r.Spec.SignerName).by("status.conditions has no Approved").fix("podium certificate approve %s", r.Name)}
	case !strings.HasPrefix(r.Spec.SignerName, "kubernetes.io/") || r.Spec.SignerName == "kubernetes.io/legacy-unknown":
		return []Finding{found(likely, "the signer %s has not signed the approved request: no controller of the cluster signs for it", r.Spec.SignerName).by("status.certificate is empty").fix("run the controller of that signer")}
	}
	return []Finding{found(effect, "the signer %s has not signed the approved request yet", r.Spec.SignerName).by("status.certificate is empty")}
}

// autoscaler explains autoscalers that do not scale.
func autoscaler(f *Facts, a *autoscalingv2.HorizontalPodAutoscaler) (out []Finding) {
	ref := a.Spec.ScaleTargetRef
	target := strings.ToLower(ref.Kind) + "/" + ref.Name
	group, _, ok := strings.Cut(ref.APIVersion, "/")
	if !ok {
		group = ""
	}
	if f.missing(withGroup(strings.ToLower(ref.Kind), group), a.Namespace, ref.Name) {
		out = append(out, found(root, "the target %s of the autoscaler does not exist", target).by("spec.scaleTargetRef").fix("correct spec.scaleTargetRef, or create %s%s", target, in(a.Namespace)))
	}
	for _, c := range a.Status.Conditions {
		shown := fmt.Sprintf("condition %s=%s (%s): %s", c.Type, c.Status, c.Reason, c.Message)
		switch {
		case c.Status == corev1.ConditionFalse && c.Reason == "ScalingDisabled":
			out = append(out, found(root, "the target %s is scaled to 0 replicas: the autoscaler leaves it alone", target).by(shown).fix("podium scale %s --replicas=1%s", target, in(a.Namespace)))
		case c.Type == autoscalingv2.ScalingActive && c.Status == corev1.ConditionFalse:
			out = append(out, metrics(f, a, c.Message).by(shown))
		case c.Type == autoscalingv2.AbleToScale && c.Status == corev1.ConditionFalse:
			out = append(out, found(likely, "the autoscaler cannot scale %s: %s", target, oneLine(c.Message)).by(shown))
		case c.Type == autoscalingv2.ScalingLimited && c.Status == corev1.ConditionTrue:
			out = append(out, found(effect, "the autoscaler would scale further, but %s", limit(a, c.Reason)).by(shown).fix("podium edit hpa %s%s", a.Name, in(a.Namespace)))
		}
	}
	return out
}

func limit(a *autoscalingv2.HorizontalPodAutoscaler, reason string) string {
	if reason == "TooManyReplicas" {
		return fmt.Sprintf("maxReplicas is %d", a.Spec.MaxReplicas)
	}
	return "minReplicas is " + fmt.Sprint(replicas(a.Spec.MinReplicas))
}

// metrics explains why an autoscaler gets no metrics.
func metrics(f *Facts, a *autoscalingv2.HorizontalPodAutoscaler, message string) Finding {
	switch {
	case strings.Contains(message, "missing request for"):
		return found(root, "the pods of the target set no request for the resource that the autoscaler measures: %s", oneLine(message)).
			fix("podium set resources %s/%s --requests=cpu=100m%s", strings.ToLower(a.Spec.ScaleTargetRef.Kind), a.Spec.ScaleTargetRef.Name, in(a.Namespace))
	case f.missing("apiservices.apiregistration.k8s.io", "", metricsAPI):
		return found(root, "the cluster has no resource metrics: the APIService %s does not exist", metricsAPI).fix("install metrics-server")
	}
	return found(likely, "the autoscaler gets no metrics: %s", oneLine(message)).fix("podium top pods%s; podium get apiservice %s", in(a.Namespace), metricsAPI)
}

// ignored explains objects on which nothing acts, by what the server says to a
// dry run.
func ignored(f *Facts, o *Object) []Finding {
	if o != f.Subject {
		return nil
	}
	for _, w := range f.warnings {
		if strings.Contains(w, "no controller") {
			return []Finding{found(root+1, "this cluster has no controller for %s: nothing acts on the object", strings.ToLower(o.GetKind())).by("dry run of its creation: Warning: " + w).
				fix("install a controller for it")}
		}
	}
	return nil
}

// unseen explains objects whose present generation no controller has seen.
func unseen(f *Facts, o *Object) []Finding {
	seen, known, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
	g := o.GroupVersionKind().Group
	if !known && g != "apps" || seen >= o.GetGeneration() || o.GetDeletionTimestamp() != nil {
		return nil
	}
	shown := fmt.Sprintf("status.observedGeneration %d is behind metadata.generation %d", seen, o.GetGeneration())
	if why := stale(f, "kube-controller-manager"); why != "" {
		return []Finding{found(root+1, "the controllers are not running").by(why, shown).fix("systemctl status kube-controller-manager on a control plane")}
	}
	return []Finding{found(hint, "the controller has not seen the last change of %s yet", nameOf(o)).by(shown)}
}

// fullQuota explains quotas of which nothing is left.
func fullQuota(f *Facts, q *corev1.ResourceQuota) (out []Finding) {
	for name, hard := range q.Status.Hard {
		if used, ok := q.Status.Used[name]; ok && used.Cmp(hard) >= 0 {
			out = append(out, found(likely, "the quota of %s is used up: %s of %s", name, used.String(), hard.String()).by("status.used").fix("raise spec.hard, or delete what uses it: podium edit resourcequota %s%s", q.Name, in(q.Namespace)))
		}
	}
	return out
}
