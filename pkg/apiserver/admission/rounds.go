package admission

import (
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
)

// Rounds is which parts of a mutating plugin (its webhooks, its policies) have
// run for a request. As upstream, the second round runs only parts that ran in
// the first, that want it, and after which the object has changed. It belongs to
// one request.
type Rounds struct {
	asked map[string]bool // parts that may run again
	again map[string]bool // parts that must
	left  runtime.Object  // the object after the last part; nil: nothing may run again
}

// Rounds returns the rounds of a plugin for the request. It notes if the object
// has changed since the first round.
func (a *Attributes) Rounds(plugin string) *Rounds {
	if r := a.rounds[plugin]; r != nil {
		if a.Round > 0 && r.left != nil && !equality.Semantic.DeepEqual(r.left, a.Subject()) {
			r.renew()
		}
		return r
	}
	r := &Rounds{asked: map[string]bool{}, again: map[string]bool{}}
	if a.rounds == nil {
		a.rounds = map[string]*Rounds{}
	}
	a.rounds[plugin] = r
	return r
}

// Due reports whether a part runs in the present round.
func (r *Rounds) Due(a *Attributes, part string) bool { return a.Round == 0 || r.again[part] }

// Changed notes that a part has changed the object.
func (r *Rounds) Changed(a *Attributes) {
	a.again = true
	r.renew()
}

// renew makes all parts that may run again do so.
func (r *Rounds) renew() {
	maps.Copy(r.again, r.asked)
	clear(r.asked)
}

// Asked notes that a part has run and wants to run again if the object changes.
func (r *Rounds) Asked(part string) { r.asked[part] = true }

// Left notes that the plugin is done with the object in this round.
func (r *Rounds) Left(a *Attributes) {
	if subject := a.Subject(); len(r.asked) > 0 && subject != nil {
		r.left = subject.DeepCopyObject()
	}
}
