package endpoints

import (
	"context"
	"errors"
	"iter"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"

	"podium/pkg/apiserver/wire"
	"podium/pkg/storage"
	"podium/pkg/storage/watchcache"
)

// page is the result of a list: shared entries and the metadata of the list.
type page struct {
	entries []*watchcache.Entry
	meta    metav1.ListMeta
}

// list answers with the objects of a namespace, or of all namespaces.
func (c *call) list() error {
	f, err := wire.Negotiate(c.r, c.res.listOffer())
	if err != nil {
		return err
	}
	o, err := c.listOptions(false)
	if err != nil {
		return err
	}
	p, err := c.res.viewFor(f).page(c.ctx, c.info.Namespace, o)
	if err != nil {
		return err
	}
	return c.respondPage(f, p)
}

// respondPage writes a page as a list in the form f.
func (c *call) respondPage(f wire.Format, p page) error {
	release, err := c.claimAnswer(f, p)
	if err != nil {
		return err
	}
	defer release()
	return answerList(c, f, p.entries, p.meta)
}

// answerList writes objects as a list in the form f.
func answerList[E shown](c *call, f wire.Format, objects []E, meta metav1.ListMeta) error {
	switch {
	case f.As == nil:
		return writeList(c, f, objects, meta)
	case f.As.Kind == wire.Table:
		rows := make([]shown, len(objects))
		for i, e := range objects {
			rows[i] = c.res.show(e)
		}
		return c.respondTable(200, f, rows, meta)
	}
	return writePartialList(c, f, objects, meta)
}

// page returns the objects that a list selects.
func (r *resource) page(ctx context.Context, namespace string, o listOptions) (page, error) {
	snap, pos, err := r.listed(ctx, o)
	if err != nil {
		return page{}, err
	}
	p := page{meta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(snap.Revision, 10)}}
	scope, after := r.scope(namespace), ""
	if pos.After != "" {
		after = r.prefix + pos.After
		if !strings.HasPrefix(after, scope) {
			return page{}, apierrors.NewBadRequest("continue key is not valid: it belongs to another list")
		}
	}
	more, err := r.gather(ctx, snap, namespace, scope, after, o, &p)
	if err != nil || !more {
		return p, err
	}
	last := p.entries[len(p.entries)-1]
	next := position{Revision: snap.Revision, After: strings.TrimPrefix(last.Key, r.prefix)}
	if !o.selective() {
		next.Left = pos.Left - int64(len(p.entries))
		if pos.Left == 0 {
			next.Left = r.left(snap, scope, after, last.Key, len(p.entries))
		}
		if next.Left > 0 {
			left := next.Left
			p.meta.RemainingItemCount = &left
		}
	}
	p.meta.Continue, err = next.token()
	return p, err
}

// listed returns the snapshot for a list and the position where the page begins.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list
func (r *resource) listed(ctx context.Context, o listOptions) (*watchcache.Snapshot, position, error) {
	if o.Continue != "" {
		return r.continued(ctx, o)
	}
	rev, err := parseVersion(o.ResourceVersion)
	if err != nil {
		return nil, position{}, err
	}
	exact := o.ResourceVersionMatch == metav1.ResourceVersionMatchExact ||
		o.ResourceVersionMatch == "" && o.Limit > 0 && rev > 0
	if !exact {
		snap, err := r.snapshot(ctx, o.ResourceVersion)
		return snap, position{}, err
	}
	snap, err := r.cache.At(ctx, rev)
	if errors.Is(err, storage.ErrFuture) {
		return nil, position{}, r.tooLargeVersion(ctx, rev)
	}
	return snap, position{}, readError(err)
}

// continued returns the snapshot and the position that a continue token names.
func (r *resource) continued(ctx context.Context, o listOptions) (*watchcache.Snapshot, position, error) {
	pos, err := parsePosition(o.Continue)
	if err != nil {
		return nil, pos, apierrors.NewBadRequest(err.Error())
	}
	if o.ResourceVersion != "" && o.ResourceVersion != "0" {
		return nil, pos, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	}
	if pos.Revision < 0 {
		snap, err := r.cache.Latest(ctx)
		return snap, pos, readError(err)
	}
	snap, err := r.cache.At(ctx, pos.Revision)
	if errors.Is(err, storage.ErrCompacted) || errors.Is(err, storage.ErrFuture) {
		return nil, pos, pos.expired()
	}
	return snap, pos, readError(err)
}

