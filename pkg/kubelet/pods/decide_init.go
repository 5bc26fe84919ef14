package pods

import (
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/podspec"
)

// failedInit reports whether an init container has failed that will not be started
// again.
func (p *plan) failedInit() bool {
	for i := range p.pod.Spec.InitContainers {
		spec := &p.pod.Spec.InitContainers[i]
		c := p.observed.latest(spec.Name)
		if c != nil && c.exited() && c.exitCode != 0 && !shouldRestart(p.pod, spec, c) {
			return true
		}
	}
	return false
}

// decideInit plans the init containers: they run one after another, once per sandbox,
// and sidecars remain. If an app container exists, they have finished.
func (p *plan) decideInit(box *sandbox) {
	specs := p.pod.Spec.InitContainers
	newest := -1 // the last one that has been created in this sandbox
	for i := range specs {
		if p.observed.latestIn(box.id, specs[i].Name) != nil {
			newest = i
		}
	}
	for i := range p.pod.Spec.Containers {
		if p.observed.latestIn(box.id, p.pod.Spec.Containers[i].Name) != nil {
			p.initialized, newest = true, len(specs)
			break
		}
	}
	for i := range specs {
		spec := &specs[i]
		c := p.observed.latestIn(box.id, spec.Name)
		if i < newest {
			if podspec.Sidecar(spec) {
				p.keep(spec, true, c)
			}
			continue
		}
		if !p.passed(spec, c) {
			return
		}
	}
	p.initialized = true
}

// passed reports whether the init container after this one may start. Otherwise it
// plans what this one needs. c is its container in the current sandbox; nil if there
// is none.
func (p *plan) passed(spec *corev1.Container, c *container) bool {
	if podspec.Sidecar(spec) {
		p.keep(spec, true, c)
		return c != nil && c.running() && (p.judge(c.id) == probeFine || spec.StartupProbe == nil)
	}
	switch {
	case c == nil:
		p.start = append(p.start, start{spec: spec, init: true, attempt: nextAttempt(p.pod, p.observed, spec.Name)})
	case c.exited() && c.exitCode == 0:
		return true
	case c.exited() && !shouldRestart(p.pod, spec, c):
		p.finished = true
	case c.exited():
		p.restart(spec, true, c)
	case c.state == runtimeapi.ContainerState_CONTAINER_CREATED:
		p.start = append(p.start, start{spec: spec, init: true, attempt: c.attempt, delay: c.restartDelay(), adopt: c})
	case c.state == runtimeapi.ContainerState_CONTAINER_UNKNOWN:
		p.kill = append(p.kill, unknownState(c))
	}
	return false
}

// decideEphemeral plans the start of the ephemeral containers that have never been
// created: they are not restarted, not even in a new sandbox.
func (p *plan) decideEphemeral() {
	for i := range p.pod.Spec.EphemeralContainers {
		spec := (*corev1.Container)(&p.pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		c := p.observed.latest(spec.Name)
		switch {
		case c == nil && !knownEphemeral(p.pod, spec.Name):
			p.ephemeral = append(p.ephemeral, start{spec: spec})
		case c != nil && c.state == runtimeapi.ContainerState_CONTAINER_CREATED && c.sandboxID == p.observed.current().id:
			p.ephemeral = append(p.ephemeral, start{spec: spec, adopt: c})
		}
	}
}

// knownEphemeral reports whether, according to the API, the ephemeral container has
// been created.
func knownEphemeral(pod *corev1.Pod, name string) bool {
	for _, s := range pod.Status.EphemeralContainerStatuses {
		if s.Name == name && (s.ContainerID != "" || s.State.Terminated != nil) {
			return true
		}
	}
	return false
}
