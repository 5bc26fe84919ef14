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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/apiserver/registry"
	"podium/pkg/apiserver/request"
	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
)

// call is one request on its way through a handler.
type call struct {
	w    http.ResponseWriter
	r    *http.Request
	ctx  context.Context
	info *request.Info
	res  *resource
	sub  *registry.Subresource // nil: the object itself

	values url.Values
}

func (c *call) query() url.Values {
	if c.values == nil {
		c.values = c.r.URL.Query()
	}
	return c.values
}

// asObject is how a single object can be shown.
func asObject() wire.Offer { return wire.Offer{As: []string{wire.Table, wire.PartialObjectMetadata}} }

// respond answers with an object of the call's resource. obj is asked for only
// where the encodings do not do.
func (c *call) respond(code int, f wire.Format, obj func() scheme.Object, enc wire.Encoded) error {
	if f.Media == scheme.YAML {
		bare, err := enc.JSON()
		if err != nil {
			return err
		}
		release, err := c.claimText(f, 0, int64(len(bare)))
		if err != nil {
			return err
		}
		defer release()
	}
	if f.As == nil {
		return wire.WriteObject(c.w, c.r, code, f, c.res.gvk(), enc)
	}
	if f.As.Kind == wire.Table {
		return c.respondTable(code, f, []row{{obj, enc}}, metav1.ListMeta{ResourceVersion: obj().GetResourceVersion()})
	}
	return wire.WriteObject(c.w, c.r, code, f, *f.As, partial{obj, enc})
}

// respondStored answers with what a write has made.
func (c *call) respondStored(code int, f wire.Format, s *stored) error {
	return c.respond(code, f, s.object, s)
}

// writeOptions are the options that all writes share.
type writeOptions struct {
	dryRun      bool
	manager     string // who is changing fields
	sub         *registry.Subresource
	force       bool   // apply: take over fields of other managers
	applied     bool   // the managed fields are up to date already
	validation  string // what to do with unknown fields: Strict, Warn, Ignore
	createAlong bool   // an update of an absent object creates it
}

func (c *call) writeOptions() writeOptions {
	q := c.query()
	o := writeOptions{
		dryRun:     len(q["dryRun"]) > 0,
		manager:    managerName(q.Get("fieldManager"), c.r.UserAgent()),
		sub:        c.sub,
		validation: q.Get("fieldValidation"),
	}
	if o.validation == "" {
		o.validation = metav1.FieldValidationWarn
	}
	return o
}

func (c *call) createOptions() (writeOptions, error) {
	q := c.query()
	errs := metavalidation.ValidateCreateOptions(&metav1.CreateOptions{
		DryRun: q["dryRun"], FieldManager: q.Get("fieldManager"), FieldValidation: q.Get("fieldValidation")})
	return c.writeOptions(), invalidOptions("CreateOptions", errs)
}

func (c *call) updateOptions() (writeOptions, error) {
	q := c.query()
	errs := metavalidation.ValidateUpdateOptions(&metav1.UpdateOptions{
		DryRun: q["dryRun"], FieldManager: q.Get("fieldManager"), FieldValidation: q.Get("fieldValidation")})
	return c.writeOptions(), invalidOptions("UpdateOptions", errs)
}

func (c *call) patchOptions(patchType types.PatchType) (writeOptions, error) {
	q := c.query()
	opts := &metav1.PatchOptions{DryRun: q["dryRun"], FieldManager: q.Get("fieldManager"), FieldValidation: q.Get("fieldValidation")}
	if _, ok := q["force"]; ok {
		force := request.Flag(q, "force")
		opts.Force = &force
	}
	o := c.writeOptions()
	o.force = opts.Force != nil && *opts.Force
	return o, invalidOptions("PatchOptions", metavalidation.ValidatePatchOptions(opts, patchType))
}

func invalidOptions(kind string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
}

// managerName is who a write is booked on: what the request says, else the
// client's program.
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

// invalid is the 422 of an object.
func (r *resource) invalid(name string, errs field.ErrorList) error {
	return apierrors.NewInvalid(r.gvk().GroupKind(), name, bounded(errs))
}

// What an answer tells of what is wrong. To put many thousand errors into one
// message takes minutes: its cost grows with their square.
const (
	maxCauses = 100
	maxShown  = 1 << 10 // bytes of a wrong value
)

// bounded are the first errors, with wrong values cut short.
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

// typeOf is a registered type's name for messages.
func typeOf(gvk schema.GroupVersionKind) string {
	if gvk.Group == "" {
		return gvk.Version + "." + gvk.Kind
	}
	group, _, _ := strings.Cut(gvk.Group, ".")
	return group + gvk.Version + "." + gvk.Kind
}
