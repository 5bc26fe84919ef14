package endpoints

import (
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/request"
	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
)

// getView answers with another kind's view of an object.
func (c *call) getView() error {
	f, err := wire.Negotiate(c.r, wire.Offer{})
	if err != nil {
		return err
	}
	e, err := c.entry()
	if err != nil {
		return err
	}
	view, err := c.sub.View(e.Object())
	if err != nil {
		return err
	}
	return wire.WriteObject(c.w, c.r, http.StatusOK, f, c.sub.GVK, wire.Bare(view))
}

// updateView changes an object through a view.
func (c *call) updateView() error {
	o, err := c.updateOptions()
	if err != nil {
		return err
	}
	b, err := c.readBody()
	if err != nil {
		return err
	}
	return c.changeView(o, func(runtime.Object) (runtime.Object, error) {
		view, err := c.newBody()
		if err != nil {
			return nil, err
		}
		return view, c.decodeInto(b, o.validation, c.sub.GVK, view)
	})
}

// changeView stores what change makes of the present view.
func (c *call) changeView(o writeOptions, change func(runtime.Object) (runtime.Object, error)) error {
	return c.storeView(o, func(cur *present) (scheme.Object, error) {
		next := cur.obj.DeepCopyObject().(scheme.Object)
		have, err := c.sub.View(next)
		if err != nil {
			return nil, err
		}
		view, err := change(have)
		if err != nil {
			return nil, err
		}
		if err := c.matchView(next, view); err != nil {
			return nil, err
		}
		return next, c.sub.Merge(next, view)
	})
}

// storeView stores a changed object and answers with its new view.
func (c *call) storeView(o writeOptions, change func(*present) (scheme.Object, error)) error {
	f, err := wire.Negotiate(c.r, wire.Offer{})
	if err != nil {
		return err
	}
	s, _, err := c.res.update(c.ctx, c.info.Namespace, c.info.Name, o, change)
	if err != nil {
		return err
	}
	view, err := c.sub.View(s.obj)
	if err != nil {
		return err
	}
	return wire.WriteObject(c.w, c.r, http.StatusOK, f, c.sub.GVK, wire.Bare(view))
}

// matchView takes over what a view says of the object's identity, to be
// checked like that of any update.
func (c *call) matchView(next scheme.Object, view runtime.Object) error {
	m, err := meta.Accessor(view)
	if err != nil {
		return nil // a view without metadata has nothing to check
	}
	if name := m.GetName(); name != "" && name != c.info.Name {
		return apierrors.NewBadRequest("the name of the object (" + name + ") does not match the name on the URL (" + c.info.Name + ")")
	}
	if ns := m.GetNamespace(); ns != "" && ns != c.info.Namespace {
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	if rv := m.GetResourceVersion(); rv != "" {
		next.SetResourceVersion(rv)
	}
	if uid := m.GetUID(); uid != "" {
		next.SetUID(uid)
	}
	return nil
}

// newBody is an empty object of the subresource's own kind.
func (c *call) newBody() (runtime.Object, error) {
	obj, err := c.res.api.Scheme.New(c.sub.GVK)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return obj, nil
}

// act carries out an action on an object: a binding, an eviction, a token.
func (c *call) act() error {
	f, err := wire.Negotiate(c.r, wire.Offer{})
	if err != nil {
		return err
	}
	o, err := c.createOptions()
	if err != nil {
		return err
	}
	b, err := c.readBody()
	if err != nil {
		return err
	}
	obj, err := c.newBody()
	if err != nil {
		return err
	}
	if err := c.decodeInto(b, o.validation, c.sub.GVK, obj); err != nil {
		return err
	}
	if err := c.nameBody(obj); err != nil {
		return err
	}
	if err := c.admitSubresource(admission.Create, obj); err != nil {
		return err
	}
	opts := &metav1.CreateOptions{DryRun: c.query()["dryRun"], FieldManager: o.manager, FieldValidation: o.validation}
	out, err := c.sub.Act(c.ctx, c.res.api, c.info.Namespace, c.info.Name, obj, opts)
	if err != nil {
		return err
	}
	if out == nil {
		out = &metav1.Status{Status: metav1.StatusSuccess}
	}
	if done, ok := out.(*metav1.Status); ok && done.Code == 0 {
		done.Code = http.StatusCreated
	}
	gvk, err := c.res.api.Scheme.GVKOf(out)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	return wire.WriteObject(c.w, c.r, http.StatusCreated, f, gvk, wire.Bare(out))
}

// nameBody gives the body of an action the name and namespace of the URL, or
// refuses others.
func (c *call) nameBody(obj runtime.Object) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil
	}
	if m.GetName() == "" {
		m.SetName(c.info.Name)
	}
	if m.GetName() != c.info.Name {
		return apierrors.NewBadRequest("the name of the object (" + m.GetName() + ") does not match the name on the URL (" + c.info.Name + ")")
	}
	if m.GetNamespace() == "" {
		m.SetNamespace(c.info.Namespace)
	}
	if m.GetNamespace() != c.info.Namespace {
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

func (c *call) admitSubresource(op admission.Operation, body runtime.Object) error {
	a := &admission.Attributes{
		Operation: op, Kind: c.res.Kind, Subresource: c.sub.Name, Namespace: c.info.Namespace, Name: c.info.Name,
		Body: body, DryRun: len(c.query()["dryRun"]) > 0, User: request.UserFrom(c.ctx),
	}
	if err := admission.Run(c.ctx, c.res.api.Admission.Mutate, a); err != nil {
		return err
	}
	return admission.Run(c.ctx, c.res.api.Admission.Validate, a)
}

// connectVerbs hand the connection to the subresource, for the methods it
// answers.
func (c *call) connectVerbs() map[string]handler {
	verbs := map[string]handler{}
	for _, m := range c.sub.Methods {
		verbs[connectVerb(m)] = (*call).connect
	}
	return verbs
}

func (c *call) connect() error {
	if err := c.admitSubresource(admission.Connect, nil); err != nil {
		return err
	}
	c.sub.Connect(c.res.api, c.info.Namespace, c.info.Name, c.info.Rest).ServeHTTP(c.w, c.r)
	return nil
}

func connectVerb(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodGet, http.MethodHead:
		return "get"
	case http.MethodPut:
		return "update"
	}
	return strings.ToLower(method)
}
