package podspec

import (
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// CopyResources sets the resources of the containers of a spec to those of the
// containers of the same name in from.
func CopyResources(spec, from *corev1.PodSpec) {
	copyList := func(to, from []corev1.Container) {
		for i := range to {
			for j := range from {
				if from[j].Name == to[i].Name {
					to[i].Resources = *from[j].Resources.DeepCopy()
				}
			}
		}
	}
	copyList(spec.Containers, from.Containers)
	copyList(spec.InitContainers, from.InitContainers)
}

// ValidateResize validates the change of the resources of the containers in a spec;
// all else is equal. Only CPU and memory of app containers and sidecars may change.
func ValidateResize(new, old *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if old.Resources != nil {
		return field.ErrorList{field.Forbidden(path, "pods with pod-level resources cannot be resized")}
	}
	if class := QOSClass(new); class != QOSClass(old) {
		errs = append(errs, field.Invalid(path, class, "Pod QOS Class may not change as a result of resizing"))
	}
	rest := new.DeepCopy() // without what may change
	each := func(name string, new, old, rest []corev1.Container) {
		for i := range new {
			at := path.Child(name).Index(i).Child("resources")
			errs = append(errs, keepsNames(new[i].Resources.Requests, old[i].Resources.Requests, at.Child("requests"), "resource requests cannot be removed")...)
			errs = append(errs, keepsNames(new[i].Resources.Limits, old[i].Resources.Limits, at.Child("limits"), "resource limits cannot be removed")...)
			if name == "initContainers" && !Sidecar(&new[i]) {
				continue
			}
			rest[i].Resources.Requests = withoutChanges(rest[i].Resources.Requests, old[i].Resources.Requests)
			rest[i].Resources.Limits = withoutChanges(rest[i].Resources.Limits, old[i].Resources.Limits)
		}
	}
	each("containers", new.Containers, old.Containers, rest.Containers)
	each("initContainers", new.InitContainers, old.InitContainers, rest.InitContainers)
	if !apiequality.Semantic.DeepEqual(rest, old) {
		errs = append(errs, field.Forbidden(path, "only cpu and memory resources are mutable\n"+Changes(old, rest)))
	}
	return errs
}

// keepsNames checks that new has every resource of old.
func keepsNames(new, old corev1.ResourceList, path *field.Path, message string) field.ErrorList {
	for name := range old {
		if _, ok := new[name]; !ok {
			return field.ErrorList{field.Forbidden(path, message)}
		}
	}
	return nil
}

// withoutChanges returns new with the CPU and memory of old.
func withoutChanges(new, old corev1.ResourceList) corev1.ResourceList {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		delete(new, name)
		if q, ok := old[name]; ok {
			if new == nil {
				new = corev1.ResourceList{}
			}
			new[name] = q
		}
	}
	return new
}
