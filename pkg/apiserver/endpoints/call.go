package endpoints

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/apiserver/registry"
	"podium/pkg/apiserver/request"
	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
)

// call is one request in its handler. One goroutine uses it.
type call struct {
	w    http.ResponseWriter
	r    *http.Request
	ctx  context.Context
	info *request.Info
	res  *version
	sub  *registry.Subresource // nil: the object itself

	values url.Values
}

func (c *call) query() url.Values {
	if c.values == nil {
		c.values = c.r.URL.Query()
	}
	return c.values
}

// respond answers with an object of the call's resource.
func (c *call) respond(code int, f wire.Format, stored shown) error {
	obj := c.res.show(stored)
	if f.Media == scheme.YAML {
		bare, err := obj.JSON()
		if err != nil {
			return err
		}
		release, err := c.claimText(f, 0, int64(bare.Len()))
		if err != nil {
			return err
		}
		defer release()
	}
	if f.As == nil {
		return wire.WriteObject(c.w, c.r, code, f, c.res.gvk(), obj)
	}
	if f.As.Kind == wire.Table {
		return c.respondTable(code, f, []shown{obj}, metav1.ListMeta{ResourceVersion: obj.Object().GetResourceVersion()})
	}
	return wire.WriteObject(c.w, c.r, code, f, *f.As, partial{obj, c.res.text})
}

// writeOptions are the options that all writes share.
type writeOptions struct {
	dryRun      bool
	manager     string   // the field manager of the write
	in          *version // the version of the request; nil: the storage version
	sub         *registry.Subresource
	force       bool           // apply: take over fields that other managers own
	applied     bool           // the managed fields are up to date already
	validation  string         // how to handle unknown fields: Strict, Warn or Ignore
	createAlong bool           // an update of an absent object creates it
	options     runtime.Object // as admission plugins receive them; nil: a write of the server itself
}

// rules returns the rules of the version of the write.
func (o *writeOptions) rules(r *resource) *registry.Of[scheme.Object] {
	if o.in == nil {
		return &r.Of
	}
	return o.in.rules
}

func (c *call) writeOptions(options runtime.Object) writeOptions {
	q := c.query()
	o := writeOptions{
		dryRun:     len(q["dryRun"]) > 0,
		manager:    managerName(q.Get("fieldManager"), c.r.UserAgent()),
		in:         c.res,
		sub:        c.sub,
		validation: q.Get("fieldValidation"),
		options:    options,
	}
	if o.validation == "" {
		o.validation = metav1.FieldValidationWarn
	}
	return o
}

func (c *call) createOptions() (writeOptions, error) {
	q := c.query()
	opts := &metav1.CreateOptions{DryRun: q["dryRun"], FieldManager: q.Get("fieldManager"), FieldValidation: q.Get("fieldValidation")}
	return c.writeOptions(opts), invalidOptions("CreateOptions", metavalidation.ValidateCreateOptions(opts))
}

func (c *call) updateOptions() (writeOptions, error) {
	q := c.query()
	opts := &metav1.UpdateOptions{DryRun: q["dryRun"], FieldManager: q.Get("fieldManager"), FieldValidation: q.Get("fieldValidation")}
	return c.writeOptions(opts), invalidOptions("UpdateOptions", metavalidation.ValidateUpdateOptions(opts))
}

func (c *call) patchOptions(patchType types.PatchType) (writeOptions, error) {
	q := c.query()
	opts := &metav1.PatchOptions{DryRun: q["dryRun"], FieldManager: q.Get("fieldManager"), FieldValidation: q.Get("fieldValidation")}
	if _, ok := q["force"]; ok {
		force := request.Flag(q, "force")
		opts.Force = &force
	}
	o := c.writeOptions(opts)
	o.force = opts.Force != nil && *opts.Force
	return o, invalidOptions("PatchOptions", metavalidation.ValidatePatchOptions(opts, patchType))
}

func invalidOptions(kind string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
}

// managerName returns the field manager of a write: the one of the request, else
// the program name in the User-Agent.
func managerName(manager, userAgent string) string {
	if manager != "" {
		return manager
	}
	name, _, _ := strings.Cut(userAgent, "/")
	name = strings.Map(func(r rune) rune {
		if strconv.IsPrint(r) {
			return r
		}
		return -1
	}, name)
	return name[:min(len(name), 128)]
}

// warn adds decoding problems to the response as warnings.
func (c *call) warn(problems []error) {
	for _, p := range problems {
		request.Warn(c.ctx, p.Error())
	}
}

// invalid returns the 422 of an object that failed validation.
func (r *resource) invalid(name string, errs field.ErrorList) error {
	return apierrors.NewInvalid(r.gvk().GroupKind(), name, bounded(errs))
}

// These limit the validation errors in a response. Rendering many thousand errors
// into one message takes minutes, because the cost grows with the square of their
// number.
const (
	maxCauses = 100
	maxShown  = 1 << 10 // bytes of an invalid value
)

// bounded returns the first maxCauses errors with invalid values cut short, and an
// error that counts the rest.
func bounded(errs field.ErrorList) field.ErrorList {
	more := len(errs) - maxCauses
	if more > 0 {
		errs = errs[:maxCauses:maxCauses]
	}
	for i, err := range errs {
		if text, ok := err.BadValue.(string); ok && len(text) > maxShown {
			short := *err
			short.BadValue = shortened(text)
			errs[i] = &short
		}
	}
	if more > 0 {
		errs = append(errs, field.TooMany(nil, maxCauses+more, maxCauses))
	}
	return errs
}

func shortened(text string) string {
	if len(text) <= maxShown {
		return text
	}
	return strings.ToValidUTF8(text[:maxShown], "") + " ..."
}

func (r *resource) notFound(name string) error { return apierrors.NewNotFound(r.group(), name) }

// optimisticLock is the text of every conflict over resourceVersion.
const optimisticLock = "the object has been modified; please apply your changes to the latest version and try again"

func (r *resource) conflict(name, format string, args ...any) error {
	return apierrors.NewConflict(r.group(), name, fmt.Errorf(format, args...))
}

// typeOf returns the name of a registered type for error messages.
func typeOf(gvk schema.GroupVersionKind) string {
	if gvk.Group == "" {
		return gvk.Version + "." + gvk.Kind
	}
	group, _, _ := strings.Cut(gvk.Group, ".")
	return group + gvk.Version + "." + gvk.Kind
}
