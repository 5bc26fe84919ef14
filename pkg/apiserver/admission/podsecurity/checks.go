package podsecurity

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Violation is what one check found: why, and who does it.
type Violation struct {
	Reason string
	Detail string
}

// Violations are what a pod does that its standard does not allow.
type Violations []Violation

// Reasons is the list without the names of who does it.
func (v Violations) Reasons() string {
	var out []string
	for _, one := range v {
		out = append(out, one.Reason)
	}
	return strings.Join(out, ", ")
}

func (v Violations) String() string {
	var out []string
	for _, one := range v {
		text := one.Reason
		if one.Detail != "" {
			text += " (" + one.Detail + ")"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// subject is what is looked at.
type subject struct {
	meta *metav1.ObjectMeta
	spec *corev1.PodSpec
}

// find looks for one sort of violation; nil if there is none.
type find func(subject) *Violation

// rule is how a check looked from a minor version on.
type rule struct {
	since int
	find  find
}

// check is one control of the standards. Its rules are in the order of versions.
type check struct {
	level    Level
	replaces string // the baseline check that this one is a stricter form of
	name     string
	rules    []rule
}

// at is the rule that counts at v; nil before the first.
func (c *check) at(v Version) find {
	var f find
	for _, r := range c.rules {
		if v.has(r.since) {
			f = r.find
		}
	}
	return f
}

// checks are all there are, in the order of the messages.
func checks() []check {
	return []check{
		{Baseline, "", "appArmorProfile", []rule{{0, appArmor}}},
		{Baseline, "", "capabilities", []rule{{0, addedCapabilities}}},
		{Baseline, "", "hostNamespaces", []rule{{0, hostNamespaces}}},
		{Baseline, "", "hostPathVolumes", []rule{{0, hostPaths}}},
		{Baseline, "", "hostPorts", []rule{{0, hostPorts}}},
		{Baseline, "", "hostProbes", []rule{{34, probeHosts}}},
		{Baseline, "", "privileged", []rule{{0, privileged}}},
		{Baseline, "", "procMount", []rule{{0, procMount}, {35, unlessOwnUsers(procMount)}}},
		{Baseline, "", "seLinuxOptions", []rule{{0, seLinux(seLinuxTypes()...)}, {31, seLinux(append(seLinuxTypes(), "container_engine_t")...)}}},
		{Baseline, "", "seccomp", []rule{{0, seccompAnnotations}, {19, seccompUnconfined}}},
		{Baseline, "", "sysctls", sysctlRules()},
		{Baseline, "", "hostProcess", []rule{{0, hostProcess}}},

		{Restricted, "", "allowPrivilegeEscalation", []rule{{8, escalation}, {25, unlessWindows(escalation)}}},
		{Restricted, "capabilities", "keptCapabilities", []rule{{22, keptCapabilities}, {25, unlessWindows(keptCapabilities)}}},
		{Restricted, "procMount", "anyProcMount", []rule{{35, procMount}}},
		{Restricted, "hostPathVolumes", "volumes", []rule{{0, volumeTypes}}},
		{Restricted, "", "runAsNonRoot", []rule{{0, runAsNonRoot}, {35, unlessOwnUsers(runAsNonRoot)}}},
		{Restricted, "", "runAsUser", []rule{{23, runAsRoot}, {35, unlessOwnUsers(runAsRoot)}}},
		{Restricted, "seccomp", "seccompSet", []rule{{19, seccompMissing}, {25, unlessWindows(seccompMissing)}}},
	}
}

// unlessWindows: pods that say they are for Windows cannot set what is asked.
func unlessWindows(f find) find {
	return func(s subject) *Violation {
		if s.spec.OS != nil && s.spec.OS.Name == corev1.Windows {
			return nil
		}
		return f(s)
	}
}

// unlessOwnUsers: root in a user namespace of its own is nobody on the host.
func unlessOwnUsers(f find) find {
	return func(s subject) *Violation {
		if s.spec.HostUsers != nil && !*s.spec.HostUsers {
			return nil
		}
		return f(s)
	}
}

// Evaluator has the checks ready for use.
type Evaluator struct{ checks []check }

// NewEvaluator makes an Evaluator; it is safe for concurrent use.
func NewEvaluator() *Evaluator { return &Evaluator{checks()} }

// Evaluate lists what of a pod the standard does not allow.
func (e *Evaluator) Evaluate(std Standard, meta *metav1.ObjectMeta, spec *corev1.PodSpec) Violations {
	if std.Level == Privileged {
		return nil
	}
	replaced := map[string]bool{}
	for i := range e.checks {
		if c := &e.checks[i]; c.replaces != "" && c.level <= std.Level && c.at(std.Version) != nil {
			replaced[c.replaces] = true
		}
	}
	var found Violations
	for i := range e.checks {
		c := &e.checks[i]
		if c.level > std.Level || replaced[c.name] {
			continue
		}
		if f := c.at(std.Version); f != nil {
			if v := f(subject{meta, spec}); v != nil {
				found = append(found, *v)
			}
		}
	}
	return found
}
