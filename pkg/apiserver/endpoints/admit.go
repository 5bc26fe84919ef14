package endpoints

import (
	"context"
	"net/url"
	"reflect"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
)

// admit runs the admission chain for a request to the resource. It fills in the
// user and the resource of a, and the kind unless the caller has set it. prepare
// runs after the mutating plugins and before the validating ones; nil skips it.
func (r *resource) admit(ctx context.Context, a *admission.Attributes, prepare func() error) error {
	r.describe(ctx, a)
	return r.api.Admission.Admit(ctx, a, prepare)
}

// describe fills in the user and the resource of a, and the kind unless it is set.
func (r *resource) describe(ctx context.Context, a *admission.Attributes) {
	a.User, a.Resource = request.UserFrom(ctx), r.GVR()
	if a.Kind.Empty() {
		a.Kind = r.gvk()
	}
}

// formsOf returns the forms of a write with these options.
func (r *resource) formsOf(o writeOptions) []admission.Form {
	v := o.in
	if v == nil {
		v = r.versions[0]
	}
	if o.sub != nil && o.sub.View != nil {
		return []admission.Form{v.viewForm(o)}
	}
	return v.forms
}

// makeForms fills in the forms of each version.
func (r *resource) makeForms() {
	for _, own := range r.versions {
		own.forms = []admission.Form{own.form()}
		for _, other := range r.versions {
			if other != own {
				own.forms = append(own.forms, other.form())
			}
		}
	}
}

// form returns the version as a form for admission.
func (v *version) form() admission.Form {
	return admission.Form{
		Resource: v.served.GVR(), Kind: v.gvk(), Types: v.types,
		Show: func(obj runtime.Object) (runtime.Object, error) { return v.fromStorage(obj.(scheme.Object)) },
		Replace: func(obj, changed runtime.Object) error {
			stored, _, err := v.toStorage(changed.(scheme.Object))
			if err == nil {
				admission.Overwrite(obj, stored)
			}
			return err
		},
	}
}

// viewForm returns the view of a subresource as a form for admission.
func (v *version) viewForm(o writeOptions) admission.Form {
	return admission.Form{
		Resource: v.served.GVR(), Kind: o.sub.GVK, Types: v.types,
		Show:    func(obj runtime.Object) (runtime.Object, error) { return o.sub.View(obj.(scheme.Object)) },
		Replace: func(obj, changed runtime.Object) error { return o.sub.Merge(obj.(scheme.Object), changed) },
	}
}

// connectOptions returns the options of a connection, an object of the kind of
// the subresource that the query of the request fills, such as PodExecOptions;
// nil if the kind has no Go type. path is what follows the subresource.
func (c *call) connectOptions() runtime.Object {
	opts, err := c.newBody()
	if err != nil {
		return nil
	}
	into := reflect.ValueOf(opts).Elem()
	for i := range into.NumField() {
		name, _, _ := strings.Cut(into.Type().Field(i).Tag.Get("json"), ",")
		if name != "" {
			setOption(into.Field(i), c.query(), name)
		}
	}
	if path := into.FieldByName("Path"); path.IsValid() && path.Kind() == reflect.String {
		path.SetString(c.info.Rest)
	}
	return opts
}

// setOption sets a field of connection options from a parameter of the query. As
// upstream, it ignores what does not parse.
func setOption(field reflect.Value, q url.Values, name string) {
	values := q[name]
	if len(values) == 0 {
		return
	}
	switch into := field.Addr().Interface().(type) {
	case *string:
		*into = values[0]
	case *bool:
		*into = request.Flag(q, name)
	case *[]string:
		*into = values
	case *[]int32:
		for _, text := range values {
			if n, err := strconv.ParseInt(text, 10, 32); err == nil {
				*into = append(*into, int32(n))
			}
		}
	}
}
