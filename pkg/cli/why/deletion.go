package why

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// removers are the finalizers that Kubernetes uses, with what removes each.
var removers = map[string]string{
	metav1.FinalizerDeleteDependents:                      "the garbage collector of kube-controller-manager, once the dependents are gone",
	metav1.FinalizerOrphanDependents:                      "the garbage collector of kube-controller-manager",
	"kubernetes.io/pvc-protection":                        "kube-controller-manager, once no pod uses the claim",
	"kubernetes.io/pv-protection":                         "kube-controller-manager, once the volume is not bound",
	"kubernetes":                                          "the namespace controller of kube-controller-manager",
	"batch.kubernetes.io/job-tracking":                    "the Job controller, once it has counted the pod",
	"service.kubernetes.io/load-balancer-cleanup":         "cloud-controller-manager, once the load balancer is gone",
	"customresourcecleanup.apiextensions.k8s.io":          "kube-apiserver, once the custom resources are gone",
	"external-provisioner.volume.kubernetes.io/finalizer": "the external provisioner, once the storage is gone",
	"kubernetes.io/pv-controller":                         "the volume controller",
	resourcev1.Finalizer:                                  "kube-controller-manager, once no pod uses the claim",
	"networking.k8s.io/service-cidr-finalizer":            "the service CIDR controller, once no address is in use",
}

// terminating explains objects that are being deleted and stay.
func terminating(f *Facts, o *Object) (out []Finding) {
	at := o.GetDeletionTimestamp()
	if at == nil {
		return nil
	}
	for _, name := range o.GetFinalizers() {
		out = append(out, finalizer(f, o, name).by("metadata.finalizers: "+name, fmt.Sprintf("metadata.deletionTimestamp: %s ago", f.age(at.Time))))
	}
	return out
}

func finalizer(f *Facts, o *Object, name string) Finding {
	weight := root
	remover, known := removers[name]
	if !known {
		fix := fmt.Sprintf(`podium patch %s%s --type=merge -p '{"metadata":{"finalizers":null}}'`, nameOf(o), in(o.GetNamespace()))
		return found(weight, "the finalizer %q keeps the object until its controller (%s) removes it", name, domain(name)).
			fix("start that controller; if it is gone for good: %s", fix)
	}
	if strings.Contains(remover, "kube-controller-manager") {
		if why := stale(f, "kube-controller-manager"); why != "" {
			return found(root, "the finalizer %q is removed by kube-controller-manager, which is not running", name).by(why).fix("systemctl status kube-controller-manager on a control plane")
		}
	}
	switch name {
	case "kubernetes.io/pvc-protection":
		if users := users(f, as[corev1.PersistentVolumeClaim](o)); len(users) > 0 {
			return found(root, "%s still uses the claim: it is deleted afterwards", strings.Join(users, ", ")).fix("podium delete %s%s", users[0], in(o.GetNamespace()))
		}
	case "kubernetes.io/pv-protection":
		if ref := as[corev1.PersistentVolume](o).Spec.ClaimRef; ref != nil && f.object("PersistentVolumeClaim", ref.Namespace, ref.Name) != nil {
			return found(root, "the claim %s/%s still uses the volume: it is deleted afterwards", ref.Namespace, ref.Name).fix("podium delete pvc %s -n %s", ref.Name, ref.Namespace)
		}
	case resourcev1.Finalizer:
		if users := as[resourcev1.ResourceClaim](o).Status.ReservedFor; len(users) > 0 {
			return found(root, "%s/%s still uses the claim: it is deleted afterwards", users[0].Resource, users[0].Name).fix("podium delete %s %s%s", users[0].Resource, users[0].Name, in(o.GetNamespace()))
		}
	case metav1.FinalizerDeleteDependents:
		if left := dependents(f, o); len(left) > 0 {
			return found(root, "its dependents are deleted first, and %s remains", left[0]).fix("podium why %s%s", left[0], in(o.GetNamespace()))
		}
	}
	return found(likely, "the finalizer %q is still there: it is removed by %s", name, remover)
}

// domain returns the part of a finalizer that names its controller.
func domain(name string) string {
	d, _, _ := strings.Cut(name, "/")
	return d
}

// dependents returns the known objects that an object owns.
func dependents(f *Facts, o *Object) (out []string) {
	for _, kind := range []string{"Pod", "ReplicaSet", "Job"} {
		for _, d := range each[metav1.PartialObjectMetadata](f, kind) {
			for _, ref := range d.OwnerReferences {
				if ref.UID == o.GetUID() {
					out = append(out, strings.ToLower(kind)+"/"+d.Name)
				}
			}
		}
	}
	return out
}

// namespace explains namespaces that stay Terminating.
func namespace(f *Facts, n *corev1.Namespace) (out []Finding) {
	if n.DeletionTimestamp == nil {
		return nil
	}
	for _, c := range n.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		shown := fmt.Sprintf("condition %s=True (%s): %s", c.Type, c.Reason, c.Message)
		switch c.Type {
		case corev1.NamespaceDeletionDiscoveryFailure:
			out = append(out, discoveryFailure(f).by(shown))
		case corev1.NamespaceFinalizersRemaining:
			out = append(out, found(root, "objects in the namespace have finalizers that nothing has removed: %s", oneLine(tail(c.Message, "finalizers remaining: "))).by(shown).
				fix("start the controllers of these finalizers; objects: podium get all -n %s", n.Name))
		case corev1.NamespaceDeletionContentFailure:
			out = append(out, found(root-1, "objects in the namespace cannot be deleted: %s", oneLine(tail(c.Message, "remaining: "))).by(shown))
		case corev1.NamespaceContentRemaining:
			out = append(out, found(likely, "objects in the namespace are not gone yet: %s", oneLine(tail(c.Message, "remaining: "))).by(shown).fix("podium get all -n %s", n.Name))
		}
	}
	if why := stale(f, "kube-controller-manager"); why != "" {
		out = append(out, found(root+1, "the namespace controller is not running").by(why).fix("systemctl status kube-controller-manager on a control plane"))
	}
	if len(out) == 0 {
		out = append(out, found(effect, "the namespace is being deleted").by(fmt.Sprintf("metadata.deletionTimestamp: %s ago", f.age(n.DeletionTimestamp.Time))))
	}
	return out
}

// discoveryFailure names the API servers that do not answer.
func discoveryFailure(f *Facts) Finding {
	for _, o := range f.context {
		if o.GetKind() != "APIService" {
			continue
		}
		if c := condition(o, "Available"); c != nil && c.status != "True" {
			return found(root+1, "the APIService %s is not available: which of its objects are in the namespace is unknown", o.GetName()).by(c.text()).
				fix("podium why apiservice %s; if the server is gone for good: podium delete apiservice %s", o.GetName(), o.GetName())
		}
	}
	return found(root+1, "some APIs cannot be discovered: which of their objects are in the namespace is unknown").fix("podium get apiservices")
}
