package why

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// status is the state of one container of a pod.
type status struct {
	corev1.ContainerStatus
	what string // "container app", "init container setup"
	spec *corev1.Container
}

// at returns the path of a field of the container's state.
func (s status) at(field string) string {
	list := "containerStatuses"
	if strings.HasPrefix(s.what, "init") {
		list = "initContainerStatuses"
	}
	return fmt.Sprintf("status.%s[%s].%s", list, s.Name, field)
}

func statuses(p *corev1.Pod) []status {
	var out []status
	add := func(what string, list []corev1.ContainerStatus, specs []corev1.Container) {
		for _, c := range list {
			spec := &corev1.Container{Name: c.Name, Image: c.Image}
			if i := slices.IndexFunc(specs, func(s corev1.Container) bool { return s.Name == c.Name }); i >= 0 {
				spec = &specs[i]
			}
			out = append(out, status{c, what + " " + c.Name, spec})
		}
	}
	add("init container", p.Status.InitContainerStatuses, p.Spec.InitContainers)
	add("container", p.Status.ContainerStatuses, p.Spec.Containers)
	return out
}

// waitingContainers explains containers that do not start.
func waitingContainers(f *Facts, p *corev1.Pod) (out []Finding) {
	if p.DeletionTimestamp != nil {
		return nil
	}
	for _, c := range statuses(p) {
		w := c.State.Waiting
		if w == nil {
			continue
		}
		shown := c.at("state.waiting") + ": " + w.Reason + ": " + w.Message
		switch w.Reason {
		case "CreateContainerConfigError":
			out = append(out, configError(p, c, w.Message).by(shown))
		case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "RegistryUnavailable":
			out = append(out, imageError(f, p, c, w).by(shown))
		case "CrashLoopBackOff":
			out = append(out, crash(f, p, c, c.LastTerminationState.Terminated).by(shown))
		case "CreateContainerError", "RunContainerError", "PostStartHookError":
			out = append(out, found(root, "%s cannot be started: %s", c.what, oneLine(runtimeText(w.Message))).by(shown).
				fix("correct the container's command, securityContext or mounts in the pod template"))
		}
	}
	return out
}

var (
	missingObject = regexp.MustCompile(`^(secret|configmap) "([^"]+)" not found`)
	missingKey    = regexp.MustCompile(`^couldn't find key (\S+) in (\S+) [^/]+/(\S+)`)
)

// configError says which object or key a container's environment lacks.
func configError(p *corev1.Pod, c status, message string) Finding {
	if m := missingObject.FindStringSubmatch(message); m != nil {
		return found(root, "%s needs the %s %q, which does not exist", c.what, kindWord(m[1]), m[2]).fix("%s", createFix(m[1], m[2], keyOf(c.spec, m[2]), p.Namespace))
	}
	if m := missingKey.FindStringSubmatch(message); m != nil {
		kind := strings.ToLower(m[2])
		return found(root, "%s needs the key %q of the %s %q, which has no such key", c.what, m[1], kindWord(kind), m[3]).
			fix(`podium patch %s %s%s --type=merge -p '{"%s":{"%s":"VALUE"}}'`, kind, m[3], in(p.Namespace), dataField(kind), m[1])
	}
	if strings.Contains(message, "runAsNonRoot") {
		return found(root, "%s must not run as root, but its image does", c.what).fix("set securityContext.runAsUser to a user id other than 0, or use an image that names one")
	}
	return found(root, "%s cannot be configured: %s", c.what, oneLine(message))
}

func dataField(kind string) string {
	if kind == "secret" {
		return "stringData"
	}
	return "data"
}

func kindWord(kind string) string {
	if strings.EqualFold(kind, "secret") {
		return "Secret"
	}
	return "ConfigMap"
}

func createFix(kind, name, key, namespace string) string {
	what := "configmap"
	if strings.EqualFold(kind, "secret") {
		what = "secret generic"
	}
	return fmt.Sprintf("podium create %s %s%s --from-literal=%s=VALUE", what, name, in(namespace), key)
}

// keyOf returns the first key that a container's environment reads of an
// object; KEY if it reads all of them.
func keyOf(c *corev1.Container, object string) string {
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			continue
		}
		if r := e.ValueFrom.SecretKeyRef; r != nil && r.Name == object {
			return r.Key
		}
		if r := e.ValueFrom.ConfigMapKeyRef; r != nil && r.Name == object {
			return r.Key
		}
	}
	return "KEY"
}

// imageError says why an image is not there.
func imageError(f *Facts, p *corev1.Pod, c status, w *corev1.ContainerStateWaiting) Finding {
	image := c.spec.Image
	event := f.event("Pod", p.Name, "Failed")
	text := w.Message
	if event != nil {
		text += " " + event.Message
	}
	set := fmt.Sprintf("podium set image %s %s=IMAGE%s", setTarget(p), c.Name, in(p.Namespace))
	lower := strings.ToLower(text)
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(lower, w) })
	}
	switch {
	case w.Reason == "InvalidImageName":
		return found(root, "the image name %q of %s is invalid", image, c.what).fix("%s", set)
	case w.Reason == "ErrImageNeverPull":
		return found(root, "the image %q of %s is not on the node, and its pull policy is Never", image, c.what).
			fix("load the image onto node %s, or set imagePullPolicy to IfNotPresent", p.Spec.NodeName)
	case has("unauthorized", "401", "403 forbidden", "authentication required", "no basic auth", "pull access denied"):
		return found(root, "the registry refuses to give the image %q of %s without credentials", image, c.what).by(f.said(event)).
			fix("podium create secret docker-registry REGISTRY%s --docker-server=HOST --docker-username=USER --docker-password=PASSWORD, and name it in imagePullSecrets", in(p.Namespace))
	case has("not found", "manifest unknown", "404"):
		return found(root, "the image %q of %s does not exist in its registry", image, c.what).by(f.said(event)).fix("%s", set)
	case has("no such host", "connection refused", "i/o timeout", "network is unreachable", "dial tcp", "deadline exceeded"):
		return found(root, "node %s cannot reach the registry of the image %q of %s", p.Spec.NodeName, image, c.what).by(f.said(event)).
			fix("check the registry's name in the image, and DNS and the route of node %s; or: %s", p.Spec.NodeName, set)
	}
	return found(root, "the image %q of %s cannot be pulled", image, c.what).by(f.said(event)).fix("%s", set)
}

// setTarget returns the object whose template has a pod's containers.
func setTarget(p *corev1.Pod) string {
	for _, ref := range p.OwnerReferences {
		if ref.Controller == nil || !*ref.Controller {
			continue
		}
		name := ref.Name
		if hash := p.Labels["pod-template-hash"]; ref.Kind == "ReplicaSet" && hash != "" {
			return "deployment/" + strings.TrimSuffix(name, "-"+hash)
		}
		return strings.ToLower(ref.Kind) + "/" + name
	}
	return "pod/" + p.Name
}

// runtimeText returns the end of a runtime's error, which has the cause.
func runtimeText(message string) string {
	for _, mark := range []string{"exec: ", "error mounting ", "runc create failed: "} {
		if i := strings.LastIndex(message, mark); i >= 0 {
			return message[i:]
		}
	}
	return message
}