// gather appends matching objects to the page, as the version of the resource shows
// them, and reports whether more objects match than fit.
func (r *resource) gather(ctx context.Context, snap *watchcache.Snapshot, namespace, scope, after string, o listOptions, p *page) (more bool, err error) {
	if !r.converts() || r == r.raw || !o.selective() {
		more = r.collect(snap, namespace, scope, after, o, p)
		p.entries, err = r.seen(ctx, p.entries)
		return more, err
	}
	// The selectors are about the converted objects: convert as many as may be needed.
	all := o
	all.LabelSelector, all.FieldSelector = nil, identity(o.FieldSelector)
	if all.Limit = chunk; o.Limit > 0 {
		all.Limit = min(chunk, o.Limit+1)
	}
	for left := true; left; {
		var next page
		left = r.collect(snap, namespace, scope, after, all, &next)
		if next.entries, err = r.seen(ctx, next.entries); err != nil {
			return false, err
		}
		for _, e := range next.entries {
			if after = e.Key; !o.matches(e) {
				continue
			}
			if o.Limit > 0 && int64(len(p.entries)) == o.Limit {
				return true, nil
			}
			p.entries = append(p.entries, e)
		}
	}
	return false, nil
}

// chunk is the number of objects that a selective list converts at a time.
const chunk = 500

// identity returns the part of a selector that is about an object's name and namespace,
// which no conversion changes. nil: nothing is.
func identity(sel fields.Selector) fields.Selector {
	if sel == nil {
		return nil
	}
	var own []fields.Selector
	for _, name := range []string{"metadata.name", "metadata.namespace"} {
		if value, ok := sel.RequiresExactMatch(name); ok {
			own = append(own, fields.OneTermEqualSelector(name, value))
		}
	}
	return fields.AndSelectors(own...)
}

// collect appends matching objects to the page and reports whether more objects
// match than fit.
func (r *resource) collect(snap *watchcache.Snapshot, namespace, scope, after string, o listOptions, p *page) (more bool) {
	limit := int(o.Limit)
	if limit <= 0 || limit > snap.Len() {
		limit = snap.Len()
	}
	all := !o.selective()
	if all && scope == r.prefix {
		p.entries = make([]*watchcache.Entry, 0, limit)
	}
	take := func(e *watchcache.Entry) bool {
		if !all && !o.matches(e) {
			return true
		}
		if len(p.entries) == limit {
			more = true
			return false
		}
		p.entries = append(p.entries, e)
		return true
	}
	if name, value, ok := r.indexedField(o); ok {
		for e := range snap.ByField(name, value) {
			if e.Key > after && strings.HasPrefix(e.Key, scope) && !take(e) {
				break
			}
		}
		return more
	}
	if name, ok := exactly(o, "metadata.name"); ok && (namespace != "" || !r.Namespaced) {
		if e := snap.Get(r.key(namespace, name)); e != nil && e.Key > after {
			take(e)
		}
		return more
	}
	if r.ascendLabelled(snap, o, scope, after, take) {
		return more
	}
	visited := 0
	snap.Ascend(scope, after, func(e *watchcache.Entry) bool { visited++; return take(e) })
	for label := range requiredLabels(o) {
		r.cache.Scanned(snap, label, visited-len(p.entries))
	}
	return more
}

// ascendLabelled is Ascend for the objects that have one of the required labels. It returns
// false if none of these is indexed.
func (r *resource) ascendLabelled(snap *watchcache.Snapshot, o listOptions, scope, after string, take func(*watchcache.Entry) bool) bool {
	for label, value := range requiredLabels(o) {
		if snap.ByLabel(label, value, scope, after, take) {
			return true
		}
	}
	return false
}

// requiredLabels yields the labels of which the label selector requires one value.
func requiredLabels(o listOptions) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		if o.LabelSelector == nil {
			return
		}
		all, _ := o.LabelSelector.Requirements()
		for _, q := range all {
			values := q.ValuesUnsorted()
			if one := q.Operator() == selection.Equals || q.Operator() == selection.DoubleEquals || q.Operator() == selection.In; !one || len(values) != 1 {
				continue
			}
			if !yield(q.Key(), values[0]) {
				return
			}
		}
	}
}

// indexedField returns an indexed field that the field selector requires to have
// one value, and that value.
func (r *resource) indexedField(o listOptions) (name, value string, ok bool) {
	for _, name := range r.Indexed {
		if value, ok := exactly(o, name); ok {
			return name, value, true
		}
	}
	return "", "", false
}

func exactly(o listOptions, field string) (string, bool) {
	if o.FieldSelector == nil {
		return "", false
	}
	return o.FieldSelector.RequiresExactMatch(field)
}

// left counts the objects after a page.
func (r *resource) left(snap *watchcache.Snapshot, scope, after, last string, sent int) int64 {
	if scope == r.prefix && after == "" {
		return int64(snap.Len() - sent)
	}
	n := int64(0)
	snap.Ascend(scope, last, func(*watchcache.Entry) bool { n++; return true })
	return n
}
