package why

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// endedContainers explains pods that have failed, and containers that run again
// after the kernel has killed them.
func endedContainers(f *Facts, p *corev1.Pod) (out []Finding) {
	if p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded {
		return nil
	}
	for _, c := range statuses(p) {
		t, last := c.State.Terminated, c.LastTerminationState.Terminated
		switch {
		case t != nil && (t.ExitCode != 0 || t.Reason == "OOMKilled"):
			out = append(out, crash(f, p, c, t))
		case c.State.Running != nil && last != nil && (last.Reason == "OOMKilled" || !c.Ready && c.RestartCount > 0 && last.ExitCode != 0):
			finding := crash(f, p, c, last)
			finding.Weight = likely
			out = append(out, finding)
		case restarted(c.ContainerStatus, f.Now):
			finding := crash(f, p, c, last)
			finding.Weight = effect
			out = append(out, finding)
		}
	}
	return out
}

// restarted reports whether a container that runs has ended not long ago.
func restarted(c corev1.ContainerStatus, now time.Time) bool {
	last := c.LastTerminationState.Terminated
	return c.State.Running != nil && c.RestartCount > 0 && last != nil && now.Sub(last.FinishedAt.Time) < 10*time.Minute
}

// crash says why a container ends. t may be nil.
func crash(f *Facts, p *corev1.Pod, c status, t *corev1.ContainerStateTerminated) Finding {
	if t == nil {
		return found(likely, "%s ends again and again", c.what).fix("%s", logs(p, c, true))
	}
	shown := fmt.Sprintf("%s: %s, exit code %d, %d restarts", c.at(field(c, t)), t.Reason, t.ExitCode, c.RestartCount)
	killed := f.event("Pod", p.Name, "Killing")
	if killed != nil && (!strings.Contains(killed.Message, "Container "+c.Name+" failed") || !strings.Contains(killed.Message, "probe")) {
		killed = nil
	}
	switch {
	case t.Reason == "OOMKilled":
		limit := c.spec.Resources.Limits[corev1.ResourceMemory]
		what := "the node has no memory left for it"
		if !limit.IsZero() {
			what = "its memory limit is " + limit.String()
		}
		return found(root, "%s is killed for lack of memory: %s", c.what, what).by(shown).
			fix("podium set resources %s -c %s --limits=memory=MORE%s", setTarget(p), c.Name, in(p.Namespace))
	case killed != nil:
		return probeKills(f, p, c, killed).by(shown)
	case t.ExitCode == 127 || t.Reason == "StartError" || t.Reason == "ContainerCannotRun":
		return found(root, "%s cannot be started: its command does not exist in the image%s", c.what, after(t.Message)).by(shown).
			fix("correct the command of the container: podium edit %s%s", setTarget(p), in(p.Namespace))
	case t.ExitCode == 126:
		return found(root, "%s cannot be started: its command is not executable", c.what).by(shown).fix("%s", logs(p, c, t == c.LastTerminationState.Terminated))
	case t.ExitCode == 0:
		return found(root, "%s ends by itself with exit code 0, and is restarted", c.what).by(shown).
			fix("run a command that does not end, or use a Job")
	case t.ExitCode > 128 && t.ExitCode < 160:
		return found(root, "%s was ended by signal %d", c.what, t.ExitCode-128).by(shown, t.Message).fix("%s", logs(p, c, t == c.LastTerminationState.Terminated))
	}
	return found(root, "%s ends with exit code %d", c.what, t.ExitCode).by(shown, t.Message).fix("%s", logs(p, c, t == c.LastTerminationState.Terminated))
}

func field(c status, t *corev1.ContainerStateTerminated) string {
	if t == c.State.Terminated {
		return "state.terminated"
	}
	return "lastState.terminated"
}

func after(message string) string {
	if message == "" {
		return ""
	}
	return " (" + oneLine(runtimeText(message)) + ")"
}

func logs(p *corev1.Pod, c status, previous bool) string {
	flag := ""
	if previous {
		flag = " --previous"
	}
	return fmt.Sprintf("podium logs %s -c %s%s%s", p.Name, c.Name, in(p.Namespace), flag)
}

// probeKills says which probe had a container killed.
func probeKills(f *Facts, p *corev1.Pod, c status, killed *corev1.Event) Finding {
	kind := "liveness"
	if strings.Contains(killed.Message, "startup probe") {
		kind = "startup"
	}
	failed := probeEvent(f, p, kind)
	return found(root, "%s is restarted because its %s probe fails", c.what, kind).by(f.said(killed), f.said(failed)).
		fix("correct the %sProbe or what it asks: podium edit %s%s", kind, setTarget(p), in(p.Namespace))
}

// probeEvent returns the latest event about a kind of probe.
func probeEvent(f *Facts, p *corev1.Pod, kind string) *corev1.Event {
	for _, e := range f.events("Pod", p.Name, "Unhealthy") {
		if strings.HasPrefix(strings.ToLower(e.Message), kind+" probe") {
			return e
		}
	}
	return nil
}

// unreadyContainers explains containers that run and are not ready.
func unreadyContainers(f *Facts, p *corev1.Pod) (out []Finding) {
	if p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodRunning || isReady(p) {
		return nil
	}
	for _, c := range statuses(p) {
		if c.State.Running == nil || c.Ready || strings.HasPrefix(c.what, "init") {
			continue
		}
		ready, startup := probeEvent(f, p, "readiness"), probeEvent(f, p, "startup")
		switch {
		case c.spec.StartupProbe != nil && c.Started != nil && !*c.Started:
			out = append(out, found(likely, "%s has not passed its startup probe", c.what).by(f.said(startup)).fix("%s", logs(p, c, false)))
		case ready != nil && c.spec.ReadinessProbe != nil:
			out = append(out, found(likely+5, "%s is not ready because its readiness probe fails", c.what).by(f.said(ready)).
				fix("correct the readinessProbe or what it asks; %s", logs(p, c, false)))
		case c.spec.ReadinessProbe != nil:
			out = append(out, found(effect, "%s has not passed its readiness probe yet", c.what).by(c.at("ready")+": false").fix("%s", logs(p, c, false)))
		}
	}
	return append(out, gates(p)...)
}

// gates explains readiness gates that nothing has opened.
func gates(p *corev1.Pod) (out []Finding) {
	for _, g := range p.Spec.ReadinessGates {
		open := false
		for _, c := range p.Status.Conditions {
			open = open || c.Type == g.ConditionType && c.Status == corev1.ConditionTrue
		}
		if !open {
			out = append(out, found(likely, "the readiness gate %q is not open: no controller has set this condition to True", g.ConditionType).
				by("spec.readinessGates").fix("find the controller that sets the condition, or remove the gate"))
		}
	}
	return out
}
