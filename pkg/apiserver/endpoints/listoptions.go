package endpoints

import (
	"fmt"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	listvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"podium/pkg/apiserver/request"
	"podium/pkg/storage/watchcache"
)

// listOptions select the objects of a list or a watch, their revision and number.
type listOptions struct {
	internalversion.ListOptions
}

// listOptions parses the query of a list, a watch or a delete of a collection.
func (c *call) listOptions(watch bool) (listOptions, error) {
	o, err := parseListOptions(c.query(), watch)
	if err != nil {
		return o, err
	}
	if err := o.only(c.info.Name); err != nil {
		return o, err
	}
	o.FieldSelector, err = c.res.storageFields(o.FieldSelector)
	return o, err
}

// only restricts the selection to the name that the request was authorized for; ""
// does not restrict it. If the path has a name, a field selector must require the
// same name.
func (o *listOptions) only(name string) error {
	if name == "" {
		return nil
	}
	if o.FieldSelector == nil || o.FieldSelector.Empty() {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name)
		return nil
	}
	if required, ok := o.FieldSelector.RequiresExactMatch("metadata.name"); !ok || required != name {
		return apierrors.NewBadRequest("fieldSelector metadata.name doesn't match requested name")
	}
	return nil
}

func parseListOptions(q url.Values, watch bool) (o listOptions, err error) {
	o.Watch = watch
	o.ResourceVersion = q.Get("resourceVersion")
	o.ResourceVersionMatch = metav1.ResourceVersionMatch(q.Get("resourceVersionMatch"))
	o.Continue = q.Get("continue")
	o.AllowWatchBookmarks = request.Flag(q, "allowWatchBookmarks")
	if _, ok := q["sendInitialEvents"]; ok {
		send := request.Flag(q, "sendInitialEvents")
		o.SendInitialEvents = &send
	}
	if o.Limit, err = parseNumber(q, "limit"); err != nil {
		return o, err
	}
	if q.Get("timeoutSeconds") != "" {
		seconds, err := parseNumber(q, "timeoutSeconds")
		if err != nil {
			return o, err
		}
		o.TimeoutSeconds = &seconds
	}
	if s := q.Get("labelSelector"); s != "" {
		if o.LabelSelector, err = labels.Parse(s); err != nil {
			return o, apierrors.NewBadRequest(err.Error())
		}
	}
	if s := q.Get("fieldSelector"); s != "" {
		if o.FieldSelector, err = fields.ParseSelector(s); err != nil {
			return o, apierrors.NewBadRequest(err.Error())
		}
	}
	return o, invalidOptions("ListOptions", listvalidation.ValidateListOptions(&o.ListOptions, true))
}

func parseNumber(q url.Values, key string) (int64, error) {
	text := q.Get(key)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest(err.Error())
	}
	if n < 0 {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("%s: Invalid value: %d: must be greater than or equal to 0", key, n))
	}
	return n, nil
}

// storageFields translates a selector of the version to the names of the storage
// version. It returns a 400 if the selector uses a field that cannot be selected.
func (v *version) storageFields(sel fields.Selector) (fields.Selector, error) {
	if names := v.served.Fields; sel != nil && names != nil {
		return sel.Transform(func(name, value string) (string, string, error) {
			if stored, ok := names[name]; ok {
				return stored, value, nil
			}
			if name == "metadata.name" || name == "metadata.namespace" {
				return name, value, nil
			}
			return "", "", apierrors.NewBadRequest("field label not supported: " + name)
		})
	}
	return sel, v.checkFields(sel)
}

// checkFields returns a 400 if the selector uses a field that the kind does not
// support.
func (v *version) checkFields(sel fields.Selector) error {
	if sel == nil {
		return nil
	}
	for _, req := range sel.Requirements() {
		if v.selectable[req.Field] {
			continue
		}
		if v.rules.Fields != nil {
			return apierrors.NewBadRequest("field label not supported: " + req.Field)
		}
		return apierrors.NewBadRequest(fmt.Sprintf(`%q is not a known field selector: only "metadata.name", "metadata.namespace"`, req.Field))
	}
	return nil
}

// matches reports whether an object matches the selectors.
func (o *listOptions) matches(e *watchcache.Entry) bool {
	return (o.LabelSelector == nil || o.LabelSelector.Matches(&e.Labels)) &&
		(o.FieldSelector == nil || o.FieldSelector.Matches(&e.Fields))
}

// selective reports whether the selectors may exclude objects.
func (o *listOptions) selective() bool {
	return o.LabelSelector != nil && !o.LabelSelector.Empty() || o.FieldSelector != nil && !o.FieldSelector.Empty()
}
