package watchcache

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/fields"

	"podium/pkg/scheme"
)

// derived is an entry whose object was computed from that of another entry, or the
// computation that is under way. The derived entries of an entry form a short list.
type derived struct {
	form  string
	done  chan struct{} // closed once entry or err is set
	entry *Entry
	err   error
	used  atomic.Uint32 // age of the cache at the last use
	next  *derived
}

// Derive returns, in the same order, entries that show the objects of entries in
// another form, such as another API version. It computes those that are not known yet
// with one call of compute, whose results must not be modified later; select returns
// the fields of a result for selectors. Concurrent calls for the same form share
// results and errors. A sweep drops forms that were not used for a while.
//
// Derive blocks until all forms are computed, or until ctx ends while another call
// computes one.
func Derive(ctx context.Context, entries []*Entry, form string, compute func([]scheme.Object) ([]scheme.Object, error), sel func(scheme.Object) fields.Set) ([]*Entry, error) {
	forms := make([]*derived, len(entries))
	var mine claims
	for i, e := range entries {
		d, claimed := e.claim(form)
		if forms[i] = d; claimed {
			mine = append(mine, claim{e, d})
		}
	}
	mine.compute(compute, sel)
	out := make([]*Entry, len(entries))
	for i, d := range forms {
		select {
		case <-d.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if d.err != nil {
			return nil, d.err
		}
		out[i] = d.entry
	}
	return out, nil
}

// claims are the forms that one call computes; others may wait for them.
type claims []claim

type claim struct {
	of   *Entry
	form *derived
}

// compute completes the forms, also if compute panics.
func (cs claims) compute(compute func([]scheme.Object) ([]scheme.Object, error), sel func(scheme.Object) fields.Set) {
	if len(cs) == 0 {
		return
	}
	err := errors.New("the computation of the form has panicked")
	var results []scheme.Object
	defer func() {
		for i, c := range cs {
			if c.form.err = err; err == nil {
				c.form.entry = c.of.as(results[i], sel)
			} else {
				c.of.forget(func(d *derived) bool { return d == c.form }) // the next claim computes it again
			}
			close(c.form.done)
		}
	}()
	objs := make([]scheme.Object, len(cs))
	for i, c := range cs {
		objs[i] = c.of.Object()
	}
	if results, err = compute(objs); err == nil && len(results) != len(objs) {
		err = fmt.Errorf("%d results for %d objects", len(results), len(objs))
	}
}

// claim returns the form of an entry. claimed means that the caller must compute it.
func (e *Entry) claim(form string) (d *derived, claimed bool) {
	age := e.cache.age.Load()
	e.deriving.Lock()
	defer e.deriving.Unlock()
	for d = e.forms; d != nil; d = d.next {
		if d.form == form {
			d.used.Store(age)
			return d, false
		}
	}
	d = &derived{form: form, done: make(chan struct{}), next: e.forms}
	d.used.Store(age)
	e.forms = d
	return d, true
}

// forget drops the forms for which drop returns true.
func (e *Entry) forget(drop func(*derived) bool) {
	e.deriving.Lock()
	defer e.deriving.Unlock()
	for at := &e.forms; *at != nil; {
		if drop(*at) {
			*at = (*at).next
		} else {
			at = &(*at).next
		}
	}
}

// as returns an entry for another form of the object.
func (e *Entry) as(obj scheme.Object, sel func(scheme.Object) fields.Set) *Entry {
	out := &Entry{Key: e.Key, Revision: e.Revision, Labels: e.cache.texts.set(e.Key, obj.GetLabels()), Fields: e.cache.texts.set(e.Key, sel(obj)), cache: e.cache}
	out.object.Store(&decoded{obj})
	if e.cache.cfg.Restore != nil {
		if _, err := out.Message(); err == nil { // otherwise the object stays
			e.cache.hot.add(out)
		}
	}
	return out
}
