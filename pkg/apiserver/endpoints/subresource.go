package endpoints

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/request"
	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
)

// getView answers with a view of an object as another kind, such as Scale.
func (c *call) getView() error {
	f, err := wire.Negotiate(c.r, wire.Offer{})
	if err != nil {
		return err
	}
	e, err := c.entry()
	if err == nil {
		e, err = c.res.seenOne(c.ctx, e)
	}
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

// changeView calls change with the present view, merges the result into the object,
// stores the object and answers with its new view.
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

// storeView stores the object that change returns and answers with its new view.
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

// matchView copies the resourceVersion and the UID of a view to next, where the
// update checks them, and returns a 400 if the name or namespace differ from the
// URL.
func (c *call) matchView(next scheme.Object, view runtime.Object) error {
	m, err := meta.Accessor(view)
	if err != nil {
		return nil // the view has no metadata to check
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

// newBody returns an empty object of the kind of the subresource.
func (c *call) newBody() (runtime.Object, error) {
	obj, err := c.res.api.Scheme.New(c.sub.GVK)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return obj, nil
}

// act performs an action on an object: a binding, an eviction, a token request.
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
	opts := &metav1.CreateOptions{DryRun: c.query()["dryRun"], FieldManager: o.manager, FieldValidation: o.validation}
	if err := c.admitSubresource(admission.Create, obj, opts); err != nil {
		return err
	}
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

// nameBody sets the name and namespace of the URL on the body of an action, and
// returns a 400 if the body has others.
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

// admitSubresource runs the admission chain for an action or a connection. opts are
// nil for a connection.
func (c *call) admitSubresource(op admission.Operation, body, opts runtime.Object) error {
	return c.res.admit(c.ctx, &admission.Attributes{
		Operation: op, Subresource: c.sub.Name, Kind: c.sub.GVK, Namespace: c.info.Namespace, Name: c.info.Name,
		Body: body, Options: opts, DryRun: len(c.query()["dryRun"]) > 0,
		Forms: []admission.Form{{Resource: c.res.served.GVR(), Kind: c.sub.GVK}},
	}, nil)
}

// connectVerbs returns a handler for each method of a subresource that takes over
// the connection, such as exec.
func (c *call) connectVerbs() map[string]handler {
	verbs := map[string]handler{}
	for _, m := range c.sub.Methods {
		verbs[request.ResourceVerb(m)] = (*call).connect
	}
	return verbs
}

func (c *call) connect() error {
	if c.sub.GVK != c.res.gvk() { // a read, such as a log, passes no admission
		if err := c.admitSubresource(admission.Connect, c.connectOptions(), nil); err != nil {
			return err
		}
	}
	c.sub.Connect(c.res.api, c.info.Namespace, c.info.Name, c.info.Rest).ServeHTTP(c.w, c.r)
	return nil
}
