package podsecurity

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// prefix is that of the labels of a namespace and of the audit annotations.
const prefix = "pod-security.kubernetes.io/"

// Policy is what a namespace asks for.
type Policy struct {
	Enforce Standard // refused
	Audit   Standard // written down
	Warn    Standard // told the client
}

func (p Policy) privileged() bool {
	return p.Enforce.Level == Privileged && p.Audit.Level == Privileged && p.Warn.Level == Privileged
}

func (p Policy) same(o Policy) bool {
	return p.Enforce.same(o.Enforce) && p.Audit.same(o.Audit) && p.Warn.same(o.Warn)
}

// PolicyOf reads a namespace's labels over the cluster's defaults. With errors
// the policy is still to be used: it enforces the strictest, and audits and
// warns of nothing where the label is not understood.
func PolicyOf(labels map[string]string, defaults Policy) (Policy, field.ErrorList) {
	p := defaults
	var r labelReader
	r.labels = labels
	_, enforced := r.level("enforce", &p.Enforce.Level, Restricted)
	r.version("enforce-version", &p.Enforce.Version)
	r.level("audit", &p.Audit.Level, Privileged)
	r.version("audit-version", &p.Audit.Version)
	warns, _ := r.level("warn", &p.Warn.Level, Privileged)
	warnVersion := r.version("warn-version", &p.Warn.Version)

	// Who is refused something is also told of templates that will be refused.
	if enforced && !warns && p.Enforce.Level > p.Warn.Level {
		p.Warn.Level = p.Enforce.Level
		if !warnVersion {
			p.Warn.Version = p.Enforce.Version
		}
	}
	return p, r.errs
}

// labelReader reads one label after the other and collects what is wrong.
type labelReader struct {
	labels map[string]string
	errs   field.ErrorList
}

func (r *labelReader) level(name string, to *Level, otherwise Level) (set, valid bool) {
	text, set := r.labels[prefix+name]
	if !set {
		return false, false
	}
	level, err := ParseLevel(text)
	if r.check(name, text, err) {
		*to = level
		return true, true
	}
	*to = otherwise
	return true, false
}

func (r *labelReader) version(name string, to *Version) (set bool) {
	text, set := r.labels[prefix+name]
	if !set {
		return false
	}
	version, err := ParseVersion(text)
	r.check(name, text, err)
	*to = version
	return true
}

func (r *labelReader) check(name, value string, err error) bool {
	if err == nil {
		return true
	}
	r.errs = append(r.errs, field.Invalid(field.NewPath("metadata", "labels").Key(prefix+name), value, err.Error()))
	return false
}
